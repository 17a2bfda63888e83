// The filter language, as in refold.replay.queries.language: the same filter matches the same events here.
//
//     type:tool name:bash error:true tokens>2000 turn:10..20 text:"rm -rf" -(verdict:refused or kind:model_failed)
//
// A shared table of cases tests both implementations.
(R => {
  "use strict";

  const MOST = 2000; // characters: filters are typed
  const DEEPEST = 40;
  const SIGN = /([A-Za-z_]+)(?:([:~])|\s*(==|!=|<=|>=|<|>)\s*)/y;
  const VALUE = /"(?:[^"\\]|\\.)*"|[^\s"]*/sy;
  const OTHER = /(?:([0-9]+(?:\.[0-9]+)?)\s*\*\s*)?([A-Za-z_]+)(?=[\s)]|$)/y;
  const SPACE = /\s*/y;
  const JOINTS = { and: /and(?=[\s()]|$)/y, or: /or(?=[\s()]|$)/y, not: /not(?=[\s()]|$)/y };

  class BadQuestion extends Error {
    constructor(at, problem) {
      super(problem);
      this.at = at;
    }
  }

  // Parses a filter from left to right, one method per grammar rule; each returns a test of a row.
  class Parser {
    constructor(text, fields) {
      Object.assign(this, { text, fields, place: 0, depth: 0, groups: 0, last: "", sought: [] });
    }

    whole() {
      this.passSpace();
      if (this.ends) return () => true;
      const found = this.question();
      if (!this.ends) throw this.wrong("this ) closes nothing; to look for it, quote it");
      return found;
    }

    question() {
      const parts = [this.all()];
      while (this.takes("or")) parts.push(this.all());
      return first(true, parts);
    }

    all() {
      const parts = [this.part()];
      while (!this.ends && this.here !== ")" && !this.match(JOINTS.or)) {
        this.takes("and");
        parts.push(this.part());
      }
      return first(false, parts);
    }

    part() {
      const joint = ["and", "or"].find(word => this.match(JOINTS[word])) || (this.ends ? this.last : "");
      if (joint) throw this.wrong(`${joint} stands ${joint === "not" ? "before a condition" : "between two conditions"}`);
      if (this.ends || this.here === ")") throw this.wrong("expected a condition");
      if (++this.depth > DEEPEST) throw this.wrong(`nested more than ${DEEPEST} deep`);
      const found = this.takes("not") ? this.without(() => contrary(this.part())) : this.grouped() || this.condition();
      this.depth--;
      return found;
    }

    // Negated words are not highlighted.
    without(read) {
      const { sought } = this;
      this.sought = [];
      const found = read();
      this.sought = sought;
      return found;
    }

    grouped() {
      const minus = this.text.startsWith("-(", this.place);
      if (!minus && this.here !== "(") return null;
      this.place += minus ? 1 : 0;
      const begin = this.place++;
      this.groups++;
      this.last = "";
      this.passSpace();
      const found = minus ? this.without(() => this.question()) : this.question();
      if (this.here !== ")") throw new BadQuestion(begin + 1, "this ( has no ) of its own");
      this.place++;
      this.groups--;
      this.betweenWords();
      return minus ? contrary(found) : found;
    }

    condition() {
      const begin = this.place;
      const minus = this.here === "-";
      const match = this.match(SIGN, begin + (minus ? 1 : 0));
      if (!match) return this.bare(begin, minus);
      const [whole, name, tight, spaced] = match;
      const sign = tight || spaced;
      const at = (this.place = match.index + whole.length);
      const raw = this.value();
      if (raw === "" || raw === '""') throw this.noValue(at, raw);
      if (!Object.hasOwn(this.fields, name)) throw this.unknown(match.index, name);
      const found = this.tested(name, sign, raw, at);
      if (name === "text" && !minus && sign !== "!=") this.sought.push(sign === "~" ? R.patternOf(raw) : R.literal(raw));
      this.betweenWords();
      return minus !== (sign === "!=") ? contrary(found) : found;
    }

    bare(begin, minus) {
      this.place += minus ? 1 : 0;
      const at = this.place;
      const raw = this.value();
      const speaks = Object.hasOwn(this.fields, "text");
      if (minus && (!raw || speaks)) {
        const way = raw ? `: write "-${raw}" for this text, or -text:${raw} for its contrary` : "";
        throw new BadQuestion(begin + 1, `- stands before a field${way}`);
      }
      if (raw === "" || raw === '""') throw this.noValue(at, raw);
      this.betweenWords();
      if (speaks) this.sought.push(R.literal(raw));
      if (speaks) return R.holds(raw.startsWith('"') ? R.unquoted(raw) : raw);
      if (!Object.hasOwn(this.fields, raw)) throw this.unknown(at, raw);
      if (this.fields[raw].kind !== "flag") throw new BadQuestion(at + 1, `${raw} alone is no question: compare it with something, as by ==`);
      return row => row[raw] === !minus;
    }

    tested(name, sign, raw, at) {
      const field = this.fields[name];
      const match = field.kind === "number" && ![":", "~"].includes(sign) && this.match(OTHER, at);
      const other = match && Object.hasOwn(this.fields, match[2]) && this.fields[match[2]];
      if (other && other.kind === "number") {
        this.place = at + match[0].length;
        return R.beside(name, field, sign, match[1] || "1", match[2], other);
      }
      try {
        return R.condition(name, field, sign, raw);
      } catch (error) {
        throw new BadQuestion(at + 1, error.message);
      }
    }

    // The value at this position. Inside parentheses, an unmatched `)` is not part of the value.
    value() {
      const [raw] = this.match(VALUE);
      let end = raw.length;
      let opened = 0;
      for (let i = 0; this.groups && this.here !== '"' && i < raw.length && end === raw.length; i++) {
        opened += (raw[i] === "(") - (raw[i] === ")");
        if (opened < 0) end = i;
      }
      this.place += end;
      return raw.slice(0, end);
    }

    get here() {
      return this.text[this.place];
    }

    get ends() {
      return this.place === this.text.length;
    }

    match(pattern, place = this.place) {
      pattern.lastIndex = place;
      return pattern.exec(this.text);
    }

    takes(word) {
      if (!this.match(JOINTS[word])) return false;
      this.place += word.length;
      this.last = word;
      this.passSpace();
      return true;
    }

    passSpace() {
      this.place += this.match(SPACE)[0].length;
    }

    betweenWords() {
      const end = this.place;
      this.passSpace();
      if (end === this.place && !this.ends && this.here !== ")")
        throw new BadQuestion(end + 1, 'a quotation mark inside of a word: quote the whole value, \\" for one in it');
    }

    noValue(at, raw) {
      return new BadQuestion(at + 1, this.text[at] === '"' && !raw ? "this quotation mark has no second one" : "expected a value");
    }

    unknown(at, name) {
      return new BadQuestion(at + 1, `there is no field ${name}; there are ${Object.keys(this.fields).sort().join(", ")}`);
    }

    wrong(problem) {
      return new BadQuestion(this.place + 1, problem);
    }
  }

  const contrary = test => row => negated(test(row));
  const negated = so => (so === null ? null : !so);

  // Combine three-valued results: a decisive part wins, else unknown stays unknown.
  const first = (decisive, parts) => row => {
    const answers = parts.map(part => part(row));
    return answers.includes(decisive) ? decisive : answers.includes(null) ? null : !decisive;
  };

  // `fields`: {name: {kind, digits, values}}. Throws BadQuestion. `matches(row)` is true if the row certainly matches;
  // `sought` are RegExps to highlight in texts.
  R.parse = (text, fields) => {
    if (text.length > MOST) throw new BadQuestion(MOST + 1, `more than ${MOST} characters`);
    const parser = new Parser(text, fields);
    const answer = parser.whole();
    return { matches: row => answer(row) === true, empty: !text.trim(), sought: parser.sought };
  };
})((self.refold ||= {}));
