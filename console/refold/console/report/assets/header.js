// What the run was and how it stands: the part that is read first, and printed.
(R => {
  "use strict";

  const html = htm.bind(preact.h);
  const { useState } = preactHooks;
  const TASK = 360; // characters, and
  const LINES = 4;

  const GOOD = new Set(["COMPLETED"]);
  const OPEN = new Set(["RUNNING", "WAITING_FOR_TOOL", "WAITING_FOR_INPUT"]);

  function Task({ text }) {
    const [whole, setWhole] = useState(false);
    if (text === null) return html`<p class="task erased">the task was erased, or was never read</p>`;
    const short = text.trim().split("\n").slice(0, LINES).join("\n").slice(0, TASK);
    const cut = !whole && short.length < text.trim().length;
    return html`<p class="task">${R.block(cut ? short : text.trim())}
      ${short.length < text.trim().length && html` <button class="more" onClick=${() => setWhole(!whole)}>${cut ? "… all of it" : "less"}</button>`}</p>`;
  }

  function Figure({ name, value, note, tone = "" }) {
    return html`<div class="figure"><dt>${name}</dt><dd class=${tone}>${value}</dd>${note && html`<dd class="note">${note}</dd>`}</div>`;
  }

  // [tone, one word, a sentence] of the chain, as this page has checked it.
  function chainSaid(model, chain) {
    if (!chain.done) return ["", "checking", `${R.count(chain.checked)} of ${R.count(model.events.length)} events`];
    if (chain.first) {
      const others = chain.broken.size > 1 ? `, and ${chain.broken.size - 1} more` : "";
      return ["bad", "broken", `at event ${chain.first}: ${chain.broken.get(chain.first)}${others}; nothing behind it is believed`];
    }
    const { problem, unjudged, hash } = model.checked;
    if (problem) return [unjudged ? "warn" : "bad", unjudged ? "cannot be judged" : "damaged", `at event ${problem.seq} (${problem.kind}): ${problem.problem}`];
    if (chain.head !== hash)
      return ["bad", "broken", `its head is ${chain.head.slice(0, 16)}…, and was ${hash.slice(0, 16)}… when the page was made: events are missing at its end`];
    return ["good", "whole", `${R.count(chain.checked)} hashes checked in this page; head ${chain.head.slice(0, 16)}…`];
  }

  function auditSaid({ about, judged, refused }) {
    const { differences, damaged, unjudged, unasked, decisions } = judged;
    if (damaged) return ["bad", "not to its end", damaged];
    if (refused) return ["warn", "cannot be judged", refused];
    const first = judged.findings[0];
    if (differences) return ["bad", `differs ${R.count(differences)}×`, `first at event ${first.seq}: ${first.kind} is ${first.difference}`];
    if (unjudged) return ["warn", "not whole", `${R.count(unjudged)} groups could not be derived again: ${judged.blind.join("; ")}`];
    if (unasked) return ["warn", "not whole", `after ${R.count(unasked)} facts a guard could not be asked: ${judged.blind.join("; ")}`];
    if (about.damaged) return ["warn", "agrees so far", `${R.count(decisions)} decisions derived again, up to where the log can be followed`];
    return ["good", "agrees", `${R.count(decisions)} decisions derived again, rules version ${judged.rules}`];
  }

  function notes(model) {
    const { about, checked, imported } = model;
    const said = [];
    if (about.damaged) said.push(["bad", `The log could be followed only so far: ${about.damaged}. What stands behind is shown as it is stored.`]);
    if (model.partial) said.push(["", `The log goes on: this report shows it up to event ${model.events.length}.`]);
    if (imported) said.push(["", `Imported from a transcript (${imported.format}, sha256 ${imported.source}): the decisions were derived, not recorded then.`]);
    if (model.figures.unmarked) said.push(["warn", model.figures.unmarked]);
    if (checked.erased) said.push(["", `${R.count(checked.erased)} events had their content erased: their words are gone, their place in the chain is not.`]);
    if (checked.unweighed) said.push(["warn", `The sizes of ${R.count(checked.unweighed)} events were not checked: ${checked.unweighable}`]);
    if (about.parent) said.push(["", `Started by run ${about.parent.run}, call ${about.parent.call}.`]);
    for (const { run, call, task, agent_state, source_end, damaged } of model.children) {
      const ended = damaged ? "cannot be read whole" : source_end || agent_state;
      said.push(["", `Started run ${run}, by ${call ? `call ${call}` : "a call that is not known"}: ${ended}. ${task ?? "(erased)"}`]);
    }
    return said;
  }

  const share = (part, whole) => (whole ? `${Math.round((100 * part) / whole)} % from the cache` : "");

  R.Header = ({ model, chain }) => {
    const { about, figures } = model;
    const { input = 0, output = 0, cache_read = 0 } = about.usage;
    const started = model.events.length ? model.events[0].at : "0";
    const outcome = (about.source_end ? about.source_end === "finished" : GOOD.has(about.agent_state)) ? "good"
      : OPEN.has(about.agent_state) ? "warn" : "bad";
    const labels = Object.entries(about.labels).map(([name, value]) => `${name}=${value}`);
    const [chainTone, chainWord, chainNote] = chainSaid(model, chain);
    const [auditTone, auditWord, auditNote] = auditSaid(model);
    const unproved = model.checked.cannot_prove;
    return html`<header class="top" data-chain=${chainWord} data-audit=${auditWord}>
      <div class="name"><span class=${`state ${outcome}`}>${about.source_end ? R.line(about.source_end, 60) : about.agent_state}</span>
        <h1>run ${R.line(about.run, 120)}</h1>
        ${labels.map(label => html`<span class="label">${R.line(label, 80)}</span>`)}</div>
      <${Task} text=${about.task} />
      ${about.source_end && html`<p class="ending">${R.line(about.source_says, 300)} <small class="dim">derived: ${about.agent_state}</small></p>`}
      ${about.code && html`<p class="ending">${R.line(about.reason || "")} <code>${R.line(about.code)}</code>${figures.limit && html` · ${R.line(figures.limit)}`}</p>`}
      <dl class="figures">
        <${Figure} name="chain" value=${chainWord} tone=${chainTone} note=${R.line(chainNote, 300)} />
        <${Figure} name="audit" value=${auditWord} tone=${auditTone} note=${R.line(auditNote, 300)} />
        <${Figure} name="turns" value=${R.count(about.steps)} note=${`${R.count(model.events.length)} events`} />
        <${Figure} name="tokens" value=${input || output ? R.count(input + output) : "-"}
          note=${!input && !output ? "not counted" : `${R.count(input)} in, ${R.count(output)} out${cache_read ? `, ${share(cache_read, input)}` : ""}`} />
        <${Figure} name="cost" value=${figures.cost} />
        <${Figure} name="time" value=${figures.duration} note=${Number(started) ? R.clock(started) : "no times were recorded"} />
        <${Figure} name="model" value=${R.line(about.model, 60) || "-"} />
      </dl>
      ${notes(model).map(([tone, text]) => html`<p class=${`remark ${tone}`}>${R.line(text, 1000)}</p>`)}
      <details class="unproved"><summary>what this cannot prove</summary><ul>
        ${unproved.map(text => html`<li>${text}</li>`)}
        <li>that this page was made by refold: hold its head hash against <code>refold verify</code>, or against a seal</li>
        <li>that nobody edited what stands beside the events (their lines in the list, states, views, guards, the audit): no
          hash covers what is derived; <code>refold report</code> derives it again</li></ul></details>
    </header>`;
  };
})((self.refold ||= {}));
