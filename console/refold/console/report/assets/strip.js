// The timeline: the size of each request compared with its limit, and where something happened.
(R => {
  "use strict";

  const { useEffect, useMemo, useRef, useState } = preactHooks;
  const html = htm.bind(preact.h);

  const [HEIGHT, LOW] = [150, 84];
  const LANES = ["prune", "guard", "error", "damage"];
  const LANE = 7; // pixels

  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  // Columns for uPlot: event numbers, the estimate of each request, the provider's count.
  function columns(model) {
    const at = model.calls.map(call => call.seq);
    const estimate = model.calls.map(call => model.event(call.seq).row.tokens ?? null);
    const counted = model.calls.map(call => {
      const answer = (model.answers.get(call.seq) || [])[0];
      return (answer && model.event(answer).row.input) || null;
    });
    return [at, estimate, counted];
  }

  const greatest = values => values.reduce((most, value) => Math.max(most, value || 0), 0);

  // The limit to draw: the lower one of context and policy, if requests come near it.
  R.limitOf = call => {
    const limits = [call?.context, call?.allowed].filter(limit => limit !== null && limit !== undefined);
    return limits.length ? Math.min(...limits) : null;
  };

  // A limit far above all requests is listed, not drawn: it would flatten them.
  const near = (limit, most) => limit !== null && limit <= 3 * most;

  function drawMarks(plot, model, chain) {
    const { ctx, bbox } = plot;
    const ratio = devicePixelRatio;
    for (const event of model.events) {
      const tag = chain().broken.has(event.seq) ? "damage" : event.tag;
      if (!tag) continue;
      ctx.fillStyle = colour(tag);
      const lane = LANES.indexOf(tag);
      const x = plot.valToPos(event.seq, "x", true);
      ctx.fillRect(x - ratio, bbox.top + bbox.height + ratio * (3 + lane * LANE), 2 * ratio, (LANE - 2) * ratio);
    }
  }

  function drawLimit(plot, limit) {
    if (limit === null) return;
    const { ctx, bbox } = plot;
    const y = plot.valToPos(limit, "y", true);
    if (y < bbox.top) return;
    ctx.save();
    ctx.strokeStyle = colour("error");
    ctx.setLineDash([6, 4]);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    ctx.restore();
  }

  function options(model, width, height, limit, data, chain) {
    const axis = { stroke: colour("faint"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const most = Math.max(greatest(data[1]), greatest(data[2]), 1);
    const top = near(limit, most) ? Math.max(limit, most) : most;
    const last = Math.max(2, model.events.length ? model.events[model.events.length - 1].seq : 2);
    const few = model.calls.length < 400;
    return {
      width,
      height,
      legend: { show: false },
      cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
      padding: [8, 28, LANES.length * LANE, 0],
      scales: { x: { time: false, range: [1, last] }, y: { range: [0, top * 1.05] } },
      axes: [{ ...axis, size: 22, gap: 2 + LANES.length * LANE, values: (_, all) => all.map(v => (Number.isInteger(v) ? `e${v}` : "")) },
        { ...axis, size: 56, space: (...[, , , , room]) => (room < LOW ? 12 : 30), values: (_, all) => all.map(v => R.count(v)) }],
      series: [{}, {
        label: "estimate", stroke: () => colour("accent"), width: 1.5, fill: () => colour("accent-soft"),
        paths: uPlot.paths.stepped({ align: 1 }), points: { show: few, size: 4, fill: () => colour("accent") },
      }, { label: "counted", stroke: () => colour("counted"), paths: () => null, points: { show: true, size: few ? 5 : 3, fill: () => colour("counted") } }],
      hooks: { draw: [plot => { drawLimit(plot, limit); drawMarks(plot, model, chain); }] },
    };
  }

  function Plot({ model, selected, select, chain, dark, small, data, limit }) {
    const box = useRef(null);
    const plot = useRef(null);
    const line = useRef(null);
    const height = useRef(0);
    height.current = small ? LOW : HEIGHT;
    const latest = useRef(chain);
    latest.current = chain;
    useEffect(() => {
      if (!model.events.length) return undefined;
      const made = new uPlot(options(model, box.current.clientWidth, height.current, limit, data, () => latest.current), data, box.current);
      plot.current = made;
      made.over.appendChild(line.current);
      const click = pointer => {
        const at = made.posToVal(pointer.clientX - made.over.getBoundingClientRect().left, "x");
        select(model.events[R.nearest(model.events, Math.round(at))].seq);
      };
      made.over.addEventListener("click", click);
      const size = new ResizeObserver(() => made.setSize({ width: box.current.clientWidth, height: height.current }));
      size.observe(box.current);
      return () => {
        size.disconnect();
        made.destroy();
      };
    }, [model, dark]);

    useEffect(() => plot.current?.setSize({ width: box.current.clientWidth, height: height.current }), [small]);
    useEffect(() => { if (plot.current && chain.done) plot.current.redraw(false); }, [chain.done]);
    useEffect(() => {
      // As fractions of the width, so that it stays in place when the window or the paper changes.
      const { min, max } = plot.current?.scales.x ?? {};
      if (plot.current) line.current.style.left = `${(100 * (selected - min)) / (max - min)}%`;
    });

    return html`<div class="plot" ref=${box}><div class="now" ref=${line}></div></div>`;
  }

  // Why the estimate differs from the provider's count; "" without a count.
  R.whyTheyDiffer = model => {
    if (!greatest(columns(model)[2])) return "";
    const own = "The estimate counts the characters of the messages in a request, and is used by limits and compaction; the provider counts with its own tokenizer, and includes tokens from its cache";
    return model.imported ? `${own}. It also counted what a transcript seldom has: the system prompt, the definitions of the tools, what its harness put in.`
      : `${own}, and the definitions of the tools.`;
  };

  R.Strip = props => {
    const { model, small } = props;
    const [chosen, setAxis] = useState("");
    const [why, setWhy] = useState(false);
    const data = useMemo(() => columns(model), [model]);
    const limit = R.limitOf(model.calls[model.calls.length - 1]);
    const most = Math.max(greatest(data[1]), greatest(data[2]));
    const timed = useMemo(() => R.hasTimes(model), [model]);
    const axis = chosen || (timed ? "time" : "events");
    const differ = R.whyTheyDiffer(model);
    const choice = name => html`<button data-axis=${name} class=${name === axis ? "on" : ""} disabled=${name === "time" && !timed} title=${timed ? "" : "no times were recorded"}
      onClick=${() => setAxis(name)}>${name}</button>`;
    return html`<section class="strip" aria-label="timeline">
      <div class="legend"><span class="axes" role="group" aria-label="axis">${choice("time")}${choice("events")}</span>
        ${axis === "time" ? html`<b>when each call began and ended</b><span class="key accent">model</span><span class="key guard">tools</span><span class="key error">failed</span>
            <span>pale: no duration was recorded</span>`
          : html`<b>context of each request, at most ${R.count(most)} tokens</b><span class="key accent">estimate</span>
            ${differ && html`<span class="key counted">counted by the provider</span>
            <button class="more" aria-expanded=${why ? "true" : "false"} onClick=${() => setWhy(!why)}>why they differ</button>`}
            ${limit !== null && html`<span class="key error dashed">limit ${R.count(limit)}${near(limit, most) ? "" : ", far above"}</span>`}
            <span class="key prune">history</span><span class="key guard">guards</span><span class="key error">errors</span>`}</div>
      ${why && axis === "events" && html`<p class="why dim">${differ}</p>`}
      ${axis === "time" ? html`<${R.Spans} ...${props} height=${small ? LOW : HEIGHT} />` : html`<${Plot} ...${props} data=${data} limit=${limit} />`}
    </section>`;
  };
})((self.refold ||= {}));
