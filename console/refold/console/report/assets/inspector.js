// One event in tabs: payload, state after it, prompt, decisions, and stored bytes.
(R => {
  "use strict";

  const { useEffect } = preactHooks;
  const html = htm.bind(preact.h);

  R.Link = ({ seq, children }) => html`<a class="link" href=${`#e${seq}`}>${children ?? `e${seq}`}</a>`;

  function related(model, event) {
    const groups = [];
    const add = (name, seqs) => {
      const others = [...new Set(seqs)].filter(seq => seq !== event.seq && model.event(seq)).sort((a, b) => a - b);
      if (others.length) groups.push([name, others]);
    };
    if (event.side === "decision") add("follows from", [event.fact]);
    if (event.side === "fact") add("caused", model.ofFact.get(event.seq) || []);
    const request = (event.fields.fact || event.fields).request;
    if (typeof request === "number") add("answers", [request]);
    if (event.kind === "model_requested") add("answered by", model.answers.get(event.seq) || []);
    if (typeof event.fields.seq === "number") add("is about", [event.fields.seq]);
    for (const call of event.asked) add(`call ${call}`, model.ofCall.get(call) || []);
    return groups;
  }

  function Related({ model, event }) {
    const groups = related(model, event);
    if (!groups.length) return null;
    return html`<div class="related">${groups.map(([name, seqs]) => html`<div><span class="dim">${R.line(name, 80)}</span>
      ${seqs.slice(0, 40).map(seq => html`<${R.Link} seq=${seq}>e${seq} <span class="dim">${R.line(model.event(seq).kind, 40)}</span><//>`)}</div>`)}</div>`;
  }

  // The payload as text, without JSON escapes.
  function Said({ event }) {
    const { digest, content, words } = event.stored;
    if (event.erased) return html`<p class="remark">The payload was erased. Its digest: <code>${digest}</code></p>`;
    if (content === null) return null;
    if (words === null || typeof words !== "object") return html`<p class="remark bad">The payload is not JSON; see raw.</p>`;
    if (Array.isArray(words.messages)) return words.messages.map((message, place) => html`<${R.Message} key=${place} message=${plainMessage(message)} open=${true} />`);
    if (event.kind === "model_responded" || event.fields.fact?.kind === "model_responded") return html`<${R.Message} message=${answer(event, words)} open=${true} />`;
    return Object.entries(words).filter(([, value]) => value !== "").map(([name, value]) => name === "text" && typeof value === "string"
      ? html`<${R.Prose} text=${value} />` : html`<${R.Field} name=${name} value=${value} />`);
  }

  const plainMessage = message => ({ text: "", reasoning: "", ...message, calls: message.calls || [] });

  function answer(event, words) {
    const calls = ((event.fields.fact || event.fields).calls || []).map((call, place) => ({ id: call.id, name: call.name, arguments: words.arguments?.[place] ?? "" }));
    return { role: "assistant", text: words.text ?? "", reasoning: words.reasoning ?? "", calls };
  }

  // The call that an event ends: its tool, and the arguments as the model wrote them.
  function Asked({ model, event }) {
    const call = model.callOf.get(event.seq);
    if (!call) return null;
    const answer = model.event(model.turnOfCall.get(event.seq).answer);
    const place = ((answer?.fields.fact || answer?.fields)?.calls || []).findIndex(each => each.id === call.id);
    const text = answer?.words?.arguments?.[place];
    return html`<div class="asked"><b class="tool">${R.line(call.name, 80)}</b> <${R.Mark} call=${call} doubted=${R.doubted(model.chain, event) !== ""} />
      ${model.children.filter(child => child.call === call.id).map(child => html`<p class="remark">started <${R.Other} model=${model} run=${child.run} /></p>`)}
      ${typeof text === "string" ? html`<${R.Arguments} text=${text} />` : html`<p class="dim">what it was called with was erased</p>`}</div>`;
  }

  function EventTab({ model, event }) {
    const chain = model.chain;
    const broken = chain.broken.get(event.seq);
    return html`
      ${event.damage && html`<p class="remark bad">${R.line(event.damage, 1000)}</p>`}
      ${broken && html`<p class="remark bad">Tampered with: ${broken}.</p>`}
      ${!broken && chain.first && event.seq > chain.first ? html`<p class="remark bad">Behind event ${chain.first}, which was tampered with: not to be believed.</p>` : null}
      ${event.seq === model.end && html`<${R.Summary} model=${model} />`}
      <${Asked} model=${model} event=${event} />
      <${Related} model=${model} event=${event} />
      <${Said} event=${event} />
      <h4>fields</h4>
      <table class="fields"><tbody>${Object.entries(event.fields).map(([name, value]) => html`<tr><th>${R.line(name, 60)}</th>
        <td>${name === "at" ? html`<code>${R.clock(event.at)}</code> <span class="dim">${event.at} ns</span>` : typeof value === "object" ? html`<pre class="json">${R.pretty(JSON.stringify(value))}</pre>` : html`<code>${R.line(String(value), 600)}</code>`}</td></tr>`)}</tbody></table>`;
  }

  function RawTab({ model, event }) {
    const before = model.events[event.place - 1];
    const { body, content, salt, hash, digest } = event.stored;
    const rows = [["run", event.run || model.about.run], ["seq", String(event.seq)], ["at", `${event.at} ns, ${R.clock(event.at)}`],
      ["kind", event.kind], ["previous hash", before ? before.stored.hash : "0".repeat(64)], ["hash", hash],
      ["content digest", digest ?? "none: it never had a payload"], ["salt", salt || "none"]];
    const written = (name, data) => html`<h4>${name}</h4>${typeof data === "string" ? html`<pre class="text mono json">${R.pretty(data)}</pre>`
      : html`<p class="remark bad">no UTF-8; base64:</p><${R.Text} text=${data.base64} />`}`;
    return html`<table class="fields"><tbody>${rows.map(([name, value]) => html`<tr><th>${name}</th><td><code>${R.line(value)}</code></td></tr>`)}</tbody></table>
      ${written("body", body)}
      ${content !== null ? written("content", content) : event.erased && html`<p class="remark">the content was erased</p>`}`;
  }

  R.TABS = [
    ["event", "event", EventTab],
    ["state", "state", props => html`<${R.StateTab} ...${props} />`],
    ["seen", "what the model saw", props => html`<${R.SeenTab} ...${props} />`],
    ["why", "why", props => html`<${R.WhyTab} ...${props} />`],
    ["raw", "raw", RawTab],
  ];

  R.Inspector = ({ model, event, tab, setTab, hidden, sheet, close }) => {
    const [, , Tab] = R.TABS.find(([name]) => name === tab);
    useEffect(() => { document.querySelector(".inspector .body")?.scrollTo(0, 0); }, [event?.seq, tab]);
    if (!event) return html`<section class="inspector"><p class="none">no event</p></section>`;
    return html`<section class=${sheet ? "inspector up" : "inspector"} aria-label="event">
      <div class="heading"><h2>e${event.seq} <span>${R.line(event.kind, 60)}</span></h2>
        <span class="dim">${event.turn ? `turn ${event.turn} · ` : ""}${{ note: "annotation", "?": "unread" }[event.side] || event.side} · ${R.elapsed(event)} after the start</span>
        <${R.Copy} text=${`${model.about.run}@e${event.seq}`} title="copy the address of the event" />
        ${hidden && html`<span class="badge">not in the list as it is filtered</span>`}
        <button class="close" aria-label="close" onClick=${close}>×</button></div>
      <nav class="tabs" role="tablist">${R.TABS.map(([name, title]) => html`<button role="tab" data-tab=${name}
        aria-selected=${name === tab ? "true" : "false"} class=${name === tab ? "on" : ""} onClick=${() => setTab(name)}>${title}</button>`)}</nav>
      <div class="body" tabindex="-1"><${Tab} key=${`${tab}${event.seq}`} model=${model} event=${event} /></div>
    </section>`;
  };
})((self.refold ||= {}));
