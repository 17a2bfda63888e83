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
  // out. The last row says how the run ended.
  function turnRows(model) {
    const rows = [];
    const begun = new Set(model.children.map(child => child.call));
    let next = 0;
    let shown = null;
    const push = row => {
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
        rows.push({ ...rowFor(model, model.event(shown.answer || shown.first)), form: "turn", turn: shown });
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

  // The rows of a list; `events` are those that a filter leaves, null without a filter.
  R.rowsOf = (model, mode, events) => {
    if (events) return events.map(event => rowFor(model, event));
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

  // How the run ended, in a sentence: its source's, where it was imported.
  R.ending = model => {
    const { about, partial } = model;
    if (partial) return "the log goes on: this report ends here";
    if (about.damaged) return "how it ended is not known: the log cannot be followed to its end";
    if (about.source_says) return about.source_says;
    return about.code ? `${about.agent_state}: ${about.reason}` : `${about.agent_state}: nothing says that it ended`;
  };
})((self.refold ||= {}));
