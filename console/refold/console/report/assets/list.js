// The list of events: of ten thousand rows only those that can be seen are in the page.
(R => {
  "use strict";

  const { h } = preact;
  const { useEffect, useLayoutEffect, useRef, useState } = preactHooks;
  const html = htm.bind(h);

  R.HEIGHTS = { compact: 28, all: 28, conversation: 108, raw: 28 };
  const SPARE = 12; // rows above and below what can be seen
  const SAID = 700; // characters of a message in the conversation

  const SIGNS = { error: "error", guard: "guard", prune: "history", damage: "damaged" };

  function Row({ event, mode, selected, chain, top }) {
    const state = chain.broken.has(event.seq) ? "broken" : chain.first && event.seq > chain.first ? "behind" : "";
    const classes = ["row", event.side === "?" ? "damage" : event.side, event.tag, state, selected ? "selected" : ""];
    return html`<a class=${classes.join(" ")} href=${`#e${event.seq}`} data-seq=${event.seq} role="option"
        aria-selected=${selected ? "true" : "false"} tabindex="-1" style=${{ top: `${top}px`, height: `${R.HEIGHTS[mode]}px` }}>
      <span class="seq">e${event.seq}</span>
      <span class="turn">${event.turn ? `t${event.turn}` : ""}</span>
      ${mode === "conversation" ? html`<${Saying} event=${event} />` : html`<${Line} event=${event} mode=${mode} />`}
      ${state === "broken" && html`<span class="badge bad">tampered</span>`}
      ${event.tag && html`<span class=${`badge ${event.tag}`}>${SIGNS[event.tag]}</span>`}
      ${event.unmarked && html`<span class="badge">${event.row.reason}</span>`}
      ${event.erased && html`<span class="badge">erased</span>`}
    </a>`;
  }

  function Line({ event, mode }) {
    if (mode === "raw") return html`<span class="kind">${R.line(event.kind, 40)}</span>
      <code class="said">${R.line(typeof event.body === "string" ? event.body : `base64 ${event.body.base64}`)}</code>`;
    const said = event.said || event.damage;
    return html`<span class="elapsed">${R.elapsed(event)}</span>
      <span class="kind">${R.line(event.kind, 40)}</span><span class="said">${R.line(said, 300)}</span>`;
  }

  function Saying({ event }) {
    const texts = R.textsOf(event, event.fields, event.words).filter(text => text.trim());
    const names = (event.row.name || []).join(", ");
    return html`<span class="saying"><b>${R.line(R.speaker(event), 40)}${names && html` <i>${R.line(names, 80)}</i>`}</b>
      <span class="words">${event.erased ? "(erased)" : R.block(texts.join("\n").slice(0, SAID))}</span></span>`;
  }

  // Who says what an event says.
  R.speaker = ({ kind }) => R.kinds[kind]?.speaker || kind;

  R.List = ({ events, mode, selected, chain }) => {
    const box = useRef(null);
    const [from, setFrom] = useState(0);
    const [room, setRoom] = useState(0);
    const height = R.HEIGHTS[mode];
    const place = R.nearest(events, selected);

    useEffect(() => {
      const node = box.current;
      let due = 0;
      const look = () => {
        due ||= requestAnimationFrame(() => {
          due = 0;
          setFrom(Math.max(0, Math.floor(node.scrollTop / height) - SPARE));
        });
      };
      const size = new ResizeObserver(() => setRoom(node.clientHeight));
      node.addEventListener("scroll", look, { passive: true });
      size.observe(node);
      look();
      return () => {
        node.removeEventListener("scroll", look);
        size.disconnect();
        if (due) cancelAnimationFrame(due);
      };
    }, [height, events]);

    useLayoutEffect(() => {
      const node = box.current;
      const top = place * height;
      if (top < node.scrollTop) node.scrollTop = Math.max(0, top - height);
      else if (top + height > node.scrollTop + node.clientHeight) node.scrollTop = top + 2 * height - node.clientHeight;
    }, [place, height, events, room]); // the room shrinks once the timeline is drawn

    const shown = events.slice(from, from + Math.ceil((room || 600) / height) + 2 * SPARE);
    return html`<div class=${`list ${mode}`} ref=${box} role="listbox" aria-label="events" tabindex="0">
      <div class="sizer" style=${{ height: `${events.length * height}px` }}>
        ${shown.map((event, i) => html`<${Row} key=${event.seq} event=${event} mode=${mode} chain=${chain}
          selected=${event.seq === selected} top=${(from + i) * height} />`)}
      </div>
      ${!events.length && html`<p class="none">no event fits</p>`}
    </div>`;
  };

  // The place of an event in a list, or of the last before it: 0 if there is none.
  R.nearest = (events, seq) => {
    let [low, high] = [0, events.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (events[middle].seq <= seq) low = middle + 1;
      else high = middle;
    }
    return Math.max(0, low - 1);
  };
})((self.refold ||= {}));
