// The index of pages: filters rows by the typed text and sorts by column. Without this script it is a plain table.
(() => {
  "use strict";

  const body = document.querySelector("tbody");
  const rows = [...body.rows];
  const [text, state, failed] = ["search", "state", "failed"].map(id => document.getElementById(id));
  const counted = document.getElementById("counted");
  const fits = row => text.value.toLowerCase().split(/\s+/).every(word => row.textContent.toLowerCase().includes(word))
    && (!state.value || row.dataset.state === state.value) && (!failed.checked || row.dataset.harm !== "0");

  const look = () => {
    let shown = 0;
    for (const row of rows) shown += !(row.hidden = !fits(row));
    counted.textContent = shown === rows.length ? "" : `${shown} of ${rows.length}`;
  };
  for (const each of [text, state, failed]) each.addEventListener("input", look);

  // Sort numbers by size, unknown values last; other values alphabetically.
  const worth = (row, column) => row.cells[column].dataset.sort ?? row.cells[column].textContent;
  const compared = (one, other, column) => {
    const [a, b] = [worth(one, column), worth(other, column)];
    if (a === "" || b === "") return (a === "") - (b === "");
    return Number.isNaN(Number(a)) || Number.isNaN(Number(b)) ? a.localeCompare(b) : Number(a) - Number(b);
  };

  let sorted = -1;
  document.querySelectorAll("th button").forEach((button, column) => button.addEventListener("click", () => {
    const numeric = button.parentElement.classList.contains("number");
    const down = sorted === column ? button.dataset.order !== "down" : numeric;
    sorted = column;
    for (const each of document.querySelectorAll("th button")) delete each.dataset.order;
    button.dataset.order = down ? "down" : "up";
    const known = row => worth(row, column) !== "";
    const order = [...rows].sort((one, other) => (down && known(one) && known(other) ? -1 : 1) * compared(one, other, column));
    body.classList.add("flat"); // children are no longer below their parents
    body.append(...order);
  }));
  document.querySelector("form").hidden = false;
})();
