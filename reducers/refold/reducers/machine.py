"""Every rule about the machine: its states, its triggers, and the one table of its moves.

An agent is in exactly one `AgentState`. It leaves it only by a trigger that the table below has for that
state; a move that the table lacks is an error, live and in replay, and never a no-op. `evolve` looks moves
up here, `refold.engine.updates` builds a `transitions` machine from here, the diagram is drawn from here, and
tests visit every cell of the product of states and triggers.
"""

from collections.abc import Mapping
from enum import StrEnum, unique
from types import MappingProxyType

from refold.reducers.errors import IllegalMove


@unique
class AgentState(StrEnum):
    """What the agent is doing, or how it ended."""

    RUNNING = "RUNNING"
    WAITING_FOR_TOOL = "WAITING_FOR_TOOL"
    WAITING_FOR_INPUT = "WAITING_FOR_INPUT"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    TIMED_OUT = "TIMED_OUT"
    MAX_STEPS = "MAX_STEPS"
    BUDGET_EXCEEDED = "BUDGET_EXCEEDED"
    ERROR = "ERROR"

    # Looked up with every event: the text's own hash, in C, is a third of the time of an enum's.
    __hash__ = str.__hash__


@unique
class Trigger(StrEnum):
    """Why the agent moves from one state to another."""

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

LIVE: frozenset[AgentState] = frozenset({_RUNNING, _TOOL, _INPUT})
TERMINAL: frozenset[AgentState] = frozenset(AgentState) - LIVE

# An absent cell is an error. Some absences are rules:
# - WAITING_FOR_TOOL cannot complete: a tool in flight must report first, or what it did is in no log.
# - WAITING_FOR_INPUT cannot run out of steps or money: nothing is spent while a person thinks.
# - A terminal state has no cell at all. To go on after one is to fork.
MOVES: Mapping[tuple[AgentState, Trigger], tuple[AgentState, ...]] = MappingProxyType(
    {
        (_RUNNING, Trigger.CALL_TOOLS): (_TOOL,),
        (_TOOL, Trigger.TOOLS_DONE): (_RUNNING,),
        (_RUNNING, Trigger.ASK): (_INPUT,),
        (_TOOL, Trigger.ASK): (_INPUT,),
        # Two targets: the state remembers whence it came (`came_from`), and goes back there.
        (_INPUT, Trigger.ANSWERED): (_RUNNING, _TOOL),
        (_RUNNING, Trigger.COMPLETE): (AgentState.COMPLETED,),
        **{(source, Trigger.CANCEL): (AgentState.CANCELLED,) for source in (_RUNNING, _TOOL, _INPUT)},
        **{(source, Trigger.TIME_OUT): (AgentState.TIMED_OUT,) for source in (_RUNNING, _TOOL, _INPUT)},
        **{(source, Trigger.FAIL): (AgentState.ERROR,) for source in (_RUNNING, _TOOL, _INPUT)},
        (_RUNNING, Trigger.EXHAUST_STEPS): (AgentState.MAX_STEPS,),
        (_RUNNING, Trigger.EXCEED_BUDGET): (AgentState.BUDGET_EXCEEDED,),
        (_TOOL, Trigger.EXCEED_BUDGET): (AgentState.BUDGET_EXCEEDED,),
    }
)


def target(source: AgentState, trigger: Trigger, came_from: AgentState | None) -> AgentState:
    """Where `trigger` leads from `source`. Raises `IllegalMove` if the table has no such move.

    `came_from` is the state in which the agent asked, and matters only where the table has two targets.
    """
    targets = MOVES.get((source, trigger))
    if targets is None:
        raise IllegalMove(source, trigger)
    if len(targets) == 1:
        return targets[0]
    if came_from is None or came_from not in targets:
        raise IllegalMove(source, trigger, came_from)
    return came_from
