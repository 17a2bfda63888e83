// SHA-256 (FIPS 180-4). Some browsers do not allow WebCrypto in a page from disk, and WebCrypto is asynchronous,
// which for thirty thousand short texts takes longer than the computation.
(R => {
  "use strict";

  const PRIMES = [];
  for (let n = 2; PRIMES.length < 64; n++) if (PRIMES.every(p => n % p)) PRIMES.push(n);
  const fraction = x => ((x - Math.floor(x)) * 0x100000000) | 0;
  const START = PRIMES.slice(0, 8).map(p => fraction(Math.sqrt(p)));
  const K = Int32Array.from(PRIMES, p => fraction(Math.cbrt(p)));
  const W = new Int32Array(64);
  const turned = (x, n) => (x >>> n) | (x << (32 - n));

  function take(H, view, at) {
    for (let i = 0; i < 16; i++) W[i] = view.getInt32(at + 4 * i);
    for (let i = 16; i < 64; i++) {
      const x = W[i - 15];
      const y = W[i - 2];
      const s0 = turned(x, 7) ^ turned(x, 18) ^ (x >>> 3);
      const s1 = turned(y, 17) ^ turned(y, 19) ^ (y >>> 10);
      W[i] = (W[i - 16] + s0 + W[i - 7] + s1) | 0;
    }
    let a = H[0], b = H[1], c = H[2], d = H[3], e = H[4], f = H[5], g = H[6], h = H[7];
    for (let i = 0; i < 64; i++) {
      const s1 = turned(e, 6) ^ turned(e, 11) ^ turned(e, 25);
      const t1 = (h + s1 + ((e & f) ^ (~e & g)) + K[i] + W[i]) | 0;
      const s0 = turned(a, 2) ^ turned(a, 13) ^ turned(a, 22);
      const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      h = g; g = f; f = e; e = (d + t1) | 0; d = c; c = b; b = a; a = (t1 + t2) | 0;
    }
    H[0] += a; H[1] += b; H[2] += c; H[3] += d; H[4] += e; H[5] += f; H[6] += g; H[7] += h;
  }

  R.hex = bytes => Array.from(bytes, byte => byte.toString(16).padStart(2, "0")).join("");

  // The 32 bytes for these bytes (Uint8Array to Uint8Array).
  R.sha256 = bytes => {
    const H = Int32Array.from(START);
    const whole = bytes.length - (bytes.length % 64);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    for (let at = 0; at < whole; at += 64) take(H, view, at);
    const rest = bytes.length - whole;
    const tail = new Uint8Array(rest < 56 ? 64 : 128);
    tail.set(bytes.subarray(whole));
    tail[rest] = 0x80;
    const end = new DataView(tail.buffer);
    end.setUint32(tail.length - 8, Math.floor(bytes.length / 0x20000000));
    end.setUint32(tail.length - 4, (bytes.length * 8) >>> 0);
    for (let at = 0; at < tail.length; at += 64) take(H, end, at);
    const made = new DataView(new ArrayBuffer(32));
    H.forEach((x, i) => made.setInt32(4 * i, x));
    return new Uint8Array(made.buffer);
  };
})((self.refold ||= {}));
