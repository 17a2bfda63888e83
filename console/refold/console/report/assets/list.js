// The list: of ten thousand rows, only the visible ones are in the page.
(R => {
  "use strict";

  const { h } = preact;
  const { useEffect, useLayoutEffect, useRef, useState } = preactHooks;
  const html = htm.bind(h);

  const SPARE = 12; // rows above and below the visible ones
  const SCROLLED = 180; // pixels: more than the list grows by when the header shrinks, so that it does not grow again at once

  // Pixels of a row; on a narrow page the text is below the kind.
  R.rowHeight = (mode, narrow) => (mode === "conversation" ? 108 : narrow && mode !== "raw" ? 48 : 27);

  R.List = ({ model, rows, places, mode, selected, chain, narrow, shrink, opens }) => {
    const box = useRef(null);
    const [from, setFrom] = useState(0);
    const [room, setRoom] = useState(0);
    const height = R.rowHeight(mode, narrow);
    const place = places.of(selected);
    const kept = useRef(true); // whether the selected row is visible: do not scroll back a user who scrolled away from it
    const top = useRef(0);
    const tall = useRef(0); // the browser may scroll a list that grows or shrinks
    const led = useRef(0); // the position set by an address, a key or a resize: the header shrinks only when the user scrolls
    top.current = place * height;

    useEffect(() => {
      const node = box.current;
      let due = 0;
      const look = scrolled => {
        due ||= requestAnimationFrame(() => {
          due = 0;
          const ours = Math.abs(node.scrollTop - led.current) < 1 || tall.current !== node.clientHeight;
          tall.current = node.clientHeight;
          if (!ours) led.current = -1;
          if (scrolled && !ours) kept.current = top.current > node.scrollTop - height && top.current < node.scrollTop + node.clientHeight;
          setFrom(Math.max(0, Math.floor(node.scrollTop / height) - SPARE));
          if (!node.scrollTop || (node.scrollTop > SCROLLED && !ours)) shrink(node.scrollTop > 0);
        });
      };
      const size = new ResizeObserver(() => {
        setRoom(node.clientHeight);
        led.current = node.scrollTop;
      });
      node.addEventListener("scroll", look, { passive: true });
      size.observe(node);
      look();
      return () => {
        node.removeEventListener("scroll", look);
        size.disconnect();
        if (due) cancelAnimationFrame(due);
      };
    }, [height, rows]);

    const show = () => {
      const node = box.current;
      if (top.current < node.scrollTop) node.scrollTop = Math.max(0, top.current - height);
      else if (top.current + height > node.scrollTop + node.clientHeight) node.scrollTop = top.current + 2 * height - node.clientHeight;
      led.current = node.scrollTop;
      kept.current = true;
    };
    useLayoutEffect(show, [place, height, rows]);
    R.reveal = show;
    useLayoutEffect(() => { if (kept.current) show(); }, [room]); // it shrinks once the timeline is drawn

    const shown = rows.slice(from, from + Math.ceil((room || 600) / height) + 2 * SPARE);
    return html`<div class=${`list ${mode}`} ref=${box} role="listbox" aria-label="events" tabindex="0" onClick=${opens}>
      <div class="sizer" style=${{ height: `${rows.length * height}px` }}>
        ${shown.map((row, i) => html`<${R.Row} key=${from + i} model=${model} row=${row} mode=${mode} chain=${chain} height=${height}
          selected=${from + i === place} top=${(from + i) * height} />`)}
      </div>
      ${!rows.length && html`<p class="none">no event matches</p>`}
    </div>`;
  };

  const HEADS = { seq: "event", what: "what happened", tokens: "tokens", cost: "cost", time: "time" };

  // The list below its column titles.
  R.Listing = props => {
    const columns = ["turns", "all"].includes(props.mode) ? Object.keys(HEADS) : ["seq", "what"];
    return html`<div class="listing"><div class="heads" aria-hidden="true">${columns.map(name => html`<span class=${`head-of ${name}`}>${HEADS[name]}</span>`)}</div>
      <${R.List} ...${props} /></div>`;
  };

  // The index of an event, or of the last one before it: 0 if there is none.
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
