// When the model and the tools worked: a bar per call, on a time axis without long idle gaps.
(R => {
  "use strict";

  const { useEffect, useMemo, useRef } = preactHooks;
  const html = htm.bind(preact.h);
  const LANES = 4; // lanes for parallel tools; further ones share the last
  const SILENCE = 14; // pixels of an idle gap
  const LONG = 0.04; // of the working time: a longer gap is collapsed
  const NEAR = 4; // pixels from a bar that still select it

  const since = event => event?.row.elapsed;

  // {from, to, seq, name, lane, tone, known}: nanoseconds since the start. A bar without a known duration reaches from its cause to its end.
  R.spansOf = model => {
    const made = [];
    const free = [];
    const add = (from, to, rest) => { if (from !== undefined && to !== undefined) made.push({ from: Math.min(from, to), to, ...rest }); };
    for (const { seq } of model.calls)
      for (const answer of model.answers.get(seq) || [])
        add(since(model.event(seq)), since(model.event(answer)), { seq: answer, name: model.event(answer).kind, lane: 0, known: true, tone: model.event(answer).tag === "error" ? "error" : "accent" });
    for (const turn of model.turns)
      for (const call of turn.calls) {
        const to = since(model.event(call.seq));
        if (to === undefined) continue;
        const known = typeof call.duration === "number";
        const from = known ? to - call.duration : since(model.event(turn.answer)) ?? to;
        const found = free.findIndex(end => end <= from);
        const lane = found < 0 ? Math.min(free.length, LANES - 1) : found;
        free[lane] = Math.max(free[lane] ?? 0, to);
        add(from, to, { seq: call.seq, name: call.name, lane: lane + 1, known, tone: call.failed ? "error" : "guard" });
      }
    return made.sort((a, b) => a.from - b.from);
  };

  // The position of instants between 0 and `width`: {x, breaks: [[place, nanoseconds]]}.
  function scaled(bars, width) {
    const busy = [];
    for (const { from, to } of bars) {
      const last = busy[busy.length - 1];
      if (last && from <= last[1]) last[1] = Math.max(last[1], to);
      else busy.push([from, to]);
    }
    const worked = busy.reduce((sum, [from, to]) => sum + to - from, 0) || 1;
    const gaps = busy.slice(1).map(([from], place) => from - busy[place][1]);
    const long = gaps.map(gap => gap > LONG * worked);
    const shown = worked + gaps.reduce((sum, gap, place) => sum + (long[place] ? 0 : gap), 0);
    const silence = Math.min(SILENCE, width / (2 * gaps.length || 1));
    const unit = (width - silence * long.filter(Boolean).length) / shown;
    const marks = [];
    const breaks = [];
    let at = 0;
    busy.forEach(([from, to], place) => {
      const gap = place ? (long[place - 1] ? silence : gaps[place - 1] * unit) : 0;
      if (place && long[place - 1]) breaks.push([at, silence, gaps[place - 1]]);
      at += gap;
      marks.push([from, at], [to, (at += (to - from) * unit)]);
    });
    return { x: instant => between(marks, instant), breaks };
  }

  function between(marks, instant) {
    let [low, next] = [0, marks.length];
    while (low < next) {
      const middle = (low + next) >> 1;
      if (marks[middle][0] < instant) low = middle + 1;
      else next = middle;
    }
    if (!next || next === marks.length) return marks[next ? next - 1 : 0]?.[1] ?? 0;
    const [[t0, x0], [t1, x1]] = [marks[next - 1], marks[next]];
    return t1 === t0 ? x1 : x0 + ((x1 - x0) * (instant - t0)) / (t1 - t0);
  }

  function drawn(canvas, bars, height, selected) {
    const colour = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    const width = canvas.clientWidth;
    const ratio = devicePixelRatio;
    [canvas.width, canvas.height] = [width * ratio, height * ratio];
    const ctx = canvas.getContext("2d");
    ctx.scale(ratio, ratio);
    ctx.font = "11px system-ui, sans-serif";
    const { x, breaks } = scaled(bars, width);
    const lane = (height - 22) / (LANES + 1);
    const boxes = bars.map(bar => ({ ...bar, left: x(bar.from), right: Math.max(x(bar.to), x(bar.from) + 1.5), top: bar.lane * lane + 2, bottom: (bar.lane + 1) * lane - 1 }));
    for (const { left, right, top, bottom, tone, known } of boxes) {
      ctx.globalAlpha = known ? 0.9 : 0.4;
      ctx.fillStyle = colour(tone);
      ctx.fillRect(left, top, right - left, bottom - top);
    }
    ctx.globalAlpha = 1;
    ctx.fillStyle = colour("paper");
    for (const { left, right, bottom, name, lane: row } of boxes) {
      const text = R.plain(name);
      if (row && lane > 14 && ctx.measureText(text).width < right - left - 10) ctx.fillText(text, left + 5, bottom - (lane - 11) / 2);
    }
    ctx.fillStyle = colour("line");
    for (const [at, wide] of breaks) ctx.fillRect(at + wide / 2 - 1, 0, 2, height - 20);
    ctx.fillStyle = colour("faint");
    let [free, last] = [0, ""];
    for (const box of boxes) {
      const text = R.seconds(Math.round(box.from / 1e8) * 1e8);
      const wide = ctx.measureText(text).width;
      const left = Math.min(box.left, width - wide);
      if (box.lane || left < free || text === last) continue;
      ctx.fillText(text, left, height - 6);
      [free, last] = [left + wide + 40, text];
    }
    const here = boxes.find(box => box.seq === selected);
    if (here) {
      ctx.strokeStyle = colour("ink");
      ctx.strokeRect(here.left - 1, here.top - 1, here.right - here.left + 2, here.bottom - here.top + 2);
    }
    return { boxes, breaks };
  }

  R.hasTimes = model => model.events.some(event => event.row.elapsed > 0);

  R.Spans = ({ model, selected, select, chain, dark, height }) => {
    const canvas = useRef(null);
    const last = useRef({ boxes: [], breaks: [] });
    const bars = useMemo(() => R.spansOf(model), [model]);
    useEffect(() => {
      const draw = () => { last.current = drawn(canvas.current, bars, height, selected); };
      draw();
      const size = new ResizeObserver(draw);
      size.observe(canvas.current);
      return () => size.disconnect();
    }, [bars, selected, dark, height, chain.done]);
    const at = pointer => {
      const { left, top } = canvas.current.getBoundingClientRect();
      return [pointer.clientX - left, pointer.clientY - top];
    };
    const under = pointer => {
      const [x, y] = at(pointer);
      const near = last.current.boxes.filter(box => y >= box.top && y <= box.bottom && x >= box.left - NEAR && x <= box.right + NEAR);
      return near.sort((a, b) => Math.abs(a.left + a.right - 2 * x) - Math.abs(b.left + b.right - 2 * x))[0];
    };
    const point = pointer => {
      const box = under(pointer);
      const [x] = at(pointer);
      const gap = last.current.breaks.find(([left, wide]) => x >= left && x <= left + wide);
      canvas.current.title = box ? R.plain(`e${box.seq} ${box.name}, ${box.known ? "" : "at most "}${R.seconds(box.to - box.from)}, from ${R.seconds(box.from)} on`) : gap ? `nothing for ${R.seconds(gap[2])}` : "";
    };
    const click = pointer => {
      const box = under(pointer);
      if (box) select(box.seq);
    };
    return html`<canvas class="spans" ref=${canvas} style=${{ height: `${height}px` }} onClick=${click} onMouseMove=${point}></canvas>`;
  };
})((self.refold ||= {}));
