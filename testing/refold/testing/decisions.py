"""Regression tests of policies over folders of recordings."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import anyio

from refold.engine.compatibility import installed_guards
from refold.engine.validation import policy_of
from refold.reducers.errors import Inconclusive, WrongUse
from refold.reducers.events import Event
from refold.reducers.policy import Policy
from refold.replay import whatif
from refold.replay.whatif.verdict import Verdict, WhatIf
from refold.store.recordings import RecordedRun
from refold.testing.audits import records
from refold.testing.live import compare_runs
from refold.testing.loaded_logs import fill_store, load_files, parent_of, recording_of
from refold.testing.matchers import Ignored, Matchers
from refold.testing.results import ObservedRun

Runs = str | PathLike[str] | ObservedRun
"""A file or a folder with runs, or one run."""

_SHOWN = 20


class DecisionsChanged(AssertionError):
    """Runs are decided otherwise. `changes` has a line for each of them."""

    def __init__(self, what: str, changes: Sequence[str]) -> None:
        super().__init__(what, changes)
        self.what, self.changes = what, tuple(changes)

    def __str__(self) -> str:
        lines = [f"  {line}" for line in self.changes[:_SHOWN]]
        more = len(self.changes) - _SHOWN
        return "\n".join([self.what, "", *lines, *([f"  ... and {more} more"] if more > 0 else [])])


def assert_same_decisions(
    a: Runs,
    b: Runs | None = None,
    *,
    policy: Policy | Mapping[str, Any] | str | PathLike[str] | None = None,
    ignore: Sequence[Ignored] = (),
    allow_inconclusive: bool = False,
) -> int:
    """Check that runs are decided the same, and return how many were compared.

    With `policy`, each run of `a` is decided again by that policy: nothing may be newly permitted and nothing
    newly stopped. With `b`, each run of `a` is compared with the run of the same id in `b`: the same calls,
    permissions and ends. With both, the policy decides both sides.

        assert_same_decisions("recordings", policy="policy.yaml")
        assert_same_decisions("recordings", "recordings-of-new-model")

    Args:
        a: A recording, store, bundle or transcript, a folder of them, or an observed run.
        b: The same, to compare with.
        policy: A policy, plain data, a file or the name of a preset.
        ignore: Texts in arguments that may differ.
        allow_inconclusive: Accept runs with too little evidence for the policy's decisions.

    Raises:
        DecisionsChanged: At least one run is decided otherwise.
        Inconclusive: At least one run is inconclusive, and the others are decided the same.
        WrongUse: There are no runs to compare, or neither `b` nor `policy` is given.
    """
    if b is None and policy is None:
        raise WrongUse("assert_same_decisions: expected a second folder of runs, or policy=")
    first = _read(a, "a")
    second = None if b is None else _read(b, "b")
    changes = [] if second is None else _compare(first, second, Matchers(ignore))
    if policy is not None:
        registry = installed_guards()
        chosen, _ = policy_of(policy, registry, "")
        every = [*first.items(), *(second or {}).items()]
        answers = anyio.run(_ask, [run for _, run in every], chosen)
        _refuse_unfit(answers)
        named = list(zip([name for name, _ in every], answers, strict=True))
        changes += [_describe(name, each) for name, each in named if each.verdict not in _SAME]
        unknown = [(name, each) for name, each in named if each.verdict is Verdict.INCONCLUSIVE]
        if unknown and not changes and not allow_inconclusive:
            raise Inconclusive("\n".join(_describe(name, each) for name, each in unknown[:_SHOWN]))
    total = len({**first, **(second or {})})
    if changes:
        count = "1 run is" if len(changes) == 1 else f"{len(changes)} runs are"
        raise DecisionsChanged(f"{count} decided otherwise, of {total}", changes)
    return total


def _refuse_unfit(answers: Sequence[WhatIf]) -> None:
    """Raise `WrongUse` if a rule names tools that no run has: it would have no effect."""
    unfit = [{str(complaint) for complaint in each.unfit} for each in answers]
    everywhere: set[str] = set[str].intersection(*unfit) if unfit else set()
    if everywhere:
        raise WrongUse(f"policy: {'; '.join(sorted(everywhere))}: no run would be decided by it")


_SAME = (Verdict.AGREE, Verdict.INCONCLUSIVE)


def _read(given: Runs, place: str) -> dict[str, RecordedRun | ObservedRun]:
    if isinstance(given, ObservedRun):
        return {given.id: given}
    path = Path(given)
    if not path.exists():
        raise WrongUse(f"assert_same_decisions: {place}={str(given)!r}: no such file or folder")
    found: dict[str, RecordedRun | ObservedRun] = {}
    for file, run in load_files(path):
        if parent_of(run):
            continue  # a child run: its policy depends on what its parent has used
        folder = file.parent.relative_to(path).as_posix() if path.is_dir() else "."
        name = run.run if folder == "." else f"{folder}/{run.run}"
        if name in found:
            raise WrongUse(f"assert_same_decisions: {place}={str(given)!r}: {name} occurs twice; remove one")
        found[name] = run
    if not found:
        raise WrongUse(f"assert_same_decisions: {place}={str(given)!r}: no runs: nothing would be compared")
    return found


async def _ask(runs: Sequence[RecordedRun | ObservedRun], policy: Policy) -> list[WhatIf]:
    registry = installed_guards()
    answers: list[WhatIf] = []
    for run in runs:
        recorded = _record(run)
        answers.append(await whatif(await fill_store([recorded]), recorded.run, policy, registry))
    return answers


def _record(run: RecordedRun | ObservedRun) -> RecordedRun:
    return (
        run if isinstance(run, RecordedRun) else RecordedRun(run=run.id, seed=0, records=records(run.events))
    )


def _compare(
    first: Mapping[str, RecordedRun | ObservedRun],
    second: Mapping[str, RecordedRun | ObservedRun],
    matchers: Matchers,
) -> list[str]:
    changes = [f"{run}: only in the first" for run in first.keys() - second.keys()]
    changes += [f"{run}: only in the second" for run in second.keys() - first.keys()]
    for name in sorted(first.keys() & second.keys()):
        found = compare_runs(_observe(first[name]), _observe(second[name]), matchers)
        if found is not None:
            seq, difference = found
            where = f" ({difference.where})" if difference.where else ""
            sides = " -> ".join(each for each in (difference.recorded, difference.actual) if each)
            changes.append(f"{name}@e{seq}: {difference.what}{where}: {sides}")
    return changes


def _observe(run: RecordedRun | ObservedRun) -> ObservedRun:
    if isinstance(run, ObservedRun):
        return run
    events: Sequence[Event] = recording_of(run).events
    return ObservedRun(events, installed_guards())


def _describe(name: str, answer: WhatIf) -> str:
    why = answer.why or "; ".join(answer.unknown)
    return f"{name}@e{answer.seq}: {answer.verdict}: {why}"
