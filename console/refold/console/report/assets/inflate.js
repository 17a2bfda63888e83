// Raw deflate (RFC 1951), decompressed synchronously: a browser's own decompression is asynchronous.
(R => {
  "use strict";

  // For each symbol of a length or distance: the number of extra bits, and the base value.
  const LENGTH_BITS = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
  const DISTANCE_BITS = [0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13];
  const added = (bits, first) => bits.map((_, place) => first + bits.slice(0, place).reduce((sum, each) => sum + (1 << each), 0));
  const LENGTHS = [...added(LENGTH_BITS, 3).slice(0, 28), 258];
  const DISTANCES = added(DISTANCE_BITS, 1);
  const ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
  const [WIDTH, END] = [4, 256]; // bits of a code's length beside its symbol; the symbol that ends a block

  // A table from the next bits of the input (as many as the longest code has) to the symbol and the length of its code.
  function table(lengths) {
    const most = Math.max(1, ...lengths);
    const symbols = new Uint16Array(1 << most);
    let code = 0;
    for (let length = 1; length <= most; length++, code <<= 1)
      for (let symbol = 0; symbol < lengths.length; symbol++) {
        if (lengths[symbol] !== length) continue;
        let turned = 0;
        for (let bit = 0; bit < length; bit++) turned |= ((code >> bit) & 1) << (length - 1 - bit);
        for (let at = turned; at < symbols.length; at += 1 << length) symbols[at] = (symbol << WIDTH) | length;
        code++;
      }
    return { symbols, most };
  }

  const FIXED = [table(Array.from({ length: 288 }, (_, at) => (at < 144 ? 8 : at < 256 ? 9 : at < 280 ? 7 : 8))), table(Array(30).fill(5))];

  class Input {
    constructor(bytes) {
      Object.assign(this, { bytes, place: 0, held: 0, bits: 0 });
    }
    // Zeros after the end, as many as a code may look ahead.
    hold(count) {
      while (this.held < count) {
        if (this.place > this.bytes.length + 2) throw new Error("the packed bytes end too early");
        this.bits |= (this.bytes[this.place++] ?? 0) << this.held;
        this.held += 8;
      }
    }
    drop(count) {
      this.bits >>>= count;
      this.held -= count;
    }
    take(count) {
      this.hold(count);
      const taken = this.bits & ((1 << count) - 1);
      this.drop(count);
      return taken;
    }
    symbol({ symbols, most }) {
      this.hold(most);
      const found = symbols[this.bits & (symbols.length - 1)];
      if (!found) throw new Error("no code of the packed bytes");
      this.drop(found & ((1 << WIDTH) - 1));
      return found >> WIDTH;
    }
    // The tables of a block with dynamic codes.
    tables() {
      const [literals, distances, codes] = [this.take(5) + 257, this.take(5) + 1, this.take(4) + 4];
      const own = Array(19).fill(0);
      for (let at = 0; at < codes; at++) own[ORDER[at]] = this.take(3);
      const coded = table(own);
      const lengths = [];
      while (lengths.length < literals + distances) {
        const symbol = this.symbol(coded);
        const again = symbol < 16 ? 1 : symbol === 16 ? this.take(2) + 3 : symbol === 17 ? this.take(3) + 3 : this.take(7) + 11;
        const length = symbol < 16 ? symbol : symbol === 16 ? lengths[lengths.length - 1] ?? 0 : 0;
        for (let i = 0; i < again; i++) lengths.push(length);
      }
      return [table(lengths.slice(0, literals)), table(lengths.slice(literals, literals + distances))];
    }
  }

  class Output {
    constructor(size) {
      Object.assign(this, { bytes: new Uint8Array(size), size: 0 });
    }
    room(count) {
      if (this.size + count <= this.bytes.length) return;
      const larger = new Uint8Array(2 * (this.size + count));
      larger.set(this.bytes);
      this.bytes = larger;
    }
    copy(length, distance) {
      if (distance > this.size) throw new Error("the packed bytes point before their beginning");
      this.room(length);
      for (let i = 0; i < length; i++, this.size++) this.bytes[this.size] = this.bytes[this.size - distance];
    }
    put(bytes) {
      this.room(bytes.length);
      this.bytes.set(bytes, this.size);
      this.size += bytes.length;
    }
  }

  function stored(input, output) {
    input.drop(input.held % 8);
    const length = input.take(16);
    input.take(16);
    const from = input.place - input.held / 8;
    output.put(input.bytes.subarray(from, from + length));
    Object.assign(input, { place: from + length, held: 0, bits: 0 });
  }

  function coded(input, output, [literals, distances]) {
    for (let symbol = input.symbol(literals); symbol !== END; symbol = input.symbol(literals)) {
      if (symbol < END) {
        if (output.size === output.bytes.length) output.room(1);
        output.bytes[output.size++] = symbol;
        continue;
      }
      const length = LENGTHS[symbol - 257] + input.take(LENGTH_BITS[symbol - 257]);
      const far = input.symbol(distances);
      output.copy(length, DISTANCES[far] + input.take(DISTANCE_BITS[far]));
    }
  }

  // Throws an Error for invalid bytes.
  R.inflate = bytes => {
    const [input, output] = [new Input(bytes), new Output(4 * bytes.length + 64)];
    for (let last = 0; !last; ) {
      last = input.take(1);
      const way = input.take(2);
      if (way === 3) throw new Error("no way of packing bytes");
      if (way === 0) stored(input, output);
      else coded(input, output, way === 1 ? FIXED : input.tables());
    }
    return output.bytes.subarray(0, output.size);
  };
})((self.refold ||= {}));
