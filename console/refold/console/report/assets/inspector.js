// One event from all sides: what it says, the state after it, what the model saw, why it came so, and what was stored.
(R => {
  "use strict";

  const { useEffect, useState } = preactHooks;
  const html = htm.bind(preact.h);
  const MOST = 20000; // characters of a text that are shown before somebody asks for the rest

  R.Link = ({ seq, children }) => html`<a class="link" href=${`#e${seq}`}>${children ?? `e${seq}`}</a>`;

  // A long text, cut until somebody wants all of it.
  R.Text = ({ text, most = MOST, mono = true }) => {
    const [whole, setWhole] = useState(false);
    const cut = !whole && text.length > most;
    return html`<pre class=${mono ? "text mono" : "text"}>${R.block(cut ? text.slice(0, most) : text)}</pre>
      ${cut && html`<button class="more" onClick=${() => setWhole(true)}>… ${R.size(text.length - most)} more</button>`}`;
  };

  // JSON text in lines where it is some, else as it is: a model may write what it likes.
  R.Arguments = ({ text }) => {
    try {
      JSON.parse(text);
    } catch {
      return html`<${R.Text} text=${text} />`;
    }
    return html`<pre class="text mono json">${R.pretty(text)}</pre>`;
  };

  function related(model, event) {
    const groups = [];
    const add = (name, seqs) => {
      const others = [...new Set(seqs)].filter(seq => seq !== event.seq && model.event(seq)).sort((a, b) => a - b);
      if (others.length) groups.push([name, others]);
    };
    if (event.side === "decision") add("follows from", [event.fact]);
    if (event.side === "fact") add("decided then", model.ofFact.get(event.seq) || []);
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

  // What was said, as it was said: no escapes of JSON to read through.
  function Said({ event }) {
    if (event.erased) return html`<p class="remark">The content was erased. Its digest stays: <code>${event.digest}</code></p>`;
    const words = event.words;
    if (event.content === null) return null;
    if (words === null || typeof words !== "object") return html`<p class="remark bad">The content is no JSON text; see raw.</p>`;
    if (Array.isArray(words.messages)) return words.messages.map((message, place) => html`<${R.Message} key=${place} message=${plainMessage(message)} open=${true} />`);
    if (event.kind === "model_responded" || event.fields.fact?.kind === "model_responded") return html`<${R.Message} message=${answer(event, words)} open=${true} />`;
    return Object.entries(words).filter(([, value]) => value !== "").map(([name, value]) => html`<h4>${R.line(name, 60)}</h4>
      ${typeof value === "string" ? html`<${R.Text} text=${value} />` : html`<${R.Arguments} text=${JSON.stringify(value)} />`}`);
  }

  const plainMessage = message => ({ text: "", reasoning: "", ...message, calls: message.calls || [] });

  function answer(event, words) {
    const calls = ((event.fields.fact || event.fields).calls || []).map((call, place) => ({ id: call.id, name: call.name, arguments: words.arguments?.[place] ?? "" }));
    return { role: "assistant", text: words.text ?? "", reasoning: words.reasoning ?? "", calls };
  }

  function EventTab({ model, event }) {
    const chain = model.chain;
    const broken = chain?.broken.get(event.seq);
    return html`
      ${event.damage && html`<p class="remark bad">${R.line(event.damage, 1000)}</p>`}
      ${broken && html`<p class="remark bad">Tampered with: ${broken}.</p>`}
      ${!broken && chain?.first && event.seq > chain.first ? html`<p class="remark bad">Behind event ${chain.first}, which was tampered with: not to be believed.</p>` : null}
      <${Related} model=${model} event=${event} />
      <${Said} event=${event} />
      <h4>fields</h4>
      <table class="fields"><tbody>${Object.entries(event.fields).map(([name, value]) => html`<tr><th>${R.line(name, 60)}</th>
        <td><code>${R.line(typeof value === "string" ? value : JSON.stringify(value), 600)}</code></td></tr>`)}</tbody></table>`;
  }

  function RawTab({ model, event }) {
    const before = model.events[model.bySeq.get(event.seq) - 1];
    const rows = [["run", event.run || model.about.run], ["seq", String(event.seq)], ["at", `${event.at} ns, ${R.clock(event.at)}`],
      ["kind", event.kind], ["previous hash", before ? before.hash : "0".repeat(64)], ["hash", event.hash],
      ["content digest", event.digest ?? "none: it never had content"], ["salt", event.salt || "none"]];
    const stored = (name, data) => html`<h4>${name}</h4>${typeof data === "string" ? html`<pre class="text mono json">${R.pretty(data)}</pre>`
      : html`<p class="remark bad">no UTF-8; base64:</p><${R.Text} text=${data.base64} />`}`;
    return html`<table class="fields"><tbody>${rows.map(([name, value]) => html`<tr><th>${name}</th><td><code>${R.line(value)}</code></td></tr>`)}</tbody></table>
      ${stored("body", event.body)}
      ${event.content !== null ? stored("content", event.content) : event.erased && html`<p class="remark">the content was erased</p>`}`;
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
        ${hidden && html`<span class="badge">not in the list as it is filtered</span>`}
        <button class="close" aria-label="close" onClick=${close}>×</button></div>
      <nav class="tabs" role="tablist">${R.TABS.map(([name, title]) => html`<button role="tab" data-tab=${name}
        aria-selected=${name === tab ? "true" : "false"} class=${name === tab ? "on" : ""} onClick=${() => setTab(name)}>${title}</button>`)}</nav>
      <div class="body" tabindex="-1"><${Tab} key=${`${tab}${event.seq}`} model=${model} event=${event} /></div>
    </section>`;
  };
})((self.refold ||= {}));
