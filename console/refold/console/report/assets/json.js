// JSON text in lines, as nodes. Formatted as text, so that numbers, order and duplicate keys are kept.
(R => {
  "use strict";

  const TOKEN = /"(?:[^"\\]|\\.)*"|[-+.\w]+|[{}[\],:]/gsu;
  const MOST = 200000; // characters that are displayed at once
  const NARROW = 72; // characters of a list on one line

  // The number of tokens of a list or object that fits on one line, from its bracket to its end; 0: too long.
  function inLine(tokens, from) {
    let width = 0;
    for (let place = from; place < tokens.length && width < NARROW; place++) {
      const token = tokens[place];
      width += token.length + 1;
      if (place > from && (token === "[" || token === "{")) return 0;
      if (token === "]" || token === "}") return width < NARROW ? place - from + 1 : 0;
    }
    return 0;
  }

  function word(token, next) {
    const kind = token[0] === '"' ? (next === ":" ? "key" : "string") : "number";
    return preact.h("span", { class: kind }, R.block(token));
  }

  R.pretty = text => {
    const made = [];
    let depth = 0;
    const lineEnd = () => made.push("\n" + "  ".repeat(depth));
    const found = text.slice(0, MOST).match(TOKEN) || [];
    let short = 0; // remaining tokens of the part on one line
    found.forEach((token, place) => {
      const next = found[place + 1];
      short = Math.max(0, short - 1);
      if ("{[".includes(token) && !short) short = inLine(found, place);
      if (short) {
        made.push("{[]}".includes(token) ? token : token === "," || token === ":" ? `${token} ` : word(token, next));
      } else if (token === "{" || token === "[") {
        made.push(token);
        depth += 1;
        if (next !== "}" && next !== "]") lineEnd();
      } else if (token === "}" || token === "]") {
        depth = Math.max(0, depth - 1);
        if (!["{", "["].includes(found[place - 1])) lineEnd();
        made.push(token);
      } else if (token === ",") {
        made.push(token);
        lineEnd();
      } else if (token === ":") {
        made.push(": ");
      } else {
        made.push(word(token, next));
      }
    });
    if (text.length > MOST) made.push(`\n… ${text.length - MOST} characters more`);
    return made;
  };
})((self.refold ||= {}));
