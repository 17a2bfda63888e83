// The language of filters over events, as refold.replay.queries.filters has it: the same words mean the same events here.
//
//     type:tool name:bash error:true tokens>2000 turn:10..20 text:"rm -rf" -verdict:refused or kind:model_failed
//
// One table of cases holds the two against each other.
(R => {
  "use strict";

  const MOST = 2000; // characters: it is typed by a person
  const REACH = 4096;
  const OVERLAP = 512;
  const TERM = /(-)?(?:([A-Za-z_]+)(<=|>=|[:~<>]))?("(?:[^"\\]|\\.)*"|[^\s"]*)/sy;

  class BadQuestion extends Error {
    constructor(at, problem) {
      super(problem);
      this.at = at;
    }
  }

  // `fields`: {name: {kind, digits}}, from refold.replay.queries.rows. Throws BadQuestion; `matches(row)` says whether one is meant.
  R.parse = (text, fields) => {
    if (text.length > MOST) throw new BadQuestion(MOST + 1, `more than ${MOST} characters`);
    const alternatives = [];
    let terms = [];
    let place = afterSpace(text, 0);
    while (place < text.length) {
      TERM.lastIndex = place;
      const match = TERM.exec(text);
      if (match[0] === "or") {
        if (!terms.length) throw new BadQuestion(place + 1, "or stands between two conditions");
        alternatives.push(terms);
        terms = [];
      } else terms.push(term(match, fields));
      place = afterSpace(text, match.index + match[0].length);
    }
    if (alternatives.length && !terms.length) throw new BadQuestion(text.length + 1, "or stands between two conditions");
    alternatives.push(terms);
    const matches = row => alternatives.some(all => all.every(each => each.test(row) !== each.contrary));
    return { matches, empty: !alternatives.some(all => all.length) };
  };

  function afterSpace(text, place) {
    const space = /\s*/y;
    space.lastIndex = place;
    const end = place + space.exec(text)[0].length;
    if (place > 0 && end === place && end < text.length)
      throw new BadQuestion(place + 1, 'a quotation mark inside of a word: quote the whole value, \\" for one in it');
    return end;
  }

  function term(match, fields) {
    const [whole, minus, typed, typedSign, raw] = match;
    const [name, sign] = [typed || "text", typedSign || ":"];
    const at = match.index + whole.length - raw.length + 1;
    if (minus && !typed) {
      const way = raw ? `: write "-${raw}" for this text, or -text:${raw} for its contrary` : "";
      throw new BadQuestion(match.index + 1, `- stands before a field${way}`);
    }
    if (raw === "" || raw === '""') {
      const open = match.input[at - 1] === '"' && !raw;
      throw new BadQuestion(at, open ? "this quotation mark has no second one" : "expected a value");
    }
    if (!Object.hasOwn(fields, name))
      throw new BadQuestion(match.index + (minus ? 2 : 1), `there is no field ${name}; there are ${Object.keys(fields).sort().join(", ")}`);
    try {
      return { contrary: minus !== undefined, test: test(name, fields[name], sign, raw) };
    } catch (error) {
      throw new BadQuestion(at, error.message);
    }
  }

  function test(name, field, sign, raw) {
    const quoted = raw.startsWith('"');
    const value = quoted ? raw.slice(1, -1).replace(/\\(["'\\])/g, "$1") : raw;
    if (field.kind === "number" && sign !== "~") return between(name, field.digits, sign, value);
    if (sign !== ":" && sign !== "~") throw new Error(`${name} is no number: it has no order`);
    if (sign === "~") return fits(name, field, value);
    const lower = value.toLowerCase();
    if (field.kind === "flag") {
      if (value !== "true" && value !== "false") throw new Error(`${name} is true or false`);
      return row => row[name] === (value === "true");
    }
    if (field.kind === "text") return row => textOf(row).toLowerCase().includes(lower);
    const same = value.includes("*") ? like : (word, wanted) => word === wanted;
    if (!quoted && field.values?.length && !field.values.some(word => same(word.toLowerCase(), lower)))
      throw new Error(`there is no ${name} ${value}; there are ${[...field.values].sort().join(", ")}`);
    if (value.includes("*") && !quoted) return row => words(row, name).some(word => like(word.toLowerCase(), lower));
    return row => words(row, name).some(word => word.toLowerCase() === lower);
  }

  const textOf = row => (typeof row.text === "function" ? row.text() : row.text || "");

  function words(row, name) {
    const value = row[name];
    if (Array.isArray(value)) return value;
    return value ? [value] : [];
  }

  function fits(name, field, value) {
    if (field.kind !== "words" && field.kind !== "text")
      throw new Error(`${name} is a ${field.kind}: regular expressions are for words and the text`);
    const pattern = R.pattern(value);
    return row => (name === "text" ? textOf(row).split("\n") : words(row, name)).some(line => found(pattern, line));
  }

  // As `found` of refold.replay.queries.filters: in pieces that decide what begins in them but for their last characters. A line
  // begins once and ends once: a piece is searched where it stands, and one behind which the line goes on by `endless`.
  function found({ whole, endless }, line) {
    let start = 0;
    while (start + REACH < line.length) {
      const place = at(endless, line.slice(0, start + REACH), start);
      start += REACH - OVERLAP;
      if (place >= 0 && place < start) return true;
    }
    return at(whole, line, start) >= 0;
  }

  function at(pattern, text, start) {
    pattern.lastIndex = start;
    const match = pattern.exec(text);
    return match ? match.index : -1;
  }

  function between(name, digits, sign, value) {
    let [low, high] = [null, null];
    if (sign === ":") {
      const dots = value.indexOf("..");
      const [from, to] = dots < 0 ? [value, value] : [value.slice(0, dots), value.slice(dots + 2)];
      if (dots >= 0 && !from && !to) throw new Error("expected a number before or after ..");
      low = from ? least(from, digits) : null;
      high = to ? most(to, digits) : null;
      if (low !== null && high !== null && low > high)
        throw new Error(
          `${name} is never ${dots < 0 ? "" : "in "}${value}: a range begins with its smaller number, ` +
            `and ${name} has ${digits || "no"} digits after the point`
        );
    } else if (sign === ">") low = most(value, digits) + 1n;
    else if (sign === ">=") low = least(value, digits);
    else if (sign === "<") high = least(value, digits) - 1n;
    else high = most(value, digits);
    return row => {
      const number = row[name];
      return number !== undefined && number !== null && (low === null || low <= number) && (high === null || number <= high);
    };
  }

  // A decimal number in the field's units, rounded up and down. Whole numbers of any length: a double would round.
  const least = (number, digits) => {
    const [value, unit] = decimal(number, digits);
    return value % unit ? value / unit + 1n : value / unit;
  };
  const most = (number, digits) => {
    const [value, unit] = decimal(number, digits);
    return value / unit;
  };

  function decimal(number, digits) {
    const match = /^([0-9]+)(?:\.([0-9]+))?$/.exec(number);
    if (!match) throw new Error("expected a number, as 20 or 0.5, or a range, as 10..20");
    const after = match[2] || "";
    return [BigInt(match[1] + after) * 10n ** BigInt(digits), 10n ** BigInt(after.length)];
  }

  function like(word, pattern) {
    const [first, ...middle] = pattern.split("*");
    const last = middle.pop();
    if (word.length < first.length + last.length || !word.startsWith(first) || !word.endsWith(last)) return false;
    const end = word.length - last.length;
    let place = first.length;
    for (const piece of middle) {
      place = word.slice(0, end).indexOf(piece, place);
      if (place < 0) return false;
      place += piece.length;
    }
    return true;
  }
})((self.refold ||= {}));
