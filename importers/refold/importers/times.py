"""Times as a source wrote them: which of them are the first and the last."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from refold.importers.fields import JSON, instant


class Times:
    """The first and the last of some times, in the words of their source. What is no time is none."""

    def __init__(self, written: Iterable[JSON] = ()) -> None:
        self._first: tuple[int, str] | None = None
        self._last: tuple[int, str] | None = None
        for each in written:
            self.see(each, instant(each))

    def see(self, written: JSON, at: int | None) -> None:
        """One time more, which is `at`."""
        if at is None or not isinstance(written, str):
            return
        if self._first is None or at < self._first[0]:
            self._first = at, written
        if self._last is None or at > self._last[0]:
            self._last = at, written

    def edges(self) -> tuple[str, str] | None:
        """The first and the last, each as `stamp` writes it; None without any."""
        return (stamp(self._first[1]), stamp(self._last[1])) if self._first and self._last else None


def stamp(written: str) -> str:
    """A time as its source wrote it, in UTC as `Z` where it names a zone, a fraction of zero left out."""
    read = datetime.fromisoformat(written)
    if read.utcoffset():
        fine = re.search(r"\.\d{4}", written)
        timespec = "microseconds" if fine else "milliseconds"
        written = read.astimezone(UTC).isoformat(timespec=timespec)
    zone = "Z" if written.endswith(("Z", "z", "+00:00")) else ""
    bare = written.removesuffix("+00:00").rstrip("Zz") if zone else written
    whole, dot, fraction = bare.partition(".")
    return whole + (dot + fraction if fraction.strip("0") else "") + zone
