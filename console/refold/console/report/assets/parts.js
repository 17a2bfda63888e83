// Lists that grow with the run, in packed parts, each in an element of its own. Values for rows are read once and kept;
// stored and derived data of an event is read on demand and released, so memory depends on what is displayed.
(R => {
  "use strict";

  const MOST = 2 << 20; // characters of JSON whose values are kept; at least one part is

  function bytesOf(text) {
    if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
    const letters = atob(text);
    const bytes = new Uint8Array(letters.length);
    for (let place = 0; place < bytes.length; place++) bytes[place] = letters.charCodeAt(place);
    return bytes;
  }

  const unpacked = id => new TextDecoder().decode(R.inflate(bytesOf(R.written(id))));

  // All values of a list.
  R.whole = (name, counts) => counts.flatMap((_, part) => JSON.parse(unpacked(`${name}-${part}`)));

  // A list whose values are read on demand. `made` converts a value to what is kept of it.
  R.Parts = class {
    constructor(name, counts, made) {
      Object.assign(this, { name, made, kept: new Map(), held: 0 });
      this.starts = counts.map((_, part) => counts.slice(0, part).reduce((sum, count) => sum + count, 0));
      this.length = counts.reduce((sum, count) => sum + count, 0);
    }

    // The value at an index; undefined if the page does not have it, or it was changed.
    at(place) {
      if (!(place >= 0 && place < this.length)) return undefined;
      let [low, high] = [0, this.starts.length];
      while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (this.starts[middle] <= place) low = middle;
        else high = middle;
      }
      return this.part(low).values[place - this.starts[low]];
    }

    part(number) {
      const found = this.kept.get(number) ?? this.read(number);
      this.kept.delete(number);
      this.kept.set(number, found); // last in the order of the Map: the first is the least recently used
      for (const [other, { size }] of this.kept) {
        if (this.held <= MOST || other === number) break;
        this.kept.delete(other);
        this.held -= size;
      }
      return found;
    }

    read(number) {
      let [text, values] = ["", []];
      try {
        text = unpacked(`${this.name}-${number}`);
        values = JSON.parse(text).map(this.made);
      } catch {
        // The page was edited: callers report missing values.
      }
      this.held += text.length;
      return { values, size: text.length };
    }
  };
})((self.refold ||= {}));
