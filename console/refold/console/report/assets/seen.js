// The prompt of a call, and its difference from another prompt.
(R => {
  "use strict";

  const { useMemo, useState } = preactHooks;
  const html = htm.bind(preact.h);
  const SHORT = 1200; // characters of a message that is displayed open
  const PAGE = 60; // messages at once

  // One message. `sign`: + added, - removed, ~ changed; "" for none of these.
  R.Message = ({ message, sign = "", open = false, was = null }) => {
    const [opened, setOpened] = useState(open);
    const { role, number, seq, tokens, cut, cause, text, reasoning, calls } = message;
    const erased = role === "";
    const head = html`<div class="mhead" onClick=${() => setOpened(!opened)}>
      <span class="sign">${sign}</span><b class=${`role ${role}`}>${role || "erased"}</b>
      ${message.name && html`<i>${R.line(message.name, 60)}</i>`}
      ${number ? html`<span class="dim">message ${number}</span>` : number === 0 && html`<span class="dim">in this request only</span>`}
      ${seq && html`<${R.Link} seq=${seq} />`}
      ${tokens !== undefined && html`<span class="dim">≈ ${R.count(tokens)} tokens</span>`}
      ${cut && html`<span class="badge prune">shortened</span>`}
      ${cause && html`<span class="badge">${R.line(cause, 60)}</span>`}
      ${!opened && html`<span class="first">${R.line((text || calls.map(call => `${call.name} ${call.arguments}`).join("; ")).slice(0, 300), 160)}</span>`}</div>`;
    if (!opened) return html`<article class=${`message ${kindOf(sign)}`}>${head}</article>`;
    return html`<article class=${`message ${kindOf(sign)}`}>${head}
      ${erased && html`<p class="dim">its payload was erased</p>`}
      ${reasoning && html`<div class="reasoning"><${R.Prose} text=${reasoning} most=${SHORT} /></div>`}
      ${text && html`<${role === "tool" ? R.Text : R.Prose} text=${text} most=${SHORT} />`}
      ${calls.map(call => html`<div class="call"><b>${R.line(call.name, 80)}</b> <span class="dim">${R.line(call.id, 40)}</span><${R.Arguments} text=${call.arguments} /></div>`)}
      ${was && html`<details><summary class="dim">as in the previous prompt</summary><${R.Text} text=${was.text} most=${SHORT} /></details>`}</article>`;
  };

  const kindOf = sign => ({ "+": "came", "-": "went", "~": "changed" })[sign] || "";

  // The rows of a comparison: {sign, place, was}; unchanged messages in a row are one row {same: [places]}.
  function compared(model, old, now) {
    const [was, is] = [new Set(old), new Set(now)];
    const numbers = new Map(old.map(place => [model.seen(place).number, place]));
    const still = new Set(now.map(place => model.seen(place).number));
    const rows = [];
    const push = row => {
      const last = rows[rows.length - 1];
      if (row.same && last?.same) last.same.push(row.same[0]);
      else rows.push(row);
    };
    let from = 0;
    const gone = upto => {
      for (; from < upto; from++) {
        const { number } = model.seen(old[from]);
        if (!is.has(old[from]) && !(number && still.has(number))) push({ sign: "-", place: old[from] });
      }
    };
    for (const place of now) {
      const { number } = model.seen(place);
      const before = was.has(place) ? place : number ? numbers.get(number) : undefined;
      if (before !== undefined) {
        const at = old.indexOf(before, from);
        gone(at < 0 ? from : at);
        from = Math.max(from, at + 1);
      }
      if (before === place) push({ same: [place] });
      else push(before === undefined ? { sign: "+", place } : { sign: "~", place, was: before });
    }
    gone(old.length);
    return rows;
  }

  function Same({ model, places }) {
    const [shown, setShown] = useState(0);
    return html`<div class="same"><button class="more" onClick=${() => setShown(shown ? 0 : PAGE)}>
        ${shown ? "▾" : "▸"} ${R.count(places.length)} ${places.length === 1 ? "message" : "messages"} in both</button>
      ${places.slice(0, shown).map(place => html`<${R.Message} key=${place} message=${model.message(place)} />`)}
      ${shown && shown < places.length ? html`<button class="more" onClick=${() => setShown(shown + PAGE)}>… ${R.count(places.length - shown)} more</button>` : null}</div>`;
  }

  function Whole({ model, places }) {
    const [shown, setShown] = useState(PAGE);
    return html`${places.slice(0, shown).map(place => html`<${R.Message} key=${place} message=${model.message(place)} open=${places.length < 12} />`)}
      ${shown < places.length && html`<button class="more" onClick=${() => setShown(shown + PAGE)}>… ${R.count(places.length - shown)} more</button>`}`;
  }

  function tools(call, other) {
    const [now, was] = [new Set(call.tools), new Set(other?.tools || call.tools)];
    const come = call.tools.filter(name => !was.has(name));
    const gone = [...was].filter(name => !now.has(name));
    return html`<p class="dim">offered: ${R.line(call.tools.join(", ") || "no recorded tools", 600)}
      ${come.length ? html` <b class="came">+ ${R.line(come.join(", "))}</b>` : null}${gone.length ? html` <b class="went">- ${R.line(gone.join(", "))}</b>` : null}</p>`;
  }

  R.SeenTab = ({ model, event }) => {
    const place = model.callBefore(event.seq);
    const [mode, setMode] = useState("changes");
    const [against, setAgainst] = useState(Math.max(0, place - 1));
    const rows = useMemo(() => place < 0 ? [] : compared(model, place && against !== place ? model.viewWithOnce(against) : [], model.viewWithOnce(place)), [place, against]);
    if (place < 0) return html`<p class="dim">No request was made up to here.</p>`;
    const call = model.calls[place];
    const other = place ? model.calls[against] : undefined;
    const now = model.viewWithOnce(place);
    const limit = R.limitOf(call);
    const estimate = model.event(call.seq).row.tokens || 0;
    const used = limit ? Math.min(100, (100 * estimate) / limit) : 0;
    const pick = e => {
      const found = model.calls.findIndex(each => each.step === Number(e.target.value));
      if (found >= 0) setAgainst(found);
    };
    return html`<p>turn ${call.step}${call.attempt > 1 ? `, attempt ${call.attempt}` : ""}, asked at <${R.Link} seq=${call.seq} />:
        <b> ${R.count(now.length)} messages, about ${R.count(estimate)} tokens</b>${limit ? ` of ${R.count(limit)}` : ""} for ${R.line(call.model, 60)}</p>
      ${limit ? html`<div class="meter"><div class=${used > 90 ? "full" : ""} style=${{ width: `${used}%` }}></div></div>` : null}
      <div class="choice"><button class=${mode === "changes" ? "on" : ""} onClick=${() => setMode("changes")}>changes</button>
        <button class=${mode === "whole" ? "on" : ""} onClick=${() => setMode("whole")}>all of it</button>
        ${mode === "changes" && place > 0 ? html`<label>against turn <input class="small" type="number" name="against" min="1" value=${other.step} onChange=${pick} /></label>
          <span class="dim">requested at <${R.Link} seq=${other.seq} /></span>` : null}</div>
      ${tools(call, other)}
      ${mode === "whole" ? html`<${Whole} model=${model} places=${now} />`
        : rows.map(row => row.same ? html`<${Same} key=${`s${row.same[0]}`} model=${model} places=${row.same} />`
          : html`<${R.Message} key=${`${row.sign}${row.place}`} sign=${row.sign} message=${model.message(row.place)} open=${row.sign !== "-"} was=${row.was === undefined ? null : model.message(row.was)} />`)}`;
  };
})((self.refold ||= {}));
