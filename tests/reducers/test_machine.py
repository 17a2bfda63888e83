"""The machine: every cell of states and triggers, by hand and against `transitions`."""

import copy
import pickle
from functools import partial
from itertools import product

import msgspec
import pytest
from transitions import Machine, MachineError

from refold.reducers.errors import IllegalMove
from refold.reducers.machine import LIVE, MOVES, TERMINAL, AgentState, Trigger, target

# Written out by hand from the table of the design, one row a state, so that no cell checks itself.
EXPECTED: dict[str, dict[str, tuple[str, ...]]] = {
    "RUNNING": {
        "call_tools": ("WAITING_FOR_TOOL",),
        "ask": ("WAITING_FOR_INPUT",),
        "complete": ("COMPLETED",),
        "cancel": ("CANCELLED",),
        "time_out": ("TIMED_OUT",),
        "fail": ("ERROR",),
        "exhaust_steps": ("MAX_STEPS",),
        "exceed_budget": ("BUDGET_EXCEEDED",),
    },
    "WAITING_FOR_TOOL": {
        "tools_done": ("RUNNING",),
        "ask": ("WAITING_FOR_INPUT",),
        "cancel": ("CANCELLED",),
        "time_out": ("TIMED_OUT",),
        "fail": ("ERROR",),
        "exceed_budget": ("BUDGET_EXCEEDED",),
    },
    "WAITING_FOR_INPUT": {
        "answered": ("RUNNING", "WAITING_FOR_TOOL"),
        "cancel": ("CANCELLED",),
        "time_out": ("TIMED_OUT",),
        "fail": ("ERROR",),
    },
}
CELLS = [
    pytest.param(state, trigger, id=f"{state}-{trigger}") for state, trigger in product(AgentState, Trigger)
]
ORIGINS = [None, *AgentState]


def expected(state: AgentState, trigger: Trigger, came_from: AgentState | None) -> str | None:
    targets = EXPECTED.get(state, {}).get(trigger, ())
    if len(targets) < 2:
        return targets[0] if targets else None
    return came_from if came_from in targets else None


def looked_up(state: AgentState, trigger: Trigger, came_from: AgentState | None) -> str | None:
    try:
        return target(state, trigger, came_from)
    except IllegalMove:
        return None


class Model:
    """What a `transitions` machine moves."""

    state: str
    came_from: str | None = None


def machine() -> tuple[Machine, Model]:
    model = Model()

    def came_from(dest: str) -> bool:
        return model.came_from == dest

    live = Machine(
        model=model, states=[str(state) for state in AgentState], initial="RUNNING", auto_transitions=False
    )
    for (source, trigger), targets in MOVES.items():
        for dest in targets:
            conditions = None if len(targets) == 1 else partial(came_from, str(dest))
            live.add_transition(str(trigger), str(source), str(dest), conditions=conditions)
    return live, model


@pytest.mark.parametrize(("state", "trigger"), CELLS)
def test_every_cell_is_as_the_table_says(state: AgentState, trigger: Trigger) -> None:
    """Each state and trigger leads where the table written here says, whatever the state came from."""
    for came_from in ORIGINS:
        assert expected(state, trigger, came_from) == looked_up(state, trigger, came_from)


@pytest.mark.parametrize(("state", "trigger"), CELLS)
def test_transitions_agrees_on_every_cell(state: AgentState, trigger: Trigger) -> None:
    """A `transitions` machine built from the table moves as `target` does, or refuses as it does."""
    live, model = machine()
    for came_from in ORIGINS:
        live.set_state(str(state), model)
        model.came_from = came_from
        try:
            moved = bool(live.events[str(trigger)].trigger(model))
        except MachineError:
            moved = False
        assert (looked_up(state, trigger, came_from) or (str(state) if not moved else None)) == model.state


def test_live_and_terminal_states_are_all_states() -> None:
    """Three states are live, six are terminal, and none is both."""
    assert {"RUNNING", "WAITING_FOR_TOOL", "WAITING_FOR_INPUT"} == LIVE
    assert {"COMPLETED", "CANCELLED", "TIMED_OUT", "MAX_STEPS", "BUDGET_EXCEEDED", "ERROR"} == TERMINAL


TRAITS = {
    "RUNNING": set[str](),
    "WAITING_FOR_TOOL": {"awaits_tools"},
    "WAITING_FOR_INPUT": {"awaits_operator"},
    "COMPLETED": {"terminal", "succeeded"},
    "CANCELLED": {"terminal", "cancelled"},
    "TIMED_OUT": {"terminal"},
    "MAX_STEPS": {"terminal"},
    "BUDGET_EXCEEDED": {"terminal"},
    "ERROR": {"terminal", "failed"},
}


@pytest.mark.parametrize("state", AgentState)
def test_a_state_says_what_it_means(state: AgentState) -> None:
    """Each state has exactly the properties that are listed here for it."""
    names = ("terminal", "awaits_tools", "awaits_operator", "succeeded", "cancelled", "failed")
    assert TRAITS[state] == {name for name in names if getattr(state, name)}


@pytest.mark.parametrize("state", AgentState)
def test_a_state_survives_copying_and_codecs(state: AgentState) -> None:
    """A state that was pickled, copied, or encoded and decoded is the same object."""
    assert state is pickle.loads(pickle.dumps(state))
    assert state is copy.deepcopy(state)
    assert state is msgspec.json.decode(msgspec.json.encode(state), type=AgentState)


def test_no_move_leaves_a_terminal_state() -> None:
    """To go on after an end is to fork: the table has no move out of a terminal state."""
    assert not [cell for cell in MOVES if cell[0] in TERMINAL]


@pytest.mark.parametrize("state", sorted(LIVE))
def test_every_live_state_can_be_stopped(state: AgentState) -> None:
    """A run can be cancelled, timed out and failed from wherever it is."""
    assert ["CANCELLED", "TIMED_OUT", "ERROR"] == [
        target(state, trigger, None) for trigger in (Trigger.CANCEL, Trigger.TIME_OUT, Trigger.FAIL)
    ]


def test_an_illegal_move_names_state_and_trigger() -> None:
    """The error of a missing cell says which move from which state."""
    with pytest.raises(IllegalMove, match="no move 'complete' from WAITING_FOR_TOOL") as caught:
        target(AgentState.WAITING_FOR_TOOL, Trigger.COMPLETE, None)
    assert ("WAITING_FOR_TOOL", "complete", None) == (
        caught.value.source,
        caught.value.trigger,
        caught.value.target,
    )
