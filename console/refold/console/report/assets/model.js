// The data of the page, read once: events, their relations, and states and prompts computed on demand from changes.
(R => {
  "use strict";

  const COLUMNS = ["seq", "at", "kind", "side", "turn", "fact", "said", "run", "damage", "row", "routine", "erased", "answers"];
  const EVERY = 128; // events, or calls, between two stored copies of a state, or a prompt

  const parsed = text => {
    try {
      return typeof text === "string" ? JSON.parse(text) : null;
    } catch {
      return null;
    }
  };

  // The stored record of an event. Body and content are parsed for lookups; the raw tab displays their text.
  class Stored {
    constructor([body, content, salt, hash, digest]) {
      Object.assign(this, { body, content, salt, hash, digest });
    }
    get fields() {
      return (this.ownFields ??= parsed(this.body) || {});
    }
    get words() {
      if (this.ownWords === undefined) this.ownWords = parsed(this.content);
      return this.ownWords;
    }
  }

  const LOST = new Stored(["", null, "", "", null]);

  class RunEvent {
    constructor(columns, place, records) {
      COLUMNS.forEach((name, column) => { this[name] = columns[column]; });
      Object.assign(this, { place, records, tag: tagOf(this) });
    }
    get stored() {
      return this.records.at(this.place) ?? LOST;
    }
    get fields() {
      return this.stored.fields;
    }
    get words() {
      return this.stored.words;
    }
    get asked() {
      return this.row.call || [];
    }
    text() {
      return R.textsOf(this, this.fields, this.words).join("\n");
    }
    // The event as a filter sees it.
    get filterRow() {
      const { seq, kind, side, turn } = this;
      return { ...this.row, seq, kind, side, turn, text: () => (this.erased ? null : this.text()) };
    }
  }

  // The mark of an event in the timeline, "" for none.
  function tagOf({ kind, row, damage }) {
    if (damage) return "damage";
    return row?.error === true ? "error" : R.kinds[kind]?.sign || "";
  }

  const NOTHING = { number: 0, seq: 0, role: "" }; // a message that was removed from the page

  class Model {
    constructor(data) {
      Object.assign(this, data);
      this.turns = R.whole("turns", data.turns);
      this.calls = R.whole("calls", data.calls);
      this.records = new R.Parts("records", data.records, columns => new Stored(columns));
      this.derived = new R.Parts("derived", data.derived, ([changes, asked = [], rules = []]) => ({ changes, asked, rules }));
      this.shown = new R.Parts("shown", data.shown, message => message);
      this.events = R.whole("events", data.events).map((columns, place) => new RunEvent(columns, place, this.records));
      // Calls by the event that ended them, turns by their response.
      this.callOf = new Map(this.turns.flatMap(turn => turn.calls.filter(call => call.seq).map(call => [call.seq, call])));
      this.turnOfCall = new Map(this.turns.flatMap(turn => turn.calls.filter(call => call.seq).map(call => [call.seq, turn])));
      this.turnOf = new Map(this.turns.filter(turn => turn.answer).map(turn => [turn.answer, turn]));
      this.bySeq = new Map(this.events.map((event, place) => [event.seq, place]));
      this.callAt = new Map(this.calls.map((call, place) => [call.seq, place]));
      this.findings = new Map(
        [...this.judged.findings, ...this.judged.unreplayable].map(finding => [finding.seq, finding]));
      this.costs = this.turns.some(turn => turn.cost_nanousd);
      this.states = [];
      this.viewsKept = [];
      this.connect();
    }

    event(seq) {
      return this.events[this.bySeq.get(seq)];
    }

    // Events of the same call or request, and events that follow from one.
    connect() {
      this.ofCall = new Map();
      this.ofFact = new Map();
      this.answers = new Map();
      for (const event of this.events) {
        for (const call of event.asked) this.add(this.ofCall, call, event.seq);
        if (event.side === "decision") this.add(this.ofFact, event.fact, event.seq);
        if (event.answers) this.add(this.answers, event.answers, event.seq);
      }
    }

    add(map, key, seq) {
      if (!map.has(key)) map.set(key, []);
      map.get(key).push(seq);
    }

    changes(place) {
      return this.derived.at(place)?.changes;
    }

    // The state after the event at `place`: a Map of path to JSON text.
    stateAt(place) {
      const kept = Math.floor(place / EVERY);
      for (let block = this.states.length; block <= kept; block++) {
        const state = new Map(block ? this.states[block - 1] : [["agent_state", '"RUNNING"']]);
        for (let i = Math.max(0, (block - 1) * EVERY); block && i < block * EVERY; i++) change(state, this.changes(i));
        this.states.push(state);
      }
      const state = new Map(this.states[kept]);
      for (let i = kept * EVERY; i <= place; i++) change(state, this.changes(i));
      return state;
    }

    // The messages of a call, as indexes into `shown`, without request-only messages.
    viewOf(place) {
      const kept = Math.floor(place / EVERY);
      for (let block = this.viewsKept.length; block <= kept; block++) {
        const view = block ? [...this.viewsKept[block - 1]] : [];
        for (let i = Math.max(0, (block - 1) * EVERY); block && i < block * EVERY; i++) splice(view, this.calls[i]);
        this.viewsKept.push(view);
      }
      const view = [...this.viewsKept[kept]];
      for (let i = kept * EVERY; i <= place; i++) splice(view, this.calls[i]);
      return view;
    }

    viewWithOnce(place) {
      return [...this.viewOf(place), ...(this.calls[place].once || [])];
    }

    // The last call at or before an event, -1 before the first.
    callBefore(seq) {
      let [low, high] = [0, this.calls.length];
      while (low < high) {
        const middle = (low + high) >> 1;
        if (this.calls[middle].seq <= seq) low = middle + 1;
        else high = middle;
      }
      return low - 1;
    }

    // A text of a message, or the text that it points to. In a tampered page it may point nowhere.
    wordsOf(words) {
      if (typeof words === "string") return words;
      let value = this.event(words[0])?.words;
      for (const step of words[1]) value = value?.[step];
      return typeof value === "string" ? value : "";
    }

    // A message as displayed; its texts may be pointers.
    seen(place) {
      return this.shown.at(place) ?? NOTHING;
    }

    message(place) {
      const shown = this.seen(place);
      const text = this.wordsOf(shown.text ?? "");
      const calls = (shown.calls || []).map(([id, name, words]) => ({ id, name, arguments: this.wordsOf(words) }));
      return { ...shown, place, text, reasoning: this.wordsOf(shown.reasoning ?? ""), calls };
    }

    // Which rule decided about each call of a response: [call, sentence].
    rulesOf(fact) {
      return this.derived.at(this.bySeq.get(fact))?.rules ?? [];
    }

    opinionsOf(fact) {
      return (this.derived.at(this.bySeq.get(fact))?.asked ?? []).map(([before, place, who, said, saw = [], own = ""]) => ({
        before, own,
        place: this.words[place],
        who: this.words[who],
        said: this.words[said],
        measured: saw.map(([key, value]) => [this.words[key], value]),
      }));
    }
  }

  function change(state, changes) {
    for (const [path, value] of Object.entries(changes || {})) {
      if (value !== null) {
        state.set(path, value);
        continue;
      }
      for (const each of [...state.keys()]) if (each === path || each.startsWith(`${path}.`)) state.delete(each);
    }
  }

  function splice(view, call) {
    for (const [place, removed, added] of call.splices) view.splice(place, removed, ...added);
  }

  R.load = data => {
    R.kinds = data.kinds;
    return new Model(data);
  };
})((self.refold ||= {}));
