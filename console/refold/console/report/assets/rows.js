// The rows of a list: an event, a turn with its request and response, or a call with its result.
(R => {
  "use strict";

  const ENDS = new Set(["tool_returned", "call_refused"]); // what the row of a call represents

  const rowFor = (model, event) => {
    const call = ENDS.has(event.kind) ? model.callOf.get(event.seq) : undefined;
    if (call) return { form: "call", seq: event.seq, event, call };
    const turn = model.turnOf.get(event.seq);
    return turn ? { form: "turn", seq: event.seq, event, turn } : { form: "event", seq: event.seq, event };
  };

  // The turns, each with its calls below, and child runs below their calls; events without a row of their own are left
  // out. A turn without a text has no row: its first call has its number. The last row states how the run ended.
  function turnRows(model) {
    const rows = [];
    const begun = new Set(model.children.map(child => child.call));
    let next = 0;
    let shown = null;
    let untold = null; // a turn without a text that has no row yet
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
      if (shown && event.seq > model.about.events) { // events after damage belong to no turn
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

  const AT_ONCE = 60; // milliseconds of a search before progress is displayed

  // A search: `found` is {events, looked}, a new object for each update; `goOn` continues it by a slice.
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

  // The rows of a list; `events` are the filtered ones, null without a filter; `sought` is highlighted in texts.
  R.rowsOf = (model, mode, events, sought) => {
    if (events) return events.map(event => ({ ...rowFor(model, event), sought }));
    if (mode === "turns") return (model.turnRows ??= turnRows(model));
    const speaks = event => R.kinds[event.kind]?.speaker;
    return (mode === "conversation" ? model.events.filter(speaks) : model.events).map(event => rowFor(model, event));
  };

  // The row of each event: its own, else the last row before it.
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

  // All texts of an event; a call is its tool and each of its arguments.
  function told(event) {
    const args = event.words?.arguments;
    const calls = (event.fields.fact || event.fields).calls;
    if (!Array.isArray(args) || !Array.isArray(calls)) return R.textsOf(event, event.fields, event.words);
    const values = text => R.leaves(text).map(([, value]) => value);
    return [event.words.text ?? "", event.words.reasoning ?? "", ...calls.flatMap((_, place) => values(args[place] ?? ""))];
  }

  // The text around the first hit in an event, as one line; "" without a hit.
  R.excerpt = (event, sought) => {
    for (const text of event.erased ? [] : told(event)) {
      const line = text.replace(/\s+/g, " ");
      const hits = sought.flatMap(pattern => Array.from(line.matchAll(pattern)).slice(0, 1)).map(hit => hit.index);
      const begin = Math.max(0, Math.min(...hits) - BEFORE);
      if (hits.length) return `${begin ? "…" : ""}${line.slice(begin, begin + AFTER)}${line.length > begin + AFTER ? "…" : ""}`;
    }
    return "";
  };

  // Where the page opens: at damage, else at the end of the run, else at the first error, else at the last event.
  R.opening = model => {
    const { events, end, checked } = model;
    const damaged = checked.problem?.seq ?? events.find(event => event.damage)?.seq;
    return damaged || end || events.find(event => event.tag === "error")?.seq || events[events.length - 1]?.seq || 0;
  };

  // How the run ended, in a sentence: by its source if it was imported.
  R.ending = model => {
    const { about, partial } = model;
    if (partial) return "the log continues: this report ends here";
    if (about.damaged) return "how it ended is unknown: the log cannot be read to its end";
    if (about.source_says) return about.source_says;
    return about.code ? `${about.agent_state}: ${about.reason}` : `${about.agent_state}: nothing says that it ended`;
  };
})((self.refold ||= {}));
