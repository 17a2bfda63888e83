"""Known limits of the formats: `limits.toml` lists each expected difference exactly, with its reason.

An unlisted difference is reported. A listed difference that vanished is reported, too.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from clients.comparison import Finding

FILE = Path(__file__).with_name("limits.toml")


class Limit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An expected difference of a client: in these scripts, at these places, with these words.

    `all` places: all that are compared in the script.
    """

    client: str
    scripts: tuple[str, ...] | Literal["all"]
    property: str
    what: str
    places: tuple[str, ...] | Literal["all"]
    reason: str

    def applies(self, client: str, script: str) -> bool:
        """Whether the limit is for this run."""
        return self.client == client and (self.scripts == "all" or script in self.scripts)


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one property of a run: the number of compared and of equal places.

    `limits`: the expected differences. `unknown`: at all of those, the import makes no claim. `differs`:
    unexpected differences, and `vanished`: expected ones that were not found, as lines.
    """

    compared: int
    equal: int
    limits: tuple[str, ...] = ()
    unknown: bool = False
    differs: tuple[str, ...] = ()
    vanished: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """The verdict in a word."""
        if self.differs or self.vanished:
            return "DIFFERS" if self.differs else "VANISHED"
        if self.limits:
            return "unknown" if self.unknown else "limit"
        return "equal" if self.compared else "-"


def read_limits(file: Path = FILE) -> list[Limit]:
    """Read the limits in a file.

    Raises msgspec.ValidationError, with the position of the fault.
    """
    return msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8"))["limit"], list[Limit])


def judge(
    client: str, script: str, findings: Mapping[str, Sequence[Finding]], limits: Iterable[Limit]
) -> dict[str, Cell]:
    """Compare the findings of a run with its limits, by property."""
    expected = [limit for limit in limits if limit.applies(client, script)]
    return {
        name: _cell(found, [limit for limit in expected if limit.property == name])
        for name, found in findings.items()
    }


def _cell(found: Sequence[Finding], limits: Sequence[Limit]) -> Cell:
    places = list(dict.fromkeys(finding.place for finding in found))
    wrong = [finding for finding in found if finding.what]
    expected = {(place, limit.what) for limit in limits for place in _places(limit, places)}
    actual = {(finding.place, finding.what) for finding in wrong}
    listed = [finding for finding in wrong if (finding.place, finding.what) in expected]
    return Cell(
        compared=len(places),
        equal=len(set(places) - {finding.place for finding in wrong}),
        limits=tuple(dict.fromkeys(finding.what for finding in listed)),
        unknown=bool(listed) and all(finding.unknown for finding in listed),
        differs=_lines(actual - expected),
        vanished=_lines(expected - actual),
    )


def _places(limit: Limit, places: Sequence[str]) -> Sequence[str]:
    return places if limit.places == "all" else limit.places


def _lines(differences: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Group differences by words: a line each, with its places."""
    by_what: dict[str, list[str]] = {}
    for place, what in sorted(differences):
        by_what.setdefault(what, []).append(place)
    return tuple(f"{what} ({', '.join(places)})" for what, places in by_what.items())
