// Numbers as text, as the command line formats them.
(R => {
  "use strict";

  R.count = number => String(number).replace(/\B(?=(\d{3})+(?!\d))/g, ",");

  // Nanoseconds, as a number or a text; values too large for a double are precise to the second.
  R.seconds = nanoseconds => {
    const value = Number(nanoseconds) / 1e9;
    if (value < 0) return `-${R.seconds(-Number(nanoseconds))}`;
    if (value < 100) return Number.isInteger(value) ? `${value} s` : `${value.toFixed(value < 1 ? 2 : 1)} s`;
    const whole = Math.round(value);
    if (whole < 6000) return `${Math.floor(whole / 60)} m ${String(whole % 60).padStart(2, "0")} s`;
    return `${R.count(Math.floor(whole / 3600))} h ${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")} m`;
  };

  // Time since the run began, if the event has a time.
  R.elapsed = event => (event.row.elapsed === undefined ? "-" : R.seconds(event.row.elapsed));

  // A duration, "-" if it was not measured.
  R.took = nanoseconds => (nanoseconds === null || nanoseconds === undefined ? "-" : R.seconds(nanoseconds));

  R.dollars = nano => {
    if (nano === null || nano === undefined) return "-";
    const value = nano / 1e9;
    if (value === 0 || value >= 10) return value ? `$${value.toFixed(2)}` : "$0";
    return value >= 0.001 ? `$${value.toFixed(4)}` : `$${value.toPrecision(2)}`;
  };

  R.clock = nanoseconds => {
    if (Number(nanoseconds) === 0) return "-"; // a transcript without times
    const date = new Date(Number(BigInt(nanoseconds) / 1000000n));
    if (Number.isNaN(date.getTime())) return `${nanoseconds} ns`;
    const two = number => String(number).padStart(2, "0");
    const day = `${date.getUTCFullYear()}-${two(date.getUTCMonth() + 1)}-${two(date.getUTCDate())}`;
    return `${day} ${two(date.getUTCHours())}:${two(date.getUTCMinutes())}:${two(date.getUTCSeconds())} UTC`;
  };

  R.size = characters =>
    characters < 1024 ? `${characters} chars` : `${(characters / 1024).toFixed(1)} k chars`;
})((self.refold ||= {}));
