// Whether an element still holds what was written into it, by SHA-256: that of a part stands in the data, that of the data beside it. It
// finds accidents and clumsy edits, and nobody who computes the digests anew: nothing that is in a page can.
(R => {
  "use strict";

  const encoder = new TextEncoder();
  const held = new Map(); // of each element that was read, whether its text has its digest
  let sums = new Map();

  // The text of an element, "" where there is none; it is summed once.
  R.written = (id, sum = sums.get(id)) => {
    const text = document.getElementById(id)?.textContent ?? "";
    if (!held.has(id)) held.set(id, R.hex(R.sha256(encoder.encode(text))) === sum);
    return text;
  };

  // The page's data: which parts it has is known from here on.
  R.told = () => {
    const data = JSON.parse(R.written("data", document.getElementById("sum")?.textContent));
    sums = new Map(Object.entries(data.sums));
    return data;
  };

  R.partNames = () => [...sums.keys()];

  // The elements that are not as they were written, of those that were read up to now; and what is said of them.
  R.edited = () => [...held.keys()].filter(id => !held.get(id));
  R.editedSaid = edited => `This page was edited after it was made: ${edited.length === 1 ? "part" : "parts"} ${edited.join(", ")}`;
})((self.refold ||= {}));
