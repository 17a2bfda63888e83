"""Calls of which the other policy does not know whether a rule is about them: what it does with them is no evidence.

A gate may not know whether a tool is sensitive. A pattern may be unfit, where somebody edited the log that the policy is
from. And arguments that are no JSON object, as where they were cut off, end a call of ours before any rule is asked; another
agent may have run it all the same, with arguments that nobody here knows.
"""

from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase

from refold.reducers.approvals import Gate, Match
from refold.reducers.events import Fact, ModelResponded, ToolReturned
from refold.reducers.named_tools import gate_without_word, not_known
from refold.reducers.patterns import problem_of
from refold.reducers.policy import Policy
from refold.reducers.vocabulary import ToolError
from refold.replay.whatif.doubt import Doubt
from refold.replay.whatif.pair import Pair

_NEVER_RAN = (ToolError.BAD_ARGUMENTS, ToolError.UNKNOWN_TOOL)


class Unsorted:
    """Follows two runs, and tells of each tool once, at its first such call."""

    def __init__(self, near: Pair, doubt: Callable[[Doubt], None]) -> None:
        self._near, self._doubt = near, doubt
        self._told = set[str]()
        self._incomplete = dict[str, str]()  # calls of the latest response, and the rule that is about them

    def judge(self, seq: int, fact: Fact) -> None:
        """Both runs have taken a fact."""
        near, state = self._near, self._near.derived.state
        if near.reached and isinstance(fact, ToolReturned) and fact.call in self._incomplete:
            if fact.error not in _NEVER_RAN:
                rule = self._incomplete[fact.call]
                why = f"{rule} cannot search the arguments of call {fact.call}: they are incomplete, and it ran all the same"
                self._doubt(Doubt(seq, why, "rests", state))
            return
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
        self._incomplete.clear()
        for place, globs, path, pattern in _patterns(state.policy):
            for call in fact.calls:
                if not call.complete and any(fnmatchcase(call.name, glob) for glob in globs):
                    self._incomplete.setdefault(call.id, place)
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
