"""Calls of which the other policy does not know whether they are sensitive: that it lets them run is no evidence that all is well."""

from collections.abc import Callable

from refold.reducers.approvals import Gate
from refold.reducers.events import Fact, ModelResponded
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
