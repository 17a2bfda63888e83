// The tabs about the state after an event and its changes, and about the verdicts of limits and guards.
(R => {
  "use strict";

  const { useMemo, useState } = preactHooks;
  const html = htm.bind(preact.h);

  const value = (path, text) => {
    if (text === undefined) return html`<span class="dim">–</span>`;
    if (path === "setup.policy" || path === "setup.tools") return html`<span class="dim">as in <${R.Link} seq=${Number(text)} /></span>`;
    return html`<code>${R.line(text, 500)}</code>`;
  };

  // Names of the fields that differ before and after.
  function changed(before, after, changes) {
    const paths = new Set();
    for (const [path, text] of Object.entries(changes)) {
      if (text !== null) paths.add(path);
      else for (const each of before.keys()) if (each === path || each.startsWith(`${path}.`)) paths.add(each);
    }
    return [...paths].filter(path => before.get(path) !== after.get(path));
  }

  R.StateTab = ({ model, event }) => {
    const [wanted, setWanted] = useState("");
    const place = model.bySeq.get(event.seq);
    const [before, after] = useMemo(() => [place ? model.stateAt(place - 1) : new Map(), model.stateAt(place)], [place]);
    const differ = changed(before, after, model.changes(place) || {});
    const all = [...after.entries()].filter(([path]) => path.includes(wanted)).sort(([a], [b]) => (a < b ? -1 : 1));
    return html`<h4>changed by this event</h4>
      ${differ.length ? html`<table class="fields diff"><thead><tr><th>field</th><th>before</th><th>after</th></tr></thead><tbody>
        ${differ.map(path => html`<tr><th>${R.line(path, 120)}</th><td class="was">${value(path, before.get(path))}</td><td class="is">${value(path, after.get(path))}</td></tr>`)}
      </tbody></table>` : html`<p class="dim">only its place in the log</p>`}
      <h4>the state after it <input class="small" placeholder="part of a name" value=${wanted} onInput=${e => setWanted(e.target.value)} /></h4>
      <p class="dim">Fields that have their default are left out.</p>
      <table class="fields"><tbody>${all.slice(0, 500).map(([path, text]) => html`<tr class=${differ.includes(path) ? "is" : ""}><th>${R.line(path, 120)}</th><td>${value(path, text)}</td></tr>`)}</tbody></table>`;
  };

  function Finding({ finding }) {
    const side = (name, text) => html`<h4>${name}</h4>${text === null ? html`<p class="dim">nothing</p>` : html`<pre class="text mono json">${R.pretty(text)}</pre>`}`;
    return html`<p class="remark bad">The audit: ${finding.kind} is ${finding.difference}${finding.fields.length ? ` in ${finding.fields.join(", ")}` : ""}. ${finding.why}</p>
      ${side("recorded", finding.recorded)}${side("derived again", finding.derived)}`;
  }

  // One line for an opinion: `used 3 of 12 steps`, or the guard's own numbers.
  function saw(opinion) {
    const found = Object.fromEntries(opinion.measured);
    if (found.used === undefined || found.unit === undefined) return opinion.measured.map(([key, said]) => `${key}=${said}`).join(" ");
    const write = number => amount(Number(number), found.unit);
    if (found.value === undefined) return `${write(found.used)}, unlimited`;
    const more = found.unknown === undefined ? "" : "+?";  // unknown for some responses
    return `${write(found.used).replace(` ${found.unit}`, "")}${more} of ${write(found.value)}`;
  }

  function amount(number, unit) {
    if (unit === "nanoseconds") return R.seconds(number);
    return unit === "nano_usd" ? `$${(number / 1e9).toFixed(4)}` : `${R.count(number)} ${unit}`;
  }

  const tone = said => (said === "allowed" || said === "unlimited" ? "dim" : said.startsWith("blind") ? "bad" : "loud");

  R.WhyTab = ({ model, event }) => {
    const finding = model.findings.get(event.seq);
    const opinions = model.opinionsOf(event.fact);
    const made = model.ofFact.get(event.fact) || [];
    const rules = model.rulesOf(event.fact).filter(([call]) => event.side === "fact" || !event.asked.length || event.asked.includes(call));
    if (event.side === "note") return html`<p class="dim">An annotation: it causes no decisions.</p>`;
    const row = opinion => {
      const at = event.fact + 1 + opinion.before;
      const here = at === event.seq ? "here" : "";
      return html`<tr class=${here}><td>${model.event(at)?.side === "decision" ? html`<${R.Link} seq=${at} />` : "end"}</td><td>${opinion.place}</td>
        <td>${R.line(opinion.who, 60)}</td><td class=${tone(opinion.said)}>${R.line(opinion.said, 120)}</td><td>${R.line(saw(opinion), 200)}
        ${opinion.own && html`<details><summary class="dim">its memory</summary><pre class="text mono json">${R.pretty(opinion.own)}</pre></details>`}</td></tr>`;
    };
    return html`${finding && html`<${Finding} finding=${finding} />`}
      ${rules.length > 0 && html`<h4>rules</h4><ul class="rules">${rules.map(([call, said]) => html`<li><code>${R.line(call, 40)}</code> ${R.line(said, 600)}</li>`)}</ul>`}
      <p>${event.side === "decision" ? html`Follows from the fact <${R.Link} seq=${event.fact} />.` : "This fact caused:"}</p>
      <ol class="decisions">${made.map(seq => html`<li class=${seq === event.seq ? "here" : ""}><${R.Link} seq=${seq}>e${seq} ${R.line(model.event(seq).kind, 40)}<//>
        <span class="dim"> ${R.line(model.event(seq).said, 160)}</span></li>`)}</ol>
      ${!made.length && html`<p class="dim">no decision</p>`}
      <h4>what limits and guards evaluated, in order</h4>
      ${opinions.length ? html`<table class="fields opinions"><thead><tr><th>before</th><th>place</th><th>who</th><th>verdict</th><th>measured</th></tr></thead>
        <tbody>${opinions.map(row)}</tbody></table>` : html`<p class="dim">no limit or guard was evaluated</p>`}`;
  };
})((self.refold ||= {}));
