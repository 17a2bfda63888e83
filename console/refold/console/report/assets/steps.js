// Buttons that step through errors, verdicts of guards and limits, and compactions, with the number of each.
(R => {
  "use strict";

  const html = htm.bind(preact.h);
  const KINDS = { errors: ["error", "damage"], changes: [], guards: ["guard"], history: ["prune"] };
  const KEYS = { errors: "e", changes: "c", guards: "x", history: "h" };

  // The events with a mark, in order.
  R.marked = (model, kind) => model.events.filter(event => KINDS[kind].includes(event.tag) || (kind === "errors" && model.chain.broken.has(event.seq))
    || (kind === "changes" && R.changes(model.callOf.get(event.seq))));

  const NEVER_RAN = ["refused", "waiting", "bad_arguments", "unknown_tool"]; // as refold.replay.timeline has it

  const PERHAPS_RAN = ["open", "doubted", "unknown", "not_recorded", "cancelled", "in_doubt"];

  // Whether a call changed something, judged by its tool and command.
  R.changes = call => call?.effect?.kind === "changes" && ![...NEVER_RAN, ...PERHAPS_RAN].includes(call.result);

  // The next or previous one of some events; undefined at the end.
  R.stepped = (events, seq, by) => (by > 0 ? events.find(event => event.seq > seq) : events.findLast(event => event.seq < seq));

  // Why there may be more of a kind; "" if nothing is unknown.
  const untold = ({ figures }) => ({
    errors: figures.unmarked,
    changes: [
      figures.changes.doubtful ? `${R.count(figures.changes.doubtful)} calls are not known to have run` : "",
      figures.changes.unknown ? `unknown whether ${R.count(figures.changes.unknown)} calls changed something: neither the tool nor its command is known` : "",
    ].filter(Boolean).join("; "),
  });

  R.Steps = ({ model, chain, selected, select }) => html`<span class="steps">${Object.keys(KINDS).map(kind => {
    const unknown = untold(model);
    const events = preactHooks.useMemo(() => R.marked(model, kind), [model, chain.done]);
    const go = by => {
      const found = R.stepped(events, selected, by);
      if (found) select(found.seq);
    };
    const button = (by, sign, key) => html`<button title=${`${by > 0 ? "next" : "previous"} (${key})`} aria-label=${`${by > 0 ? "next" : "previous"} of ${kind}`}
      disabled=${!R.stepped(events, selected, by)} onClick=${() => go(by)}>${sign}</button>`;
    return html`<span class=${`step ${kind} ${events.length ? "" : "none-of"}`}>${button(-1, "‹", KEYS[kind].toUpperCase())}
      <span class="many" title=${unknown[kind] ?? ""}>${kind} ${R.count(events.length)}${unknown[kind] ? "+?" : ""}</span>${button(1, "›", KEYS[kind])}</span>`;
  })}</span>`;
})((self.refold ||= {}));
