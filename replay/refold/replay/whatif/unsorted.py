"""Calls of which the other policy does not know whether a rule is about them: what it does with them is no evidence.

A gate may not know whether a tool is sensitive. A pattern may be unfit, where somebody edited the log that the policy is
from.
"""

from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase

from refold.reducers.approvals import Gate, Match
from refold.reducers.events import Fact, ModelResponded
from refold.reducers.patterns import problem_of
from refold.reducers.policy import Policy
from refold.reducers.unsorted import gate_without_word, not_known
from refold.replay.whatif.doubt import Doubt
from refold.replay.whatif.pair import Pair


class Unsorted:
    """Follows two runs, and tells of each tool once, at its first such call."""

    def __init__(self, near: Pair, doubt: Callable[[Doubt], None]) -> None:
        self._near, self._doubt = near, doubt
        self._told = set[str]()

    def judge(self, seq: int, fact: Fact) -> None:
        """Both runs have taken a fact."""
        near, state = self._near, self._near.derived.state
        if not near.reached or not isinstance(fact, ModelResponded) or fact.content is None:
            return
        if fact.calls and near.differs:
            self._look_at_patterns(seq, fact)
        approvals = state.policy.approvals
        if approvals is None or approvals == near.recorded.state.policy.approvals:
            return
        tools = {tool.name: tool for tool in state.setup.tools}
        for call, arguments in zip(fact.calls, fact.content.arguments, strict=True):
            tool = tools.get(call.name) if call.complete and call.name not in self._told else None
            place = gate_without_word(approvals.chain, tool, arguments) if tool else None
            if place is None:
                continue
            self._told.add(call.name)
            gate = approvals.chain[place]
            ends = isinstance(gate, Gate) and gate.then == "terminate"
            why = f"approvals.chain[{place}]: {not_known([call.name])}"
            self._doubt(Doubt(seq, why, "stops" if ends else "asks", state))

    def _look_at_patterns(self, seq: int, fact: ModelResponded) -> None:
        state = self._near.derived.state
        for place, globs, path, pattern in _patterns(state.policy):
            problem = problem_of(pattern)
            if problem and any(fnmatchcase(call.name, glob) for call in fact.calls for glob in globs):
                self._doubt(Doubt(seq, f"{place}.{path} cannot be searched for: {problem}", "rests", state))


def _patterns(policy: Policy) -> Iterator[tuple[str, Sequence[str], str, str]]:
    """The patterns for arguments: the place of the rule, the tools that it is about, the key, and the pattern."""
    for place, config in enumerate(policy.guards):
        if config["guard"] == "arguments":
            for key in ("matches", "unless"):
                if config.get(key):
                    yield f"guards[{place}]", (config.get("tool", "*"),), key, config[key]
    for place, link in enumerate(policy.approvals.chain if policy.approvals else ()):
        if isinstance(link, Match):
            where = f"approvals.chain[{place}]"
            yield where, link.tools, "matches", link.matches
            if link.unless:
                yield where, link.tools, "unless", link.unless
