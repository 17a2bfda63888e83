"""What a ticket says of the log itself: the rules it was held to, its last hash, whether its decisions follow from its facts."""

from collections.abc import Callable, Iterator

from refold.reducers.events import PolicyAmended, RunForked, RunStarted, SourceRecorded
from refold.reducers.limits import Limit, LimitUnit, name_of
from refold.reducers.policy import Policy
from refold.replay.audit import Audit, Auditor
from refold.replay.following import Follower, Step

_SAID = {LimitUnit.NANOSECONDS: "s", LimitUnit.NANO_USD: "USD"}


class Checks(Follower[Iterator[tuple[str, str]]]):
    """What a log goes by, beside the audit of `auditor`, which is to follow it too. `code` makes a text code within a line."""

    def __init__(self, auditor: Auditor, code: Callable[[str], str]) -> None:
        self._auditor, self._code = auditor, code
        self._hash = ""
        self._policy: Policy | None = None
        self._amended = 0
        self._source: SourceRecorded | None = None

    def take(self, step: Step) -> None:
        """Look at one event. Raises as `Step.event`."""
        event = step.event
        self._hash = step.stored.hash.hex()
        policy = event.policy if isinstance(event, RunStarted | RunForked | PolicyAmended) else None
        if policy is not None:
            self._policy, self._amended = policy, self._amended + (self._policy is not None)
        if isinstance(event, SourceRecorded):
            self._source = self._source or event

    def result(self) -> Iterator[tuple[str, str]]:
        """The lines, each with its name."""
        if self._source is not None:
            where = f"{self._code(self._source.format)}, SHA-256 {self._code(self._source.source)}"
            yield (
                "Imported",
                f"from a transcript ({where}): its decisions were derived at import, not recorded then",
            )
        if self._policy is not None:
            amended = f", the last of {self._amended + 1}" if self._amended else ""
            yield (
                "Policy",
                f"{_limits(self._policy, self._code)}; SHA-256 {self._code(self._auditor.policy)}{amended}",
            )
        if self._hash:
            yield (
                "Chain head",
                f"{self._code(self._hash)}: hold it against what `refold verify` says, or against a seal",
            )
        yield "Audit", self._verdict(self._auditor.result())

    def _verdict(self, found: Audit) -> str:
        if self._auditor.problem is not None:
            return f"not to its end: {self._code(str(self._auditor.problem))}"
        if found.differences:
            first = found.findings[0]
            return f"**differs** in {found.differences}, first at event {first.seq}: {self._code(first.kind)} is {first.difference}"
        if found.unjudged:
            blind = self._code("; ".join(found.blind)) if found.blind else "their words were erased"
            return f"agrees as far as it can be judged; {found.unjudged} facts cannot be: {blind}"
        return f"agrees: {found.decisions} decisions derived again from {found.facts} facts, rules version {found.rules}"


def _limits(policy: Policy, code: Callable[[str], str]) -> str:
    said = [_limit(limit, code) for limit in policy.limits if limit.value is not None]
    guards = f", {len(policy.guards)} guards" if policy.guards else ""
    return (f"limits {', '.join(said)}" if said else "no limits") + guards


def _limit(limit: Limit, code: Callable[[str], str]) -> str:
    unit = limit.unit
    return f"{code(name_of(limit))} {limit.op} {limit.value:g} {_SAID.get(unit, str(unit))}"
