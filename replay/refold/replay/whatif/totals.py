"""What another policy would have meant for many runs. Totals merge in any order, so that pieces may be judged apart."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from refold.replay.whatif.verdict import Fired, Spend, Verdict, WhatIf
from refold.store.protocol import Origin

Counts = Mapping[str, int]


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over runs under one policy. `Totals()` is that of none.

    `unfit` counts runs that agree and have a rule that fits nothing in them.
    `cut_short` counts runs that were cut short, by the code that ends them; `done` those that would have been over with an
    answer where the record goes on, which saves nothing: whoever asked had more to ask. `saved` is of those cut short
    exactly, `at_least` of the `inexact` ones, where something was under way. Of runs that diverge nothing is saved.
    `fired` counts what guards and limits said as long as the runs were one, of runs that diverge too, `in_runs` in how
    many runs they did; `parted` in what runs diverge first, `in_turn` in which turn. `unknown` counts runs of which
    something could not be judged.

    What a fork has of another run is counted there and not again: see `Prefixes`. `before` counts forks that part in what
    they share. Such a one is in `runs` and `verdicts`, and what it spent on its own is saved; nothing else of it counts.
    """

    runs: int = 0
    unfit: int = 0
    verdicts: Counts = {}
    cut_short: Counts = {}
    done: int = 0
    saved: Spend = Spend()
    at_least: Spend = Spend()
    inexact: int = 0
    fired: Counts = {}
    in_runs: Counts = {}
    parted: Counts = {}
    in_turn: Counts = {}
    before: int = 0
    unknown: int = 0

    def __add__(self, other: "Totals") -> "Totals":
        return Totals(
            runs=self.runs + other.runs,
            unfit=self.unfit + other.unfit,
            verdicts=_sum(self.verdicts, other.verdicts),
            cut_short=_sum(self.cut_short, other.cut_short),
            done=self.done + other.done,
            saved=self.saved + other.saved,
            at_least=self.at_least + other.at_least,
            inexact=self.inexact + other.inexact,
            fired=_sum(self.fired, other.fired),
            in_runs=_sum(self.in_runs, other.in_runs),
            parted=_sum(self.parted, other.parted),
            in_turn=_sum(self.in_turn, other.in_turn),
            before=self.before + other.before,
            unknown=self.unknown + other.unknown,
        )


class Prefixes:
    """Which events of forks another run already counts. Take the runs in any order: each event is then counted once.

    A fork's log has the events of the runs behind it, up to where each was left (`Store.lineage`).
    """

    def __init__(self) -> None:
        self._counted: dict[str, int] = {}  # up to which event of a run's own log all is counted

    def shared(self, run: str, lineage: Sequence[Origin]) -> int:
        """Up to which event what the run's log has is counted already; 0: nothing of it."""
        counted = 0
        for origin in lineage:
            counted = max(counted, min(self._counted.get(origin.run, 0), origin.seq))
            if counted < origin.seq:
                return counted
        return max(counted, self._counted.get(run, 0))

    def count(self, run: str, lineage: Sequence[Origin], last: int) -> None:
        """The run is counted, with all of its log, up to event `last`."""
        for owner, seq in [*((origin.run, origin.seq) for origin in lineage), (run, last)]:
            self._counted[owner] = max(seq, self._counted.get(owner, 0))


def totals_of(found: WhatIf) -> Totals:
    """The totals of one run. Of guards that spoke very often only what was kept is counted."""
    before = 0 < found.seq <= found.shared
    cut_short, diverges = found.saves and not before, found.verdict is Verdict.DIVERGES and not before
    done = found.verdict is Verdict.STOPS and not found.saves and found.saved != Spend()
    saved = found.saved - found.again if found.saves else Spend()
    fired = list(_once([fired for fired in found.fired if fired.fact > found.shared]))
    return Totals(
        runs=1,
        unfit=int(found.verdict is Verdict.AGREE and bool(found.unfit)),
        verdicts={str(found.verdict): 1},
        cut_short={found.code: 1} if cut_short else {},
        done=int(done and not before),
        saved=saved if found.exact else Spend(),
        at_least=Spend() if found.exact else saved,
        inexact=int(cut_short and not found.exact),
        fired=Counter(fired),
        in_runs=dict.fromkeys(fired, 1),
        parted={str(found.kind): 1} if diverges else {},
        in_turn={str(found.turn): 1} if diverges else {},
        before=int(before),
        unknown=int(bool(found.unknown)),
    )


def _once(fired: Sequence[Fired]) -> Iterator[str]:
    """Yield the guard or limit of each intervention: a stop and the calls that it skips are one."""
    stops = {(each.who, each.fact) for each in fired if each.said == "stop"}
    yield from (who for who, _ in sorted(stops))
    yield from (each.who for each in fired if (each.who, each.fact) not in stops)


def _sum(one: Counts, other: Counts) -> Counts:
    return {key: one.get(key, 0) + other.get(key, 0) for key in sorted({*one, *other})}
