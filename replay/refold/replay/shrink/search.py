"""Delta debugging: find the smallest log that still shows a property.

Source: Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE 28(2), 2002. Of
`ddmin`, only complements are tried, because the start of a log is rarely dispensable. Each trial log is
derived again from its facts, so it is valid. The result is 1-minimal: without any single fact it does not
show the property. Then texts are shortened wherever the property still holds.

Pure: a generator yields logs and receives whether each shows the property. The check may run in another
process.
"""

from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from hashlib import sha256
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from refold.reducers import events as ev
from refold.reducers.composition import told
from refold.reducers.errors import WrongUse
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.messages import Message
from refold.reducers.policy import Policy
from refold.replay.reader import events
from refold.replay.shrink.rederivation import Log, SaltedFact, Twist, rederive
from refold.store.protocol import Store

AnyFact = TypeVar("AnyFact", bound=ev.Fact)


def shorten_fact(policy: Policy, fact: ev.Fact, salt: bytes) -> ev.Fact | None:
    """Return the fact with its texts as short as possible; None if there is nothing to shorten.

    `policy` is the one in force, whose estimator and summary text apply. Arguments of calls are not changed:
    tools and guards distinguish calls by them.
    """
    if getattr(fact, "content", None) is None:
        return None
    cut = _cut(policy, fact, salt)
    return None if cut == fact else cut


def _cut(policy: Policy, fact: ev.Fact, salt: bytes) -> ev.Fact:
    match fact:
        case ev.RunStarted(content=opening) | ev.ContextObserved(content=opening) if opening is not None:
            messages = tuple(_message(message) for message in opening.messages)
            return told(fact, replace(opening, messages=messages), salt, policy)
        case ev.ModelResponded(content=answer) if answer is not None:
            brief = replace(answer, text=_first(answer.text), reasoning="", provider_data="")
            return told(fact, brief, salt, policy)
        case ev.ToolReturned(content=output) if output is not None:
            shown = replace(output, output=_first(output.output), sha256="")
            return told(replace(fact, cut=False), shown, salt, policy)
        case ev.InputReceived(content=said) if said is not None:
            return told(fact, replace(said, text=_first(said.text)), salt, policy)
        case ev.ApprovalAnswered(content=edits) if edits is not None:
            return told(fact, replace(edits, note=""), salt, policy)
        case ev.RunForked(content=said) if said is not None:
            less = replace(said, text=_first(said.text) or said.text[:1])
            return told(fact, less, salt, policy)
        case ev.SummaryReturned(content=summary) if summary is not None:
            return told(fact, replace(summary, text=_first(summary.text)), salt, policy)
        case ev.ModelFailed(content=failure) if failure is not None:
            return told(fact, replace(failure, message=""), salt, policy)
        case ev.CancelRequested(content=reason) | ev.PolicyAmended(content=reason) if reason is not None:
            return replace(fact, content=replace(reason, reason=""))
        case ev.DoubtResolved(content=note) if note is not None:
            return replace(fact, content=replace(note, note=""))
        case _:
            return fact


def _message(message: Message) -> Message:
    return msgspec.structs.replace(message, text=_first(message.text), reasoning="", provider_data="")


def _first(text: str) -> str:
    """Return one character that is not white space; for a blank text, so that empty responses stay empty."""
    return text.strip()[:1]


Shrinking = Generator[Log, bool, Log]
"""Yields logs, receives whether each shows the property, and returns the smallest one that does."""

Indices = tuple[int, ...]


class ShowsNothing(WrongUse):
    """Raised if the whole log does not show the property."""

    def __init__(self, run: str) -> None:
        super().__init__(run)
        self.run = run

    def __str__(self) -> str:
        return (
            f"run {self.run} does not meet the condition when its decisions are derived again, so it cannot be shrunk. "
            "Check with `refold bisect` or `refold audit`"
        )


async def read_facts(store: Store, run: str) -> list[SaltedFact]:
    """Return the facts of a run with their salts, all in memory.

    Raises `UnknownRun`, `DamagedLog`, `NewerLog`.
    """
    found = list[SaltedFact]()
    async for stored, event in events(store, run):
        if isinstance(event, ev.Fact):
            found.append(SaltedFact(len(found), event, stored.salt))
    return found


def shrink_log(
    run: str,
    told: Sequence[SaltedFact],
    shows: Callable[[Log], bool],
    *,
    registry: Registry = BUILTIN,
    twist: Twist | None = None,
    most: int = 10_000,
) -> Log:
    """Do `shrink_steps` with a function as the check. Raises `ShowsNothing`."""
    steps = shrink_steps(run, told, registry=registry, twist=twist, most=most)
    try:
        log = next(steps)
        while True:
            log = steps.send(shows(log))
    except StopIteration as found:
        smallest: Log = found.value
        return smallest


def shrink_steps(
    run: str,
    told: Sequence[SaltedFact],
    *,
    registry: Registry = BUILTIN,
    twist: Twist | None = None,
    most: int = 10_000,
) -> Shrinking:
    """Shrink a log. After at most `most` trials, return the smallest log found so far.

    Raises `ShowsNothing` if the whole log, derived again, does not show the property.
    """
    trial = _Trial(told, registry, twist, most)
    everything = tuple(range(len(told)))
    if not (yield from trial.shows(everything)):
        raise ShowsNothing(run)
    kept = yield from _minimize(trial, trial.kept)
    yield from _shorten_texts(trial, kept)
    return trial.log


class _Trial:
    """The logs tried so far, and the smallest one that shows the property."""

    def __init__(
        self, told: Sequence[SaltedFact], registry: Registry, twist: Twist | None, most: int
    ) -> None:
        self.told = list(told)
        self._registry, self._twist, self.left = registry, twist, most
        # Digests, because there may be thousands of failed sets of thousands of facts.
        self._failed: set[bytes] = set()
        self._whole: Log | None = None
        self.log = Log((), ())
        self.kept: Indices = ()

    def shows(
        self, wanted: Indices, changed: dict[int, SaltedFact] | None = None
    ) -> Generator[Log, bool, bool]:
        """Return whether the log of these facts shows the property; if so, it is the smallest so far.

        The first call is for all facts. False if no more trials are allowed.
        """
        if not self.left:
            return False
        log = self._derive(wanted, changed or {})
        kept = tuple(each.place for each in log.told)
        if not changed and (_mark(kept) in self._failed or kept == self.kept):
            return kept == self.kept
        self.left -= 1
        if not (yield log):
            if not changed:
                self._failed.add(_mark(kept))
            return False
        for place, each in (changed or {}).items():
            self.told[place] = each
        self.log, self.kept = log, kept
        return True

    def _derive(self, wanted: Indices, changed: dict[int, SaltedFact]) -> Log:
        told = [changed.get(place, self.told[place]) for place in wanted]
        log = rederive(told, self._registry, self._twist, self._whole)
        self._whole = self._whole or log
        return log


def _mark(facts: Indices) -> bytes:
    return sha256(array("Q", facts).tobytes()).digest()


def _minimize(trial: _Trial, facts: Indices) -> Generator[Log, bool, Indices]:
    """Run `ddmin`: leave out smaller and smaller pieces until no fact can be left out, or trials run out."""
    pieces = 2
    while len(facts) > 1 and trial.left:
        size = -(-len(facts) // pieces)
        for start in range(0, len(facts), size):
            if not trial.left:
                return facts
            # A log must begin with the start of a run.
            piece = facts[start : start + size]
            begins = (fact for fact in piece if isinstance(trial.told[fact].fact, ev.RunStarted))
            rest = (*facts[:start], *begins, *facts[start + size :])
            if len(rest) < len(facts) and (yield from trial.shows(rest)):
                facts, pieces = trial.kept, max(pieces - 1, 2)
                break
        else:
            if size == 1:
                break
            pieces = min(2 * pieces, len(facts))
    return facts


def _shorten_texts(trial: _Trial, facts: Indices) -> Generator[Log, bool, None]:
    """Shorten texts: all at once if possible, otherwise one after the other."""
    if not trial.left:
        return
    cuts = {
        place: SaltedFact(place, less, each.salt)
        for place, policy in _policies(trial, facts)
        if (each := trial.told[place]) and (less := shorten_fact(policy, each.fact, each.salt)) is not None
    }
    if not cuts or (yield from trial.shows(facts, cuts)):
        return
    for place, cut in cuts.items():
        yield from trial.shows(facts, {place: cut})


def _policies(trial: _Trial, facts: Indices) -> Iterator[tuple[int, Policy]]:
    """Yield the index of each fact, and the policy in force for it."""
    policy = Policy()
    for place in facts:
        fact = trial.told[place].fact
        if isinstance(fact, ev.RunStarted | ev.RunForked | ev.PolicyAmended):
            policy = fact.policy or policy
        yield place, policy
