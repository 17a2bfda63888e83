// The arguments of a call: an edit as a diff, a patch in colours, other arguments field by field.
(R => {
  "use strict";

  const html = self.htm?.bind(preact.h);
  const PAIRS = [["old_string", "new_string"], ["old_str", "new_str"], ["oldString", "newString"], ["old_text", "new_text"], ["oldText", "newText"]];
  const PATCH = /^(\*\*\* Begin Patch|diff --git |--- [^\n]+\n\+\+\+ )/mu;
  const CELLS = 4000000; // cells of the comparison table: above this, all old lines are removed and all new ones added
  const AROUND = 3; // unchanged lines beside a changed one
  const SHORT = 80; // characters of a field without a box of its own
  const STRING = /"(?:[^"\\]|\\.)*"(\s*:)?/gsu;

  // The diff of two texts: [sign, line] with "-", "+" or " ".
  R.changed = (before, after) => {
    const [old, now] = [before, after].map(text => (text ? text.split("\n") : []));
    let head = 0;
    while (head < old.length && head < now.length && old[head] === now[head]) head++;
    let tail = 0;
    while (tail < old.length - head && tail < now.length - head && old[old.length - 1 - tail] === now[now.length - 1 - tail]) tail++;
    const same = lines => lines.map(line => [" ", line]);
    const middle = between(old.slice(head, old.length - tail), now.slice(head, now.length - tail));
    return [...same(old.slice(0, head)), ...middle, ...same(old.slice(old.length - tail))];
  };

  function between(old, now) {
    if (old.length * now.length > CELLS) return [...old.map(line => ["-", line]), ...now.map(line => ["+", line])];
    const wide = now.length + 1;
    const common = new Uint32Array((old.length + 1) * wide);
    for (let i = old.length - 1; i >= 0; i--)
      for (let j = now.length - 1; j >= 0; j--)
        common[i * wide + j] = old[i] === now[j] ? common[(i + 1) * wide + j + 1] + 1 : Math.max(common[(i + 1) * wide + j], common[i * wide + j + 1]);
    const made = [];
    let [i, j] = [0, 0];
    while (i < old.length || j < now.length) {
      if (i < old.length && j < now.length && old[i] === now[j]) {
        made.push([" ", old[i++]]);
        j++;
      } else if (j < now.length && (i === old.length || common[i * wide + j + 1] > common[(i + 1) * wide + j])) made.push(["+", now[j++]]);
      else made.push(["-", old[i++]]);
    }
    return made;
  }

  const TONES = { "+": "came", "-": "went", "@": "where" };
  const Line = ({ sign, text }) => html`<span class=${`line ${TONES[sign] || ""}`}>${R.block(text)}${"\n"}</span>`;

  // Keep only unchanged lines near changed ones.
  R.Diff = ({ before, after }) => {
    const lines = R.changed(before, after);
    const near = new Set();
    lines.forEach(([sign], place) => { if (sign !== " ") for (let i = place - AROUND; i <= place + AROUND; i++) near.add(i); });
    const made = [];
    lines.forEach(([sign, text], place) => {
      if (near.has(place)) made.push(html`<${Line} sign=${sign} text=${`${sign} ${text}`} />`);
      else if (near.has(place - 1) || !place) made.push(html`<span class="line where">…${"\n"}</span>`);
    });
    return html`<pre class="text mono diff">${made.length ? made : "nothing changes"}</pre>`;
  };

  const Patch = ({ text }) => html`<div class="box"><pre class="text mono diff">${text.split("\n").map(line => html`<${Line} sign=${line[0]} text=${line} />`)}</pre>
    <span class="tools"><${R.Copy} text=${text} /></span></div>`;

  const paired = value => PAIRS.filter(([old, now]) => typeof value?.[old] === "string" && typeof value?.[now] === "string");

  // A field in the form of its value: a patch, a text, a word, JSON.
  R.Field = ({ name, value }) => {
    if (value === null || ["boolean", "number"].includes(typeof value)) return html`<div class="field short"><h5>${R.line(name, 80)}</h5><code>${String(value)}</code></div>`;
    if (typeof value !== "string") return html`<div class="field"><h5>${R.line(name, 80)}</h5><pre class="text mono json">${R.pretty(JSON.stringify(value))}</pre></div>`;
    if (PATCH.test(value)) return html`<div class="field"><h5>${R.line(name, 80)}</h5><${Patch} text=${value} /></div>`;
    if (value.length <= SHORT && !value.includes("\n")) return html`<div class="field short"><h5>${R.line(name, 80)}</h5><code>${R.block(value)}</code><${R.Copy} text=${value} /></div>`;
    return html`<div class="field"><h5>${R.line(name, 80)}</h5><${R.Text} text=${value} /></div>`;
  };

  function Fields({ value }) {
    const pairs = paired(value);
    const edits = Array.isArray(value.edits) && value.edits.length && value.edits.every(each => paired(each).length) ? value.edits : [];
    const told = new Set([...pairs.flat(), ...(edits.length ? ["edits"] : [])]);
    return html`${Object.entries(value).filter(([name]) => !told.has(name)).map(([name, each]) => html`<${R.Field} name=${name} value=${each} />`)}
      ${pairs.map(([old, now]) => html`<${R.Diff} before=${value[old]} after=${value[now]} />`)}
      ${edits.flatMap(each => paired(each).map(([old, now]) => html`<${R.Diff} before=${each[old]} after=${each[now]} />`))}`;
  }

  const names = value => (value && typeof value === "object" ? Object.values(value).reduce((sum, each) => sum + names(each), Array.isArray(value) ? 0 : Object.keys(value).length) : 0);

  // The object in a text; null for other values, and for a duplicate field, because one of the two would be hidden.
  function object(text) {
    try {
      const value = JSON.parse(text);
      const whole = value && typeof value === "object" && !Array.isArray(value);
      return whole && names(value) === [...text.matchAll(STRING)].filter(found => found[1]).length ? value : null;
    } catch {
      return null;
    }
  }

  const isJson = text => {
    try {
      JSON.parse(text);
      return true;
    } catch {
      return false;
    }
  };

  // Free-form arguments: fields for an object, JSON in lines for other JSON, else text.
  R.Arguments = ({ text }) => {
    const value = object(text);
    if (value && Object.keys(value).length) return html`<${Fields} value=${value} /><details class="whole"><summary class="dim">as it was written</summary><pre class="text mono json">${R.pretty(text)}</pre></details>`;
    return isJson(text) ? html`<pre class="text mono json">${R.pretty(text)}</pre>` : html`<${R.Text} text=${text} />`;
  };
})((self.refold ||= {}));
