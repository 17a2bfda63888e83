// The conditions of a filter, as in refold.replay.queries.conditions.
(R => {
  "use strict";

  const REACH = 4096;
  const OVERLAP = 512;
  const ORDER = ["<", "<=", ">", ">="];

  // Return a test of a row: true, false, or null if unknown. Throws an Error for an invalid value. The parser handles `contrary` signs.
  R.condition = (name, field, sign, raw) => {
    const quoted = raw.startsWith('"');
    const value = quoted ? R.unquoted(raw) : raw;
    if (field.kind === "number" && sign !== "~") return between(name, field.digits, sign, value);
    if (ORDER.includes(sign)) throw new Error(`${name} is no number: it has no order`);
    if (sign === "~") return fits(name, field, value);
    const lower = value.toLowerCase();
    if (field.kind === "flag") {
      if (value !== "true" && value !== "false") throw new Error(`${name} is true or false`);
      return row => row[name] === (value === "true");
    }
    if (field.kind === "text") return R.holds(value);
    const same = value.includes("*") ? like : (word, wanted) => word === wanted;
    if (!quoted && field.values?.length && !field.values.some(word => same(word.toLowerCase(), lower)))
      throw new Error(`there is no ${name} ${value}; there are ${[...field.values].sort().join(", ")}`);
    if (value.includes("*") && !quoted) return row => words(row, name).some(word => like(word.toLowerCase(), lower));
    return row => words(row, name).some(word => word.toLowerCase() === lower);
  };

  R.unquoted = text => text.slice(1, -1).replace(/\\(["\\])/g, "$1");

  // Return a RegExp with the flag g for a word or a regular expression.
  const bare = raw => (raw.startsWith('"') ? R.unquoted(raw) : raw);
  R.literal = raw => new RegExp(bare(raw).replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"), "giu");
  R.patternOf = raw => R.pattern(bare(raw)).whole;

  R.holds = value => row => spoken(row, text => text.toLowerCase().includes(value.toLowerCase()));

  // A number for comparison, times `factor`; as an integer of any length, because money is exact.
  R.beside = (name, field, sign, factor, other, otherField) => {
    const [whole, after = ""] = factor.split(".");
    const times = BigInt(whole + after) * 10n ** BigInt(field.digits);
    const unit = 10n ** BigInt(otherField.digits + after.length);
    const known = value => value !== undefined && value !== null;
    return row => {
      if (!known(row[name]) || !known(row[other])) return false;
      const [left, right] = [BigInt(row[name]) * unit, BigInt(row[other]) * times];
      return { "<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right }[sign] ?? left === right;
    };
  };

  // A test of a payload's texts; null if they were erased.
  function spoken(row, test) {
    const text = typeof row.text === "function" ? row.text() : row.text === undefined ? "" : row.text;
    return text === null ? null : test(text);
  }

  function words(row, name) {
    const value = row[name];
    if (Array.isArray(value)) return value;
    return value ? [value] : [];
  }

  function fits(name, field, value) {
    if (field.kind !== "words" && field.kind !== "text")
      throw new Error(`${name} is a ${field.kind}: regular expressions are for words and the text`);
    const pattern = R.pattern(value);
    const fitting = lines => lines.some(line => found(pattern, line));
    return row => (name === "text" ? spoken(row, text => fitting(text.split("\n"))) : fitting(words(row, name)));
  }

  // As `found` of refold.replay.queries.patterns: search in overlapping pieces. A line begins and ends once: a piece
  // is searched in place, and one after which the line continues by `endless`.
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
    if ([":", "==", "!="].includes(sign)) {
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

  // A decimal number in the field's units, rounded up and down, as an integer of any length: a double would round.
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
    if (!match) throw new Error("expected a number, as 20 or 0.5, a range, as 10..20, or another field that is a number");
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
