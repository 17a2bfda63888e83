"""`make bench ARGS=rules`: permission rules asked about recorded sessions, beside permdiff on the same."""

import tempfile
from statistics import median

import msgspec

from bench.contenders import Contender, Missing, contender
from bench.sessions import CALLS, RULES

_MB = 2**20


class Prepared(msgspec.Struct, frozen=True):
    """The store: its runs with their numbers of events, and CPU seconds of the import."""

    seconds: float
    runs: list[tuple[str, int]]
    peak: int


class Taken(msgspec.Struct, frozen=True):
    """CPU seconds and peak bytes of a case; `read` of the seconds were for reading files.

    `found`: how many calls or runs, by what was decided.
    """

    seconds: float
    peak: int
    found: dict[str, int]
    read: float = 0
    calls: int = 0


def print_rules(rounds: int, calls: int) -> None:
    """Measure and print: each case in a process of its own, in turn."""
    print(f"\nPermission rules over {calls:,} calls in sessions of {CALLS}, {len(RULES)} rules: CPU seconds,")
    print("peak MB of its process. permdiff reads the files each time, refold its store")
    with tempfile.TemporaryDirectory() as folder:
        with Contender("rules_steps.py") as ours:
            prepared = ours.ask(Prepared, "prepare", folder=folder, calls=calls)
        events = sum(size for _, size in prepared.runs)
        print(f"import, once: {prepared.seconds:6.1f} s ({len(prepared.runs):,} runs, {events:,} events)")
        taken: dict[str, list[Taken]] = {}
        for _ in range(rounds):
            for case in ("whatif", "hits"):
                with Contender("rules_steps.py") as ours:
                    answer = ours.ask(Taken, case, folder=folder, runs=prepared.runs)
                taken.setdefault(case, []).append(answer)
            _ask_permdiff(folder, taken)
        for case, each in taken.items():
            _print_case(case, each, taken.get("permdiff"), calls)


def _ask_permdiff(folder: str, taken: dict[str, list[Taken]]) -> None:
    try:
        with contender("permdiff") as other:
            taken.setdefault("permdiff", []).append(other.ask(Taken, "diff", folder=folder))
    except Missing as why:
        print(f"permdiff is left out: {why}")


def _print_case(case: str, taken: list[Taken], anchor: list[Taken] | None, calls: int) -> None:
    seconds = median(each.seconds for each in taken)
    read = median(each.read for each in taken)
    ratio = ""
    if anchor is not None:
        ratios = (ours.seconds / theirs.seconds for ours, theirs in zip(taken, anchor, strict=True))
        ratio = f" {median(ratios):5.2f}x"
    beside = f" ({read:.1f} s of them to read)" if read else ""
    peak = median(each.peak for each in taken) / _MB
    print(f"{case:9} {seconds:7.2f} s {calls / seconds:8,.0f} calls/s{ratio} {peak:6.0f} MB{beside}")
    print(f"          {taken[0].found}")
