// Makes texts of a log visible. Invisible characters, and those that change the reading order or control a terminal,
// are displayed as escapes, as `refold` does on a terminal. Texts reach the page only as text nodes.
(R => {
  "use strict";

  const HIDDEN =
    "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f" +
    "\\u00ad\\u0600-\\u0605\\u061c\\u06dd\\u070f\\u0890\\u0891\\u08e2\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e" +
    "\\u2060-\\u206f\\ud800-\\udfff\\ufeff\\ufff9-\\ufffb\\u{110bd}\\u{110cd}\\u{13430}-\\u{1343f}" +
    "\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}";
  const IN_BLOCK = new RegExp(`[${HIDDEN}]`, "gu");
  const IN_LINE = new RegExp(`[${HIDDEN}\\t\\n]`, "gu");
  const SHORT = { "\n": "\\n", "\t": "\\t" };

  const hex = (number, width) => number.toString(16).padStart(width, "0");

  function escape(mark) {
    const number = mark.codePointAt(0);
    if (SHORT[mark]) return SHORT[mark];
    if (number < 0x100) return `\\x${hex(number, 2)}`;
    return number < 0x10000 ? `\\u${hex(number, 4)}` : `\\U${hex(number, 8)}`;
  }

  let sought = [];
  const PIECE = 2000; // characters that are searched at once: any pattern is fast in so few

  // What to highlight in every text, each a RegExp with the flag g.
  R.seek = patterns => { sought = patterns; };

  // The ranges of hits, in order; nested hits are left out.
  function hits(piece) {
    const found = sought.flatMap(pattern => Array.from(piece.matchAll(pattern), each => [each.index, each.index + each[0].length]));
    return found.filter(([from, to]) => to > from).sort((a, b) => a[0] - b[0] || b[1] - a[1]);
  }

  function marked(text) {
    if (!sought.length || !text) return [text];
    const made = [];
    for (let start = 0; start < text.length; start += PIECE) {
      const piece = text.slice(start, start + PIECE);
      let from = 0;
      for (const [begin, end] of hits(piece)) {
        if (begin < from) continue;
        made.push(piece.slice(from, begin), preact.h("mark", null, piece.slice(begin, end)));
        from = end;
      }
      made.push(piece.slice(from));
    }
    return made;
  }

  // Text as nodes: each escape in a span of its own, so that it differs from a literal `\x1b`.
  function nodes(text, pattern) {
    const made = [];
    let from = 0;
    for (const found of text.matchAll(pattern)) {
      if (found.index > from) made.push(...marked(text.slice(from, found.index)));
      made.push(preact.h("span", { class: "esc" }, escape(found[0])));
      from = found.index + found[0].length;
    }
    if (from < text.length) made.push(...marked(text.slice(from)));
    return made;
  }

  R.block = text => nodes(text, IN_BLOCK);
  R.line = (text, most = 400) => nodes(text.length > most ? `${text.slice(0, most)}…` : text, IN_LINE);
  // The same as plain text: for titles and attributes, and as lines.
  R.visible = text => text.replace(IN_BLOCK, escape);
  R.plain = text => text.replace(IN_LINE, escape);
})((self.refold ||= {}));
