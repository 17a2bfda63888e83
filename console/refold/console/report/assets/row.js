// A row of a list: a sign for its topic, what was done, how it ended; tokens, cost and time at the right.
(R => {
  "use strict";

  const html = htm.bind(preact.h);
  const SIGNS = {
    run: "▣", model: "◆", tool: "▸", person: "●", history: "✂", guard: "▲", limit: "▲", wait: "◷", state: "▣", note: "·",
  };
  const TAGS = { error: "error", guard: "guard", prune: "history", damage: "damaged" };
  const TAIL = 26; // characters at the end of an argument that are displayed in any width
  const SAID = 700; // characters of a message in the conversation

  const figure = (name, text, title) => html`<span class=${`figure ${name}`} title=${title}>${text === "-" ? "" : text}</span>`;

  // If space is short, long parts are cut first, and each keeps its verb.
  const VERB = /^\S+(?: [a-z][\w-]*)?(?: --?[\w-]+)?/; // with its first option; or the name of a field
  const LONGEST = 20; // characters of a verb
  const shrinking = part => {
    const least = Math.min(part.length, (VERB.exec(part)?.[0].length ?? 0) + 2, LONGEST);
    return { flexShrink: (part.length - least + 1) ** 2, minWidth: `${least}ch` };
  };

  // A text in one line that keeps its end in any width; of several commands or fields a part of each is displayed.
  function Elided({ text }) {
    const line = text.trim();
    const parts = R.parts(line);
    if (parts.length > 1)
      return html`<span class="said parts">${parts.map(([joint, part]) => html`<span class="joint">${R.line(joint)}</span><span class="part" style=${shrinking(part)}>${R.line(part)}</span>`)}</span>`;
    if (line.length < 2 * TAIL) return html`<span class="said">${R.line(line)}</span>`;
    return html`<span class="said elided"><span class="head">${R.line(line.slice(0, -TAIL))}</span><span class="tail">${R.line(line.slice(-TAIL))}</span></span>`;
  }

  // Whether an event is untrusted: "broken" itself, or "behind" a broken one, or on an edited page; else "".
  R.doubted = ({ broken, first, edited }, event) =>
    broken.has(event.seq) ? "broken" : edited.length || (first && event.seq > first) ? "behind" : "";

  // How a call ended: never "ok" if unknown, or if the record is not trusted.
  R.Mark = ({ call, doubted }) => {
    const tone = call.failed ? "bad" : call.failed === false && !doubted ? "fine" : call.result === "refused" ? "guard" : "open";
    const word = tone === "open" ? `? ${call.result.replaceAll("_", " ")}` : call.result;
    return html`<span class=${`mark ${tone}`}>${R.line(word, 40)}</span>`;
  };

  function Call({ row, doubted }) {
    const { call, event, turn } = row;
    const { tokens } = ENDED(row);
    return html`${turn && html`<${Number} turn=${turn} />`}<${Sign} event=${event} /><span class="tool">${R.line(call.name, 60)}</span>
      ${call.argument === null ? html`<span class="said dim">(erased)</span>` : html`<${Elided} text=${call.argument} />`}
      <${R.Mark} call=${call} doubted=${doubted} />${call.cut && html`<span class="badge">cut</span>`}
      ${turn ? html`<${TurnFigures} turn=${turn} />` : html`${figure("tokens", tokens === undefined ? "-" : `≈ ${R.count(tokens)}`, "estimate of what joins the context")}${figure("cost", "-")}
      ${figure("time", R.took(call.duration), "how long the call took")}`}`;
  }

  // The flat fields of how a call ended; none without a result.
  const ENDED = ({ call, event }) => (event?.seq === call.seq && event.kind === "tool_returned" ? event.row : {});

  function words(turn) {
    if (turn.text === null && turn.stop) return html`<span class="said dim">(erased)</span>`;
    if (turn.text?.trim()) return html`<span class="said">${R.line(turn.text.trim().replace(/\s+/g, " "))}</span>`;
    const names = [...new Set(turn.calls.map(call => call.name))].join(", ");
    const said = turn.stop ? (names ? `calls ${names}` : "(nothing)") : "(no answer)";
    return html`<span class="said dim">${R.line(said, 200)}</span>`;
  }

  const Number = ({ turn }) => html`<span class="number">${turn.purpose && turn.purpose !== "step" ? turn.purpose : turn.step}</span>`;

  function TurnFigures({ turn }) {
    const { usage = {} } = turn;
    const { input = 0, output = 0, cache_read = 0 } = usage;
    const counted = input || output;
    const title = counted ? `${R.count(input)} in (${R.count(cache_read)} cached), ${R.count(output)} out` : "not counted";
    return html`${figure("tokens", counted ? R.count(input + output) : "-", title)}${figure("cost", R.dollars(turn.cost_nanousd))}
      ${figure("time", R.took(turn.duration), "the whole turn")}`;
  }

  function Turn({ row }) {
    const { turn, event } = row;
    return html`<${Number} turn=${turn} />${words(turn)}
      ${turn.attempts > 1 && html`<span class="badge guard">${turn.attempts} attempts</span>`}
      ${event.tag && html`<span class=${`badge ${event.tag}`}>${TAGS[event.tag]}</span>`}
      <${TurnFigures} turn=${turn} />`;
  }

  const Sign = ({ event }) => html`<span class=${`sign of-${R.kinds[event?.kind]?.type || "damage"}`}>${SIGNS[R.kinds[event?.kind]?.type] || "!"}</span>`;

  function Event({ event }) {
    return html`<${Sign} event=${event} /><span class="kind">${R.line(event.kind.replaceAll("_", " "), 40)}</span>
      <span class="said">${R.line(event.said || event.damage, 300)}</span>
      ${event.tag && html`<span class=${`badge ${event.tag}`}>${TAGS[event.tag]}</span>`}
      ${event.erased && html`<span class="badge">erased</span>`}
      ${figure("time", R.elapsed(event), "since the run began")}`;
  }

  // A child run of the call above: its row links to its page, if there is one.
  function Child({ child }) {
    const { damaged, source_end, agent_state, code, task } = child;
    const ended = damaged ? "damaged" : source_end || (agent_state === "COMPLETED" || !code ? agent_state : `${agent_state} (${code})`);
    return html`<span class="sign">↳</span><span class="kind">child run</span><span class="said">${R.line((task ?? "(erased)").trim().replace(/\s+/g, " "))}</span>
      <span class=${`mark ${damaged ? "bad" : ""}`}>${R.line(ended, 60)}</span>${figure("tokens", "-")}${figure("cost", "-")}${figure("time", "-")}`;
  }

  const End = ({ model }) => html`<span class="number">end</span><span class="said">${R.line(R.ending(model))}</span>`;

  const Raw = ({ event: { kind, stored: { body } } }) => html`<span class="kind">${R.line(kind, 40)}</span>
    <code class="said">${R.line(typeof body === "string" ? body : `base64 ${body.base64}`)}</code>`;

  function Saying({ event }) {
    const texts = R.textsOf(event, event.fields, event.words).filter(text => text.trim());
    const names = (event.row.name || []).join(", ");
    return html`<span class="saying"><b>${R.line(R.kinds[event.kind]?.speaker || event.kind, 40)}${names && html` <i>${R.line(names, 80)}</i>`}</b>
      <span class="words">${event.erased ? "(erased)" : R.block(texts.join("\n").slice(0, SAID))}</span></span>`;
  }

  // An event with a hit: the text around it.
  function Found({ event, call, excerpt }) {
    const name = (event.row.name || []).join(", ") || call?.name || event.kind.replaceAll("_", " ");
    return html`<${Sign} event=${event} /><span class="tool">${R.line(name, 60)}</span><span class="said">${R.line(excerpt)}</span>
      ${figure("time", R.elapsed(event), "since the run began")}`;
  }

  function inside(row, mode, model, doubted) {
    const excerpt = row.sought?.length && ["turns", "all"].includes(mode) && R.excerpt(row.event, row.sought);
    if (excerpt) return html`<${Found} event=${row.event} call=${row.call} excerpt=${excerpt} />`;
    if (mode === "raw") return html`<${Raw} event=${row.event} />`;
    if (mode === "conversation") return html`<${Saying} event=${row.event} />`;
    if (row.form === "child") return html`<${Child} child=${row.child} />`;
    if (row.form === "call") return html`<${Call} row=${row} doubted=${doubted} />`;
    if (row.form === "turn") return html`<${Turn} row=${row} />`;
    return row.form === "end" ? html`<${End} model=${model} />` : html`<${Event} event=${row.event} />`;
  }

  R.Row = ({ model, row, mode, selected, chain, top, height }) => {
    const { event } = row;
    const state = R.doubted(chain, event);
    const classes = ["row", row.form, row.turn && row.form === "call" ? "opens" : "", event.side === "?" ? "damage" : event.side, event.tag, state, selected ? "selected" : ""];
    return html`<a class=${classes.join(" ")} href=${(row.form === "child" && R.pageOf(model, row.child.run)) || `#e${row.seq}`} data-seq=${row.seq} role="option"
        aria-selected=${selected ? "true" : "false"} tabindex="-1" style=${{ top: `${top}px`, height: `${height}px` }}>
      <span class="seq">e${row.seq}</span>
      ${inside(row, mode, model, state !== "")}
      ${state === "broken" && html`<span class="badge bad">tampered</span>`}
    </a>`;
  };
})((self.refold ||= {}));
