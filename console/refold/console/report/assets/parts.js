// The lists that grow with the run: in parts, each in an element of its own, packed. What a row shows is read once and kept; what
// is stored and derived of an event is read when somebody looks there, and let go of again: memory follows what is looked at.
(R => {
  "use strict";

  const MOST = 2 << 20; // characters of JSON whose values are kept, and one part at least

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

  // A list whose values are read as they are asked for. `made` makes of a value what is kept of it.
  R.Parts = class {
    constructor(name, counts, made) {
      Object.assign(this, { name, made, kept: new Map(), held: 0 });
      this.starts = counts.map((_, part) => counts.slice(0, part).reduce((sum, count) => sum + count, 0));
      this.length = counts.reduce((sum, count) => sum + count, 0);
    }

    // The value at a place; undefined of one that the page does not have, or not any more as it was made.
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
      this.kept.set(number, found); // the last one in the order of a Map: the first is the one that nobody looked at for longest
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
        // Somebody edited the page: whoever looks for these values says that they are not there.
      }
      this.held += text.length;
      return { values, size: text.length };
    }
  };
})((self.refold ||= {}));
