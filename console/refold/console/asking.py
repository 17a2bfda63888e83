"""What `refold whatif` asks, put to the runs of a store, here or in other processes."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache

from msgspec.structs import replace

from refold.console.contexts import chosen_contexts
from refold.console.other_policies import OtherPolicies, policies_of
from refold.console.prices import chosen_prices
from refold.engine.compatibility import installed_guards
from refold.reducers.errors import RefoldError
from refold.replay.shards import Shard
from refold.replay.whatif.comparison import ask_all
from refold.replay.whatif.verdict import Verdict, WhatIf

Answer = tuple[str, Sequence[WhatIf] | RefoldError]
"""A run, and what was found for each policy; or why there is nothing to be said."""


class Question:
    """The policies that are asked about, by what they are called, and what tables say where a record does not.

    Policies are functions and cannot be sent to a process. There the files are read once more, each once. Without `states`,
    which may be megabytes, those are left out of what is found. Raises `WrongUse` and what a file does.
    """

    def __init__(self, others: OtherPolicies, *, states: bool = False) -> None:
        self._others, self.states = others, states
        self.registry = installed_guards()
        asked = policies_of(others, self.registry)
        self.policies = {name: each.change for name, each in asked.items()}
        self.named = {name: each.named for name, each in asked.items() if each.named}
        self.prices, self.contexts = chosen_prices(others.prices), chosen_contexts(others.contexts)

    def __call__(self, shard: Shard) -> Iterator[Answer]:
        """What is found of each run of a shard."""
        policies = tuple(self.policies.values())
        for run, found in ask_all(shard, policies, self.registry, prices=self.prices, contexts=self.contexts):
            if isinstance(found, RefoldError):
                yield run, found
                continue
            known = self._with_defaults(shard, run, found)
            yield run, known if self.states else tuple(replace(each, state="") for each in known)

    def _with_defaults(self, shard: Shard, run: str, found: Sequence[WhatIf]) -> tuple[WhatIf, ...]:
        """What was found, with the defaults that cause a verdict: a run that does not agree is asked about once more."""
        pairs = [
            (place, self.named[name])
            for place, (name, each) in enumerate(zip(self.policies, found, strict=True))
            if name in self.named and each.verdict is not Verdict.AGREE
        ]
        known = list(found)
        if not pairs:
            return tuple(known)
        alone = [named.alone(self.registry) for _, named in pairs]
        part = replace(shard, runs=(run,))
        for _, answers in ask_all(part, alone, self.registry, prices=self.prices, contexts=self.contexts):
            if not isinstance(answers, RefoldError):  # else the named keys alone cannot be asked about
                for (place, named), answer in zip(pairs, answers, strict=True):
                    known[place] = replace(found[place], defaults=named.defaults(found[place], answer))
        return tuple(known)

    def __reduce__(self) -> tuple[Callable[..., "Question"], tuple[OtherPolicies, bool]]:
        return _question, (self._others, self.states)


@cache
def _question(others: OtherPolicies, states: bool) -> Question:  # noqa: FBT001 - as `pickle` calls it
    return Question(others, states=states)
