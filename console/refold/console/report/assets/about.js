// Details of a run that are not in the header: the whole task, its source, hashes, labels, and what the page cannot prove.
(R => {
  "use strict";

  const html = htm.bind(preact.h);

  // Remarks on the run besides its numbers: [tone, a sentence].
  function remarks(model) {
    const { about, checked, imported } = model;
    const said = [];
    if (model.partial) said.push(["warn", `The log continues: this report ends at event ${model.events.length}.`]);
    if (imported) said.push(["", `Imported from a transcript (${imported.format}, sha256 ${imported.source}): decisions were derived at import, not made by a live agent.`]);
    if (model.figures.unmarked) said.push(["warn", model.figures.unmarked]);
    if (checked.erased) said.push(["", `${R.count(checked.erased)} events had their payload erased; their place in the chain is kept.`]);
    if (checked.unweighed) said.push(["warn", `The sizes of ${R.count(checked.unweighed)} events were not checked: ${checked.unweighable}`]);
    return said;
  }

  // Return the address of another run's page, "" if none was written beside this one.
  R.pageOf = (model, run) => (Object.hasOwn(model.pages, run) ? encodeURIComponent(model.pages[run]) : "");

  // A run's name, linked to its page if there is one.
  R.Other = ({ model, run }) => {
    const page = R.pageOf(model, run);
    return page ? html`<a class="link" href=${page}>run ${R.line(run, 120)}</a>` : html`run ${R.line(run, 120)}`;
  };

  // The parent of this run, and its child runs.
  function Kin({ model }) {
    const { parent, forked_from, forked_at } = model.about;
    const child = ({ run, call, branch, task, agent_state, source_end, damaged }) => html`<p class="remark kin">${branch ? "Had" : "Started"} <${R.Other} model=${model} run=${run} />,
      ${branch ? "a branch that a user left by going back" : `by ${call ? `call ${call}` : "an unknown call"}`}: ${R.line(damaged ? "not fully readable" : source_end || agent_state, 60)}. ${R.line(task ?? "(erased)", 300)}</p>`;
    return html`${parent && html`<p class="remark kin">Started by <${R.Other} model=${model} run=${parent.run} />, call ${R.line(parent.call, 80)}.</p>`}
      ${forked_from && html`<p class="remark kin">Forked from event ${forked_at} of <${R.Other} model=${model} run=${forked_from} />.</p>`}
      ${model.children.map(child)}`;
  }

  function pairs(model, chain, audit) {
    const { about, figures } = model;
    const told = [["run", about.run], ["ended", R.ending(model)], ["derived", about.source_end ? about.agent_state : ""], ["code", about.code], ["limit", figures.limit],
      ["model", about.model], ...figures.who,
      ["events", R.count(model.events.length)], ["chain", `${chain[1]}: ${chain[2]}`], ["audit", `${audit[1]}: ${audit[2]}`]];
    return [...told, ...Object.entries(about.labels)].filter(([, value]) => value);
  }

  R.About = ({ model, chain, audit }) => {
    const { about, checked } = model;
    return html`<div class="about">
      ${remarks(model).map(([tone, text]) => html`<p class=${`remark ${tone}`}>${R.line(text, 1000)}</p>`)}
      <${Kin} model=${model} />
      ${about.task && html`<h4>task</h4><${R.Prose} text=${about.task.trim()} />`}
      <table class="fields"><tbody>${pairs(model, chain, audit).map(([name, value]) => html`<tr><th>${R.line(name, 60)}</th><td>${R.line(String(value), 1000)}${name === "run" && html` <${R.Copy} text=${value} />`}</td></tr>`)}</tbody></table>
      <div class="unproved"><h4>what this cannot prove</h4><ul>
        ${checked.cannot_prove.map(text => html`<li>${text}</li>`)}
        <li>that this page was written by refold, and that its digests were not recomputed after an edit: compare its head hash with
          <code>refold verify</code>, a bundle or a signed checkpoint</li>
        <li>derived data (rows in the list, states, prompts, guards, the audit): <code>refold report</code> derives it again</li></ul></div></div>`;
  };
})((self.refold ||= {}));
