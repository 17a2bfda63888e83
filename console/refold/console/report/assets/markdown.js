// Markdown as models write it: headings, lists, code, quotes, tables, emphasis. Output is nodes with text: no markup
// from the log, no links, nothing to load. A link is its text with its address beside it.
(R => {
  "use strict";

  const html = htm.bind(preact.h);

  // Every repetition is bounded, or ends at a character that it excludes: the time is linear even for hostile texts.
  const INLINE = new RegExp([
    "(?<code>`[^`\\n]{1,1000}`)",
    "(?<strong>\\*\\*[^*\\n]{1,500}\\*\\*)",
    "(?<em>(?<![\\w*])\\*[^*\\s][^*\\n]{0,500}\\*(?![\\w*])|(?<!\\w)_[^_\\s][^_\\n]{0,500}_(?!\\w))",
    "(?<link>\\[[^\\[\\]\\n]{1,300}\\]\\([^()\\s]{1,1000}\\))",
  ].join("|"), "gu");
  const ITEM = /^( {0,12})([-*+]|\d{1,9}[.)])[ \t]+(.*)$/u;
  const FENCE = /^ {0,3}(`{3,}|~{3,})/u;
  const HEADING = /^(#{1,6})[ \t]+(.*)$/u;

  const inner = (found, by) => found[0].slice(by, -by);

  function inline(text) {
    const made = [];
    let from = 0;
    for (const found of text.matchAll(INLINE)) {
      made.push(R.block(text.slice(from, found.index)));
      const { code, strong, em } = found.groups;
      if (code) made.push(html`<code>${R.block(inner(found, 1))}</code>`);
      else if (strong) made.push(html`<strong>${inline(inner(found, 2))}</strong>`);
      else if (em) made.push(html`<em>${R.block(inner(found, 1))}</em>`);
      else {
        const [words, address] = found[0].slice(1, -1).split("](");
        made.push(R.block(words), html`<span class="address"> (${R.block(address)})</span>`);
      }
      from = found.index + found[0].length;
    }
    made.push(R.block(text.slice(from)));
    return made;
  }

  const cells = line => line.trim().replace(/^\||\|$/g, "").split("|").map(cell => cell.trim());
  const rules = line => line !== undefined && line.includes("-") && line.includes("|") && /^[\s|:-]+$/u.test(line);
  const isRule = line => /^[-*_]{3,}$/u.test(line.replaceAll(" ", "")) && new Set(line.replaceAll(" ", "")).size === 1;

  // The block that begins at a line: [its node, the line after it]. The first matching rule wins.
  const BLOCKS = [
    (lines, at) => {
      const [, fence] = FENCE.exec(lines[at]) || [];
      if (!fence) return null;
      let end = at + 1;
      while (end < lines.length && !(lines[end].trim().startsWith(fence) && !lines[end].trim().replaceAll(fence[0], ""))) end++;
      return [html`<pre class="mono">${R.block(lines.slice(at + 1, end).join("\n"))}</pre>`, end + 1];
    },
    (lines, at) => {
      const [, marks, words] = HEADING.exec(lines[at]) || [];
      return marks ? [html`<p class=${`title h${marks.length}`}>${inline(words)}</p>`, at + 1] : null;
    },
    (lines, at) => (isRule(lines[at]) ? [html`<hr />`, at + 1] : null),
    (lines, at) => {
      if (!lines[at].includes("|") || !rules(lines[at + 1])) return null;
      let end = at + 2;
      while (end < lines.length && lines[end].includes("|")) end++;
      const row = (line, tag) => html`<tr>${cells(line).map(cell => preact.h(tag, null, inline(cell)))}</tr>`;
      return [html`<table><thead>${row(lines[at], "th")}</thead><tbody>${lines.slice(at + 2, end).map(line => row(line, "td"))}</tbody></table>`, end];
    },
    (lines, at) => {
      const [, space, sign, words] = ITEM.exec(lines[at]) || [];
      if (!sign) return null;
      let end = at + 1;
      while (end < lines.length && /^\s+\S/u.test(lines[end]) && !ITEM.test(lines[end]) && !FENCE.test(lines[end])) end++;
      const said = [words, ...lines.slice(at + 1, end).map(line => line.trim())].join("\n");
      return [html`<div class=${`item d${Math.min(4, space.length >> 1)}`}><span>${/\d/.test(sign) ? sign : "•"}</span><span>${inline(said)}</span></div>`, end];
    },
    (lines, at) => {
      let end = at;
      while (end < lines.length && lines[end].startsWith(">")) end++;
      return end > at ? [html`<blockquote>${inline(lines.slice(at, end).map(line => line.replace(/^> ?/u, "")).join("\n"))}</blockquote>`, end] : null;
    },
  ];

  const begun = (lines, at) => BLOCKS.reduce((made, block) => made || block(lines, at), null);

  // The nodes of a text.
  R.markdown = text => {
    const lines = text.split("\n");
    const made = [];
    let plain = [];
    const close = () => {
      if (plain.length) made.push(html`<p>${inline(plain.join("\n"))}</p>`);
      plain = [];
    };
    for (let at = 0; at < lines.length; ) {
      const block = lines[at].trim() ? begun(lines, at) : null;
      if (block || !lines[at].trim()) close();
      else plain.push(lines[at]);
      if (block) made.push(block[0]);
      at = block ? block[1] : at + 1;
    }
    close();
    return made;
  };
})((self.refold ||= {}));
