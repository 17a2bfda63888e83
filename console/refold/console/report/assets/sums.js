// Checks whether an element still has its original text, by SHA-256: the digests of parts are in the data, that of the data is beside it.
// Detects accidents and simple edits, but not recomputed digests: nothing inside a page can.
(R => {
  "use strict";

  const encoder = new TextEncoder();
  const held = new Map(); // for each element that was read, whether its text has its digest
  let sums = new Map();

  // The text of an element, "" if missing; it is hashed once.
  R.written = (id, sum = sums.get(id)) => {
    const text = document.getElementById(id)?.textContent ?? "";
    if (!held.has(id)) held.set(id, R.hex(R.sha256(encoder.encode(text))) === sum);
    return text;
  };

  // The page's data, which lists its parts.
  R.told = () => {
    const data = JSON.parse(R.written("data", document.getElementById("sum")?.textContent));
    sums = new Map(Object.entries(data.sums));
    return data;
  };

  R.partNames = () => [...sums.keys()];

  // The elements read so far that were changed, and the message about them.
  R.edited = () => [...held.keys()].filter(id => !held.get(id));
  R.editedSaid = edited => `This page was edited after it was made: ${edited.length === 1 ? "part" : "parts"} ${edited.join(", ")}`;
})((self.refold ||= {}));
