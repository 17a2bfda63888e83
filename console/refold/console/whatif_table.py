"""Results of `refold whatif` for many runs:

JSON lines as they come; as text a table at the end, stops first.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from refold.console import descriptions, verdicts
from refold.console.processes import Unchecked
from refold.console.screen import Column, Screen
from refold.console.whatif_question import WhatIfQuestion
from refold.console.whatif_text import cell, code_of, tell, tell_totals
from refold.reducers.errors import ExternalFailure, Inconclusive, NoSuchEntry, RefoldError, WrongUse
from refold.replay import figures
from refold.replay.shards import ShardEnd
from refold.replay.whatif.rule_subset import note_of
from refold.replay.whatif.verdict import Spend, Totals, Verdict, WhatIf, totals_of
from refold.store.protocol import UnknownRun

_RANKS = {Verdict.STOPS: 0, Verdict.DIVERGES: 1, Verdict.INCONCLUSIVE: 3, Verdict.AGREE: 4}
"""Order of runs in the table; rank 2 is for runs that could not be examined."""
_BROKEN = 2
_COUNTED = 3
"""Runs of this rank and later ones are counted instead of listed."""
_TASK = 60


class PolicyVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A run under one policy, as JSON: a `WhatIf`, with `null` for what the record does not contain."""

    policy: str
    whatif: dict[str, Any]


class PolicyTotals(msgspec.Struct, frozen=True, kw_only=True):
    """All runs under one policy, as JSON. `prices` and `contexts` as in `WhatIf`.

    `inconclusive` counts runs by their first reason. `unfit` names the places in the policy that match
    nothing in any run. `notes` has a sentence on verdicts caused by defaults that the policy's file does not
    set.
    """

    policy: str
    totals: Totals
    inconclusive: dict[str, int] = {}
    unfit: list[str] = []
    notes: list[str] = []
    prices: str = ""
    contexts: str = ""


class _TableRow(NamedTuple):
    rank: int
    cells: tuple[str, ...]


class WhatIfTable:
    """Collects results run by run: writes JSON at once, text at the end."""

    def __init__(self, screen: Screen, question: WhatIfQuestion, *, every: bool) -> None:
        self._screen, self._names, self._alone = screen, list(question.policies), question.states
        self._prices = question.prices.name if question.prices else ""
        self._contexts = question.contexts.name if question.contexts else ""
        self._named = question.named
        self._defaults: list[Counter[str]] = [Counter() for _ in self._names]  # verdicts by their cause
        self._every = every
        self._rows: list[_TableRow] = []
        self._hidden: Counter[int] = Counter()  # counted, unlisted runs by rank
        self._found: list[WhatIf] = []
        self._totals = [Totals() for _ in self._names]
        self._inconclusive: list[Counter[str]] = [Counter() for _ in self._names]  # runs by the first reason
        # The number of runs where a place of the policy matches nothing.
        self._unfit: list[Counter[str]] = [Counter() for _ in self._names]
        # The first suggested tool or field for a place of the policy.
        self._meant: list[dict[str, str]] = [{} for _ in self._names]
        self._tooled = 0  # runs with a known tool: for others it is unknown what matches
        self._without: list[NoSuchEntry] = []  # errors of runs without the entry to change
        self._codes: list[int] = []

    @property
    def codes(self) -> list[int]:
        """The exit codes of all results."""
        never = any(path for place in range(len(self._names)) for path in self._fit_nothing(place))
        return [*self._codes, Inconclusive.exit_code] if never else self._codes

    def _fit_nothing(self, place: int) -> list[str]:
        """Return the places in a policy that match nothing in any of the runs."""
        return sorted(path for path, count in self._unfit[place].items() if count == self._tooled)

    def _unfit_in(self, place: int) -> list[str]:
        never, counts = self._fit_nothing(place), sorted(self._unfit[place].items())
        told = {
            path: f"{path} matches nothing in {'any' if path in never else count} of these runs"
            for path, count in counts
        }
        meant = self._meant[place]
        return [
            f"{said}; did you mean {meant[path]!r}?" if path in meant else said for path, said in told.items()
        ]

    def take(self, run: str, found: Sequence[WhatIf] | RefoldError) -> None:
        """Add one run. Raises `WrongUse` for a policy that is invalid for every run."""
        if isinstance(found, RefoldError):  # `UnknownRun`: listed, but it has no events
            self._fail(run, found)
            return
        self._codes += [code_of(each) for each in found]
        self._totals = [totals + totals_of(each) for totals, each in zip(self._totals, found, strict=True)]
        self._tooled += bool(found[0].tools)
        self._count(found)
        rank = min(_RANKS[each.verdict] for each in found)
        if rank < _COUNTED or self._every:
            first = found[0]
            about = (run, figures.clock(first.began), descriptions.task(first.task, _TASK))
            self._rows.append(_TableRow(rank, (*about, *map(cell, found))))
        else:
            self._hidden[rank] += 1
        self._found += found if self._alone else ()
        if self._screen.json:
            for name, each in zip(self._names, found, strict=True):
                self._screen.document(PolicyVerdict(policy=name, whatif=json_of(each)))

    def _count(self, found: Sequence[WhatIf]) -> None:
        """Count one run's complaints, reasons and defaults for each policy."""
        for place, each in enumerate(found):
            self._unfit[place].update({complaint.path for complaint in each.unfit})
            for complaint in each.unfit:
                if complaint.meant:
                    self._meant[place].setdefault(complaint.path, complaint.meant)
            if each.verdict is Verdict.INCONCLUSIVE:
                self._inconclusive[place][each.why] += 1
            self._defaults[place].update(each.defaults)

    def finish(self) -> None:
        """Print what concerns all runs. Raises `NoSuchEntry` if no run has the entry to change."""
        if self._without and len(self._without) == len(self._codes):
            raise self._without[0]
        if self._screen.json:
            self._write_totals()
            return
        if self._found:
            for name, each in zip(self._names, self._found, strict=True):
                tell(self._screen, name, each)
        elif self._rows or self._hidden:
            self._tell_rows()
            self._tell_totals()
        for place in range(len(self._names)):
            for sentence in self._notes(place):
                self._screen.say(descriptions.line(sentence))

    def _write_totals(self) -> None:
        for place, (name, totals) in enumerate(zip(self._names, self._totals, strict=True)):
            told = PolicyTotals(
                policy=name,
                totals=totals,
                inconclusive=dict(self._inconclusive[place].most_common()),
                unfit=self._fit_nothing(place),
                notes=self._notes(place),
                prices=self._prices,
                contexts=self._contexts,
            )
            self._screen.document(told)

    def _tell_totals(self) -> None:
        for place, (name, totals) in enumerate(zip(self._names, self._totals, strict=True)):
            self._screen.say()
            tell_totals(self._screen, name, totals, self._unfit_in(place), self._inconclusive[place])
        if self._prices:
            self._screen.say(f"responses without a recorded price are priced by {self._prices}")
        if self._contexts:
            self._screen.say(f"context lengths that are not recorded come from {self._contexts}")

    def _notes(self, place: int) -> list[str]:
        defaults = self._defaults[place]
        if not defaults:
            return []
        name = self._names[place]
        return [note_of(name, defaults.total(), list(defaults), self._named[name].rules)]

    def _tell_rows(self) -> None:
        rows = [each.cells for each in sorted(self._rows, key=lambda row: row.rank)]  # a stable sort
        if rows:
            share = 80 if len(self._names) == 1 else 0  # the verdict, with its call and rule
            policies = [Column(name.upper(), elastic=True, main=share) for name in self._names]
            about = [Column("RUN"), Column("BEGAN", optional=1), Column("TASK", elastic=True, optional=2)]
            self._screen.table([*about, *policies], rows)
        agree, unknown = self._hidden[_RANKS[Verdict.AGREE]], self._hidden[_COUNTED]
        counts = [f"{figures.quantity(agree, 'run')} AGREE{'S' if agree == 1 else ''}"] if agree else []
        counts += [f"{figures.quantity(unknown, 'run')} inconclusive"] if unknown else []
        if counts:
            every = "every policy" if len(self._names) > 1 else self._names[0]
            listed = f"{'and ' if rows else ''}{', '.join(counts)} under {every}"
            self._screen.say(f"{listed}; --every lists them")

    def end(self, ended: ShardEnd) -> None:
        """End a part of the store, with the problem that kept it from being finished, if any."""
        if ended.problem:
            self._codes.append(ExternalFailure.exit_code)
            row = self._broken_row(ended.shard.name, f"NOT EXAMINED: {ended.problem}")
            unchecked = Unchecked(part=ended.shard.name, unchecked=ended.problem)
            self._screen.result(unchecked, lambda: self._rows.append(row))

    def _fail(self, run: str, error: RefoldError) -> None:
        if isinstance(error, NoSuchEntry) and not self._alone:
            self._without.append(error)
            error = Inconclusive(str(error))
        if isinstance(error, WrongUse) and not isinstance(error, UnknownRun):
            raise error
        problem, code = verdicts.describe_failure(run, error)
        self._codes.append(code)
        said = f"{'DAMAGED' if problem.damaged else 'inconclusive'}: {error}"
        row = self._broken_row(run, said)
        self._screen.result(problem, lambda: self._rows.append(row))

    def _broken_row(self, name: str, said: str) -> "_TableRow":
        return _TableRow(_BROKEN, (name, "", "", said, *([""] * (len(self._names) - 1))))


def json_of(found: WhatIf) -> dict[str, Any]:
    """Convert a result for JSON: null for what the record does not contain, and decisions and states as
    objects.
    """
    told: dict[str, Any] = msgspec.to_builtins(found)
    for part in ("until", "saved", "again"):
        told[part].update(dict.fromkeys(_unknown_fields(getattr(found, part))))
    for part in ("recorded", "derived", "state"):  # JSON, as text
        text: str | None = getattr(found, part)
        told[part] = msgspec.Raw(text.encode()) if text else None
    return told


def _unknown_fields(spend: Spend) -> Iterator[str]:
    """Yield the fields that are 0 because their value is unknown."""
    if spend.steps:
        yield from (name for name in ("input", "output", "duration") if not getattr(spend, name))
    if spend.unpriced and not spend.cost_nanousd:
        yield "cost_nanousd"
