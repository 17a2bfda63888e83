// The hash chain, checked in the page by the rule in refold's reference, "The hash chain". An event is compared with its own
// stored hash, so that only edited events are reported; events after the first broken one are not trusted either. Other data is
// compared with its digests first: if the page was edited, nothing in it is trusted.
(R => {
  "use strict";

  const encoder = new TextEncoder();

  const unhex = text => Uint8Array.from(text.match(/../g) || [], pair => parseInt(pair, 16));
  const bytesOf = text =>
    typeof text === "string" ? encoder.encode(text) : Uint8Array.from(atob(text.base64), c => c.charCodeAt(0));

  function joined(...parts) {
    const made = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    parts.reduce((at, part) => (made.set(part, at), at + part.length), 0);
    return made;
  }

  const framed = bytes => joined(encoder.encode(`${bytes.length}:`), bytes);

  // Return what is wrong with an event after number `seq` with the hash `previous`; "" if it is valid.
  function wrong(event, stored, run, seq, previous) {
    if (event.seq !== seq + 1) return `it stands after event ${seq}: others are missing, doubled or out of order`;
    if (event.run) return "it is an event of another run";
    if (!stored.hash) return "its record is not readable in this page";
    const { body, content, salt, hash, digest } = stored;
    if (event.erased !== (content === null && digest !== null)) return "the list is wrong about its payload";
    if (content === null && salt) return "it has a salt but no payload";
    if (content !== null && digest === null) return "it has a payload, but was recorded without one";
    if (digest !== null && digest.length !== 64) return "its content digest is not 32 bytes long";
    if (content !== null && R.hex(R.sha256(joined(framed(unhex(salt)), bytesOf(content)))) !== digest)
      return "its payload or salt does not match its digest";
    const header = ["sha256", run, String(event.seq), event.at, event.kind].map(x => framed(encoder.encode(x)));
    const told = digest === null ? new Uint8Array(0) : unhex(digest);
    const derived = R.hex(R.sha256(joined(unhex(previous), ...header, R.sha256(bytesOf(body)), told)));
    return derived === hash ? "" : "its hash does not follow from the previous event, its header, body and digest";
  }

  // The state before the check: {checked, broken: Map of seq to reason, first, done, head, edited: names of parts}.
  R.unchecked = () => ({ checked: 0, broken: new Map(), first: 0, done: false, head: "", edited: R.edited() });

  // Check all parts and then all events, a slice at a time; `tell` receives the state so far.
  R.checkChain = (model, tell) => {
    const broken = new Map();
    const parts = R.partNames();
    let place = 0;
    let previous = "0".repeat(64);
    let seq = 0;
    const step = () => {
      if (parts.length) {
        R.written(parts.pop());
        return true;
      }
      const event = model.events[place++];
      if (!event) return false;
      const { stored } = event;
      const problem = wrong(event, stored, model.about.run, seq, previous);
      if (problem) broken.set(event.seq, problem);
      [seq, previous] = [event.seq, stored.hash];
      return place < model.events.length;
    };
    return R.sliced(step, done => tell({ checked: place, broken, first: broken.size ? broken.keys().next().value : 0, done, head: previous, edited: R.edited() }));
  };
})((self.refold ||= {}));
