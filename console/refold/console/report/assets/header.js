// The run and its state in two lines, the rest collapsed. A red bar above reports damage.
(R => {
  "use strict";

  const html = htm.bind(preact.h);
  const { useState } = preactHooks;

  // How the run ended: [tone, words]. An end that only the source reports is not marked as good.
  function outcome({ about, figures }) {
    if (about.source_end) {
      const tone = /^(error|limit|cancelled|guardrail)/.test(about.source_end) ? "bad" : about.source_end === "finished" ? "" : "warn";
      return [tone, about.source_end];
    }
    return [figures.tone, about.agent_state];
  }

  // The chain as checked by this page: [tone, one word, a sentence].
  function chainSaid(model, chain) {
    if (!chain.done) return ["", "checking", `${R.count(chain.checked)} of ${R.count(model.events.length)} events`];
    if (chain.first) {
      const others = chain.broken.size > 1 ? `, and ${chain.broken.size - 1} more` : "";
      return ["bad", "broken", `at event ${chain.first}: ${chain.broken.get(chain.first)}${others}; later events are not trusted`];
    }
    if (chain.edited.length) return ["bad", "edited", "the page was changed after it was written: nothing in it is trusted"];
    const { problem, unjudged, hash } = model.checked;
    if (problem) return [unjudged ? "warn" : "bad", unjudged ? "inconclusive" : "damaged", `at event ${problem.seq} (${problem.kind}): ${problem.problem}`];
    if (chain.head !== hash)
      return ["bad", "broken", `its head is ${chain.head.slice(0, 16)}…, but was ${hash.slice(0, 16)}… when the page was written: events are missing at its end`];
    return ["good", "intact", `${R.count(chain.checked)} hashes checked in this page; head ${chain.head}`];
  }

  function auditSaid({ about, checked, judged, refused, imported }) {
    const { differences, damaged, unjudged, unasked, decisions } = judged;
    const again = `${R.count(decisions)} decisions derived again`;
    if (damaged) return ["bad", `stopped at e${checked.events}`, damaged];
    if (refused) return ["warn", "inconclusive", refused];
    const first = judged.findings[0];
    if (differences) return ["bad", `differs ${R.count(differences)}×`, `first at event ${first.seq}: ${first.kind} is ${first.difference}`];
    if (unjudged) return ["warn", "incomplete", `${R.count(unjudged)} groups could not be derived again: ${judged.blind.join("; ")}`];
    if (unasked) return ["warn", "incomplete", `after ${R.count(unasked)} facts a guard could not be evaluated: ${judged.blind.join("; ")}`];
    if (checked.problem && !checked.unjudged) return ["warn", "agrees, in a damaged log", `${again}; the log is damaged at event ${checked.problem.seq}`];
    if (about.damaged) return ["warn", "agrees so far", `${again}, up to the damage`];
    if (imported) return ["", "derived at import", `${again}: decisions were derived at import, not made by a live agent`];
    return ["good", "agrees", `${again}, rules version ${judged.rules}`];
  }

  // Known problems of the page or the log, one sentence each.
  function alarms(model, edited, [tone, word, note]) {
    const { about, judged } = model;
    const said = edited.length ? [`${R.editedSaid(edited)}.`] : [];
    if (tone === "bad" && word !== "edited") said.push(`${edited.length ? "Its chain is broken" : "The log is damaged"} ${note}.`);
    if (about.damaged) said.push(`The log could not be read to its end: ${about.damaged}. Later events are shown as stored.`);
    if (judged.differences) said.push("Decisions in the log do not follow from its rules: see audit.");
    return said;
  }

  const Chip = ({ name, value, tone = "", title }) =>
    html`<span class=${`chip ${tone} ${name}`} title=${title}><span class="dim">${name}</span> ${value}</span>`;

  function Chips({ model, chain, audit }) {
    const { about, figures } = model;
    const { input = 0, output = 0, cache_read = 0 } = about.usage;
    const tokens = input || output ? `${R.count(input + output)}${about.uncounted ? "+?" : ""}` : "unknown";
    const parts = `${R.count(input)} in${cache_read ? `, of them ${Math.round((100 * cache_read) / input)} % from the cache` : ""}, ${R.count(output)} out`;
    return html`<${Chip} name="tokens" value=${tokens} title=${parts} /><${Chip} name="cost" value=${figures.cost} />
      <${Chip} name="time" value=${figures.duration === "-" ? "unknown" : figures.duration} />
      <${Chip} name="chain" value=${chain[1]} tone=${chain[0]} title=${R.plain(chain[2])} />
      <${Chip} name="audit" value=${audit[1]} tone=${audit[0]} title=${R.plain(audit[2])} />`;
  }

  const TOLD = ["when", "cwd", "branch", "user", "host", "permission mode"]; // in the header; the rest is collapsed

  // Who and when, and which of these values are not recorded.
  function Who({ who }) {
    const shown = who.filter(([name]) => TOLD.includes(name) || name === "not recorded");
    return html`<div class="who">${shown.map(([name, value]) => html`<span class=${`about-${name.replaceAll(" ", "-")}`} title=${R.plain(value)}>
      ${name !== "when" && html`<span class="dim">${name}</span> `}<b>${R.line(value, 200)}</b></span>`)}</div>`;
  }

  const SHOWN = 6; // changes that are listed; harmful changes are never collapsed

  // What was changed, each with a link to its first event. Files written by redirection are one group; the rest is collapsed.
  function Made({ made, harmful }) {
    const [open, setOpen] = useState(false);
    const change = ([what, number, seq], place) => html`${place ? ", " : ""}<${R.Link} seq=${seq}>${R.count(number)} ${R.line(what, 40)}<//>`;
    if (open) return html`${made.map(change)} <button class="fewer" onClick=${() => setOpen(false)}>fewer</button>`;
    const verbs = made.filter(([what]) => !what.startsWith("> "));
    const files = made.filter(([what]) => what.startsWith("> "));
    const shown = Math.max(SHOWN, harmful + 2);
    const rest = verbs.slice(shown).reduce((sum, [, number]) => sum + number, 0);
    const unfold = words => html`<button class="more" onClick=${() => setOpen(true)}>${words}</button>`;
    return html`${verbs.slice(0, shown).map(change)}${files.length ? html`${verbs.length ? ", " : ""}${
      unfold(`${R.count(files.length)} ${files.length === 1 ? "file" : "files"} written by redirection`)}` : ""}${rest ? html`, ${unfold(`${R.count(rest)} more`)}` : ""}`;
  }

  // How the run ended, what went wrong, and what its calls changed, each with a link to its first event.
  function Outcome({ model, said }) {
    const { made, harmful, failed, doubtful, unknown, calls } = model.figures.changes;
    const { damaged } = model.about;
    const errors = R.marked(model, "errors");
    const first = errors[0];
    return html`<div class="outcome"><span class="ending">${model.end ? html`<${R.Link} seq=${model.end} /> ` : ""}${R.line(said, 300)}</span>
      <span class="went-wrong">${first ? html`<${R.Link} seq=${first.seq}>${R.count(errors.length)} ${errors.length === 1 ? "error" : "errors"}<//>` : "0 errors"}${model.figures.unmarked && "+?"}</span>
      <span class="changed"><span class="dim">changed</span> <${Made} made=${made} harmful=${harmful} />${failed ? ` (${R.count(failed)} failed)` : ""}${made.length && doubtful ? "; " : ""}${
        doubtful ? html`<span title="calls that would change something, but were cancelled or have no result">${R.count(doubtful)} ${doubtful === 1 ? "call" : "calls"} not known to have run</span>` : ""}${(made.length || doubtful) && unknown ? "; " : ""}${
        unknown ? html`<span title="their tools or commands are unknown">${R.count(unknown)} ${unknown === 1 ? "call" : "calls"} unknown</span>` : ""}${!made.length && !doubtful && !unknown && !damaged ? (calls ? "nothing" : "nothing: no calls") : ""}${
        damaged ? `${made.length || doubtful || unknown ? "; " : ""}unknown after the damage` : ""}</span></div>`;
  }

  const UNKNOWN = ["unread", "gap"];

  // The first destructive call, and the numbers of changes by kind, each with a link to its first event. What is not known is listed as such;
  // if nothing else is there, the line above has it.
  function Touched({ touched }) {
    const { counts, first } = touched;
    if (!counts.some(({ kind }) => kind !== "unread")) return null;
    const count = ({ kind, text, seq }, place) => html`${place ? ", " : ""}<${R.Link} seq=${seq}><span class=${UNKNOWN.includes(kind) ? "unknown" : kind}>${R.line(text, 40)}</span><//>`;
    return html`<div class="who touched">${first && html`<span class="first-destructive"><span class="dim">first destructive call</span> <${R.Link} seq=${first.seq}>${R.line(first.command || `${first.tool} ${first.target}`, 120)}<//></span>`}
      <span class="kinds"><span class="dim">touched</span> ${counts.map(count)}</span></div>`;
  }

  R.Header = ({ model, chain }) => {
    const [whole, setWhole] = useState(false);
    const { about, figures } = model;
    const [tone, state] = outcome(model);
    const [verdict, audit] = [chainSaid(model, chain), auditSaid(model)];
    const wrong = alarms(model, chain.edited, verdict);
    // No green before the chain is checked, and none if anything is wrong.
    document.documentElement.dataset.trust = wrong.length ? "damaged" : chain.done ? "whole" : "checking";
    const task = about.task === null ? html`<span class="dim">(the task was erased, or is not readable)</span>`
      : R.line(about.task.trim().replace(/\s+/g, " ") || "(no task)", 300);
    return html`<header class=${whole ? "top whole" : "top"} data-chain=${verdict[1]} data-audit=${audit[1]}>
      ${wrong.map(text => html`<p class="alarm" role="alert">${R.line(text, 1000)}</p>`)}
      <div class="first"><span class=${`state ${tone}`}>${R.line(state, 60)}</span><h1 class="task">${task}</h1>
        ${model.children.length > 0 && html`<button class="children" onClick=${() => setWhole(true)}>${R.count(model.children.length)} child ${model.children.length === 1 ? "run" : "runs"}</button>`}
        <span class="run" title=${R.plain(about.run)}>${R.line(about.run, 120)}</span></div>
      <${Who} who=${figures.who} />
      <${Outcome} model=${model} said=${R.ending(model)} />
      <${Touched} touched=${figures.touched} />
      <div class="second"><span class="did" title=${R.plain(figures.did)}>${R.line(figures.did, 400)}</span>
        <${Chips} model=${model} chain=${verdict} audit=${audit} />
        <button class="details" aria-expanded=${whole ? "true" : "false"} onClick=${() => setWhole(!whole)}>${whole ? "less" : "details"}</button></div>
      <${R.About} model=${model} chain=${verdict} audit=${audit} />
    </header>`;
  };
})((self.refold ||= {}));
