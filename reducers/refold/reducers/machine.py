"""The state machine of an agent: its states, its triggers, and the one table of its moves.

An agent is in exactly one `AgentState`. It leaves it only by a trigger that the table has for that state. A
move that the table lacks is an error, live and in replay, and never a no-op. `evolve` looks up moves here;
`refold.engine.updates` builds its `transitions` machine and the diagram from the table; tests visit every
pair of a state and a trigger.
"""

from collections.abc import Mapping
from enum import StrEnum, unique
from types import MappingProxyType
from typing import Literal, Self

from refold.reducers.errors import IllegalMove

_Trait = Literal["live", "awaits_tools", "awaits_operator", "succeeded", "cancelled", "limited", "failed"]


@unique
class AgentState(StrEnum):
    """The agent's activity or how the run ended, with properties of each state.

    Code outside this module tests these properties, never the state's name. So a new state is a line here,
    its moves below, and the rule that moves there. `terminal`: the run has ended. `awaits_tools`: calls of
    the open batch may run. `awaits_operator`: no engine can continue the run until an operator acts.
    `succeeded`, `cancelled` and `failed` are ends; an end at a limit has none of the three.
    """

    terminal: bool
    awaits_tools: bool
    awaits_operator: bool
    succeeded: bool
    cancelled: bool
    failed: bool

    RUNNING = "RUNNING", "live"
    WAITING_FOR_TOOL = "WAITING_FOR_TOOL", "awaits_tools"
    WAITING_FOR_INPUT = "WAITING_FOR_INPUT", "awaits_operator"
    COMPLETED = "COMPLETED", "succeeded"
    CANCELLED = "CANCELLED", "cancelled"
    TIMED_OUT = "TIMED_OUT", "limited"
    MAX_STEPS = "MAX_STEPS", "limited"
    BUDGET_EXCEEDED = "BUDGET_EXCEEDED", "limited"
    ERROR = "ERROR", "failed"

    def __new__(cls, name: str, trait: _Trait = "live") -> Self:
        """Create a state; `trait` is its distinguishing property."""
        self = str.__new__(cls, name)
        self._value_ = name
        # Attributes, not properties: they are read several times for every event.
        self.terminal = trait in ("succeeded", "cancelled", "limited", "failed")
        self.awaits_tools = trait == "awaits_tools"
        self.awaits_operator = trait == "awaits_operator"
        self.succeeded = trait == "succeeded"
        self.cancelled = trait == "cancelled"
        self.failed = trait == "failed"
        return self

    # Looked up for every event: the text's own hash, in C, takes a third of the time of an enum's.
    __hash__ = str.__hash__


@unique
class Trigger(StrEnum):
    """The reason for which the agent moves from one state to another."""

    CALL_TOOLS = "call_tools"
    TOOLS_DONE = "tools_done"
    ASK = "ask"
    ANSWERED = "answered"
    COMPLETE = "complete"
    CANCEL = "cancel"
    TIME_OUT = "time_out"
    FAIL = "fail"
    EXHAUST_STEPS = "exhaust_steps"
    EXCEED_BUDGET = "exceed_budget"

    __hash__ = str.__hash__


_RUNNING, _TOOL, _INPUT = AgentState.RUNNING, AgentState.WAITING_FOR_TOOL, AgentState.WAITING_FOR_INPUT

INITIAL = AgentState.RUNNING
"""The state of a run before its first event."""

TERMINAL: frozenset[AgentState] = frozenset(state for state in AgentState if state.terminal)
LIVE: frozenset[AgentState] = frozenset(AgentState) - TERMINAL
SUCCESSFUL: frozenset[AgentState] = frozenset(state for state in AgentState if state.succeeded)
"""This set and the others also work with a state's name as plain text: `"COMPLETED" in SUCCESSFUL`."""

_LIVE = [state for state in AgentState if not state.terminal]

# A pair without an entry is an error. Some entries are missing on purpose:
# - WAITING_FOR_TOOL cannot complete: a tool in flight must report first, or the log would lack its result.
# - WAITING_FOR_INPUT cannot exceed steps or money: nothing is spent while a run waits for an operator.
# - A terminal state has no entries. To continue such a run, fork it.
MOVES: Mapping[tuple[AgentState, Trigger], tuple[AgentState, ...]] = MappingProxyType(
    {
        (_RUNNING, Trigger.CALL_TOOLS): (_TOOL,),
        (_TOOL, Trigger.TOOLS_DONE): (_RUNNING,),
        (_RUNNING, Trigger.ASK): (_INPUT,),
        (_TOOL, Trigger.ASK): (_INPUT,),
        # Two targets: the agent returns to the state from which it asked (`came_from`).
        (_INPUT, Trigger.ANSWERED): (_RUNNING, _TOOL),
        (_RUNNING, Trigger.COMPLETE): (AgentState.COMPLETED,),
        **{(source, Trigger.CANCEL): (AgentState.CANCELLED,) for source in _LIVE},
        **{(source, Trigger.TIME_OUT): (AgentState.TIMED_OUT,) for source in _LIVE},
        **{(source, Trigger.FAIL): (AgentState.ERROR,) for source in _LIVE},
        (_RUNNING, Trigger.EXHAUST_STEPS): (AgentState.MAX_STEPS,),
        (_RUNNING, Trigger.EXCEED_BUDGET): (AgentState.BUDGET_EXCEEDED,),
        (_TOOL, Trigger.EXCEED_BUDGET): (AgentState.BUDGET_EXCEEDED,),
    }
)


def target(source: AgentState, trigger: Trigger, came_from: AgentState | None) -> AgentState:
    """Return the state that `trigger` leads to from `source`.

    Args:
        source: The current state.
        trigger: Why the agent moves.
        came_from: The state from which the agent asked an operator. Needed only where the table has two
            targets.

    Raises:
        IllegalMove: The table has no such move.
    """
    targets = MOVES.get((source, trigger))
    if targets is None:
        raise IllegalMove(source, trigger)
    if len(targets) == 1:
        return targets[0]
    if came_from is None or came_from not in targets:
        raise IllegalMove(source, trigger, came_from)
    return came_from
