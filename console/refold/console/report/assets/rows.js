// Which rows a list has. A row stands for an event, a turn's for its request and its answer, a call's for how it ended.
(R => {
  "use strict";

  const ENDS = new Set(["tool_returned", "call_refused"]); // what a call's row stands for

  const rowFor = (model, event) => {
    const call = ENDS.has(event.kind) ? model.callOf.get(event.seq) : undefined;
    if (call) return { form: "call", seq: event.seq, event, call };
    const turn = model.turnOf.get(event.seq);
    return turn ? { form: "turn", seq: event.seq, event, turn } : { form: "event", seq: event.seq, event };
  };

  // The turns, each with what happened in it below, the runs that a call began below the call; what has no word of its own is left
  // out. A turn without a text has no row of its own: its first call has its number. The last row says how the run ended.
  function turnRows(model) {
    const rows = [];
    const begun = new Set(model.children.map(child => child.call));
    let next = 0;
    let shown = null;
    let untold = null; // a turn without a text that no row stands for yet
    const push = row => {
      if (untold?.calls.includes(row.call)) {
        row.turn = untold;
        untold = null;
      }
      rows.push(row);
      if (begun.has(row.call?.id)) for (const child of model.children) if (child.call === row.call.id) rows.push({ form: "child", seq: row.seq, event: row.event, child });
    };
    const close = () => {
      for (const call of shown?.calls || [])
        if (!ENDS.has(model.event(call.seq)?.kind)) push({ form: "call", seq: call.seq || shown.answer, event: model.event(call.seq || shown.answer), call });
    };
    const told = event => event.seq === shown?.answer || event.seq === model.end || (event.kind === "child_ended" && begun.has(event.asked[0]));
    for (const event of model.events) {
      if (event.seq >= (model.turns[next]?.first ?? Infinity)) {
        close();
        shown = model.turns[next++];
        untold = !shown.text?.trim() && shown.text !== null && shown.calls.length ? shown : null;
        if (!untold) rows.push({ ...rowFor(model, model.event(shown.answer || shown.first)), form: "turn", turn: shown });
      }
      if (shown && event.seq > model.about.events) { // what stands behind damage belongs to no turn
        close();
        shown = untold = null;
      }
      if (event.damage || !(told(event) || event.routine)) push(rowFor(model, event));
    }
    close();
    const last = model.event(model.end) || model.events[model.events.length - 1];
    if (last) rows.push({ form: "end", seq: last.seq, event: last });
    return rows;
  }

  const AT_ONCE = 60; // milliseconds of a search that nobody sees going on

  // A search: `found` is {events, looked}, and another object whenever there is news; `goOn` ends it a slice at a time.
  R.searching = (events, filter) => {
    let place = 0;
    const fitting = [];
    const step = () => {
      if (place < events.length && filter.matches(events[place].filterRow)) fitting.push(events[place]);
      return ++place < events.length;
    };
    const search = {};
    const note = done => { search.found = { events: [...fitting], looked: done ? undefined : place }; };
    const until = performance.now() + AT_ONCE;
    let going = true;
    while (going && performance.now() < until) going = step();
    note(!going);
    search.goOn = tell => (going ? R.sliced(step, done => (note(done), tell())) : undefined);
    return search;
  };

  // The rows of a list; `events` are those that a filter leaves, null without a filter, `sought` what it looks for in texts.
  R.rowsOf = (model, mode, events, sought) => {
    if (events) return events.map(event => ({ ...rowFor(model, event), sought }));
    if (mode === "turns") return (model.turnRows ??= turnRows(model));
    const speaks = event => R.kinds[event.kind]?.speaker;
    return (mode === "conversation" ? model.events.filter(speaks) : model.events).map(event => rowFor(model, event));
  };

  // Where each event is in a list: in its own row, else in the last row before it.
  R.places = (model, rows) => {
    const places = new Map();
    rows.forEach((row, place) => { if (!places.has(row.seq)) places.set(row.seq, place); });
    const own = new Set(places.keys());
    rows.forEach((row, place) => { if (row.turn && !places.has(row.turn.first)) places.set(row.turn.first, place); });
    let last = 0;
    for (const { seq } of model.events) {
      last = places.get(seq) ?? last;
      places.set(seq, last);
    }
    return { of: seq => places.get(seq) ?? 0, own };
  };

  const [BEFORE, AFTER] = [30, 300]; // characters around a hit

  // All that an event says, a call as its tool and each of its arguments.
  function told(event) {
    const args = event.words?.arguments;
    const calls = (event.fields.fact || event.fields).calls;
    if (!Array.isArray(args) || !Array.isArray(calls)) return R.textsOf(event, event.fields, event.words);
    const values = text => R.leaves(text).map(([, value]) => value);
    return [event.words.text ?? "", event.words.reasoning ?? "", ...calls.flatMap((_, place) => values(args[place] ?? ""))];
  }

  // What stands around the first hit in what an event says, as one line; "" where nothing that is looked for is in it.
  R.excerpt = (event, sought) => {
    for (const text of event.erased ? [] : told(event)) {
      const line = text.replace(/\s+/g, " ");
      const hits = sought.flatMap(pattern => Array.from(line.matchAll(pattern)).slice(0, 1)).map(hit => hit.index);
      const begin = Math.max(0, Math.min(...hits) - BEFORE);
      if (hits.length) return `${begin ? "…" : ""}${line.slice(begin, begin + AFTER)}${line.length > begin + AFTER ? "…" : ""}`;
    }
    return "";
  };

  // Where the page opens: at damage, else where the log says how the run ended, else at the first error, else at the last event.
  R.opening = model => {
    const { events, end, checked } = model;
    const damaged = checked.problem?.seq ?? events.find(event => event.damage)?.seq;
    return damaged || end || events.find(event => event.tag === "error")?.seq || events[events.length - 1]?.seq || 0;
  };

  // How the run ended, in a sentence: its source's, where it was imported.
  R.ending = model => {
    const { about, partial } = model;
    if (partial) return "the log continues: this report ends here";
    if (about.damaged) return "how it ended is unknown: the log cannot be read to its end";
    if (about.source_says) return about.source_says;
    return about.code ? `${about.agent_state}: ${about.reason}` : `${about.agent_state}: nothing says that it ended`;
  };
})((self.refold ||= {}));
