"""Calls that a rule of the other policy cannot judge."""

from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase

from refold.reducers import events as ev
from refold.reducers.approvals import Approver, Gate, Match
from refold.reducers.guards.approvals import Approval, Asked
from refold.reducers.guards.arguments import ArgumentRule, Arguments, argument_rules
from refold.reducers.guards.permissions import Permissions
from refold.reducers.named_tools import describe_unclassified, find_unclassifying_gate
from refold.reducers.patterns import problem_of
from refold.reducers.permissions.rules import PermissionVerdict
from refold.reducers.vocabulary import ToolError
from refold.replay.whatif.pair import RunPair
from refold.replay.whatif.uncertainty import Effect, Uncertainty

_NEVER_RAN = (ToolError.BAD_ARGUMENTS, ToolError.UNKNOWN_TOOL)


class UnjudgedCalls:
    """Follows two runs and reports calls that a rule cannot judge.

    An approval gate is reported once per tool.
    """

    def __init__(self, near: RunPair, doubt: Callable[[Uncertainty], None]) -> None:
        self._near, self._doubt = near, doubt
        self._reported = set[str]()
        # Incomplete calls of the latest response, with the rule for their tool.
        self._incomplete = dict[str, str]()

    def judge(self, seq: int, fact: ev.Fact) -> None:
        """Evaluate after both runs took a fact."""
        near = self._near
        if not near.reached:
            return
        if isinstance(fact, ev.ToolReturned):
            self._judge_result(seq, fact)
        elif isinstance(fact, ev.ModelResponded) and fact.content is not None:
            if fact.calls and near.differs:
                self._judge_patterns(seq, fact)
            self._judge_gates(seq, fact, fact.content.arguments)
            self._judge_permissions(seq, fact)
            self._judge_unknown(seq, fact)

    def _judge_result(self, seq: int, fact: ev.ToolReturned) -> None:
        """Report a call that ran with incomplete arguments, which a rule cannot search."""
        rule = self._incomplete.get(fact.call)
        if rule is not None and fact.error not in _NEVER_RAN:
            why = f"{rule} cannot search the arguments of call {fact.call}: they are incomplete, but the call ran"
            self._doubt(Uncertainty(seq, why, "rests", self._near.derived.state))

    def _judge_gates(self, seq: int, fact: ev.ModelResponded, arguments: Sequence[str]) -> None:
        """Report a gate that cannot tell whether a call is sensitive."""
        state, recorded = self._near.derived.state, self._near.recorded.state
        approvals = state.policy.approvals
        if approvals is None or approvals == recorded.policy.approvals:
            return
        tools = {tool.name: tool for tool in state.setup.tools}
        for call, text in zip(fact.calls, arguments, strict=True):
            tool = tools.get(call.name) if call.complete and call.name not in self._reported else None
            place = find_unclassifying_gate(approvals.chain, tool, text) if tool else None
            if place is None:
                continue
            self._reported.add(call.name)
            why = f"approvals.chain[{place}]: {describe_unclassified([call.name])}"
            self._doubt(Uncertainty(seq, why, _effect_of(approvals.chain[place]), state))

    def _judge_patterns(self, seq: int, fact: ev.ModelResponded) -> None:
        state = self._near.derived.state
        self._incomplete.clear()
        for found in argument_rules(state.policy):
            calls = [call for call in fact.calls if any(fnmatchcase(call.name, glob) for glob in found.tools)]
            for call in calls:
                if not call.complete:
                    self._incomplete.setdefault(call.id, found.path)
            for why in _problems_of(found) if calls else ():
                self._doubt(Uncertainty(seq, why, "rests", state))

    def _judge_permissions(self, seq: int, fact: ev.ModelResponded) -> None:
        """Report calls that permission rules of the other policy alone cannot judge."""
        recorded: list[object] = [watch.guard for watch in self._near.recorded.state.guards]
        for watch in self._near.derived.state.guards:
            if not isinstance(guard := watch.guard, Permissions) or guard in recorded:
                continue
            for call in fact.calls:
                decision: PermissionVerdict | None = watch.own.decisions.get(call.id)
                if decision and decision.effect == "unknown" and decision.rule is not None:
                    rule = guard.rules[decision.rule].label
                    why = f"{watch.name}: the rule {rule} cannot judge call {call.id}: {decision.why}"
                    self._doubt(Uncertainty(seq, why, "rests", self._near.derived.state))

    def _judge_unknown(self, seq: int, fact: ev.ModelResponded) -> None:
        """Report calls that a rule over arguments of the other policy alone cannot judge."""
        recorded: list[object] = [watch.guard for watch in self._near.recorded.state.guards]
        for watch in self._near.derived.state.guards:
            if not isinstance(guard := watch.guard, Approval | Arguments) or guard in recorded:
                continue
            chain = guard.chain if isinstance(guard, Approval) else (guard.as_approver,)
            asked: Asked = watch.own
            for call in fact.calls:
                for link, problem in asked.unknown.get(call.id, {}).items():
                    rule = chain[int(link)]
                    place = f".chain[{link}]" if isinstance(guard, Approval) else ""
                    named = rule.rule if isinstance(rule, Match) else ""
                    why = f"{watch.name}{place}: the rule {named} cannot judge call {call.id}: {problem}"
                    self._doubt(Uncertainty(seq, why, "rests", self._near.derived.state))


def _problems_of(found: ArgumentRule) -> Iterator[str]:
    """Yield why the patterns of a rule cannot be searched for."""
    for key, pattern in (("matches", found.conditions.matches), ("unless", found.conditions.unless)):
        problem = problem_of(pattern) if pattern else None
        if problem:
            yield f"{found.path}.{key} cannot be searched for: {problem}"


def _effect_of(gate: Approver) -> Effect:
    return "stops" if isinstance(gate, Gate) and gate.then == "terminate" else "asks"
