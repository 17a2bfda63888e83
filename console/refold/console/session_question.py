"""`refold whatif --policy claude:auto`: each run under the settings that applied to its session."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from refold.console.rule_lists import AUTO, SessionSettings, UnknownSettings
from refold.console.whatif_question import Answer, OtherPolicies, WhatIfQuestion
from refold.reducers.errors import Damaged, Inconclusive, RefoldError, WrongUse
from refold.reducers.events import RunStarted
from refold.replay.reader import event_of
from refold.replay.shards import Shard
from refold.replay.whatif.comparison import ask_all
from refold.replay.whatif.rule_subset import add_guards
from refold.store.scans import open_scan


def ask_question(others: OtherPolicies) -> WhatIfQuestion:
    """Return the question for these policies. Raises as `WhatIfQuestion`."""
    if Path(AUTO) not in others.policy:
        return WhatIfQuestion(others)
    if len(others.policy) > 1 or others.settings or others.only is not None:
        raise WrongUse(f"{AUTO} stands alone: leave out other policies, --set and --only")
    return SessionQuestion(others)


class SessionQuestion(WhatIfQuestion):
    """Adds to each run's recorded policy the permission rules of its session."""

    def __init__(self, others: OtherPolicies, *, states: bool = False) -> None:
        super().__init__(others, states=states)
        self._settings = SessionSettings()

    def __call__(self, shard: Shard) -> Iterator[Answer]:
        """Yield the result for each run of a shard; the error for a run whose settings are unknown."""
        for run in shard.runs:
            try:
                policy = self._settings.policy_for(_read_start(shard.address, run))
            except (UnknownSettings, Inconclusive, Damaged, WrongUse) as error:
                yield run, error
                continue
            part, change = replace(shard, runs=(run,)), add_guards(policy, self.registry)
            answers = ask_all(part, [change], self.registry, prices=self.prices, contexts=self.contexts)
            for name, found in answers:
                if isinstance(found, RefoldError) or self.states:
                    yield name, found
                else:
                    yield name, tuple(replace(each, state="") for each in found)

    def __reduce__(self) -> tuple[Callable[..., "SessionQuestion"], tuple[OtherPolicies, bool]]:
        return _question, (self._others, self.states)


@cache
def _question(others: OtherPolicies, states: bool) -> SessionQuestion:  # noqa: FBT001 - as `pickle` calls it
    return SessionQuestion(others, states=states)


def _read_start(address: str, run: str) -> RunStarted:
    with open_scan(address) as scan:
        event = event_of(next(scan.records(run)), content=False)
    assert isinstance(event, RunStarted)
    return event
