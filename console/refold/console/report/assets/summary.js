// The box above the event that ended the run: errors and changes, each with a link.
(R => {
  "use strict";

  const html = htm.bind(preact.h);
  const MOST = 12; // entries of each list

  const calledOf = (model, event) => {
    const call = model.callOf.get(event.seq);
    return call ? `${call.name}  ${call.argument ?? "(erased)"}${call.failed ? `: ${call.result}` : ""}` : event.said || event.damage;
  };

  function Listed({ title, model, events }) {
    if (!events.length) return null;
    const left = events.length - MOST;
    return html`<h4>${title}</h4><ul class="listed">${events.slice(-MOST).map(event => html`<li><${R.Link} seq=${event.seq} /> ${R.line(calledOf(model, event), 240)}</li>`)}</ul>
      ${left > 0 && html`<p class="dim">and ${R.count(left)} before</p>`}`;
  }

  // The model's last text, "" if there is none.
  function lastAnswer(model) {
    const turn = model.turns.findLast(each => each.text?.trim());
    return turn ? { text: turn.text.trim(), seq: turn.answer } : null;
  }

  // For the event that ended the run.
  R.Summary = ({ model }) => {
    const last = lastAnswer(model);
    return html`<section class="summary"><p class="remark">${R.line(R.ending(model), 1000)}</p>
      <${Listed} title="errors" model=${model} events=${R.marked(model, "errors")} />
      <${Listed} title="calls that changed something" model=${model} events=${R.marked(model, "changes")} />
      ${last && html`<h4>the last response, <${R.Link} seq=${last.seq} /></h4><${R.Prose} text=${last.text} />`}</section>`;
  };
})((self.refold ||= {}));
