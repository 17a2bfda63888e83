"""The machine as a living object, built with `transitions` from the one table of moves.

`evolve` does not need it: it is for people, who draw it and hang callbacks on a run
(`run.machine.on_enter_COMPLETED(tell_me)`), and for a test that holds the two against each other.
"""

from collections.abc import Callable
from typing import Any

from transitions import Machine
from transitions.extensions import GraphMachine

from refold.engine.updates import Recorded, Update
from refold.reducers.events import StateChanged
from refold.reducers.machine import MOVES, AgentState


class LiveAgent:
    """What the machine moves: an agent that is in one state and remembers in which one it asked.

    Callbacks hang on `machine`: `agent.machine.on_enter_WAITING_FOR_INPUT(ring_a_bell)`.
    """

    state: str
    trigger: Callable[[str], bool]  # given by transitions

    def __init__(self) -> None:
        self.came_from: str | None = None
        self.machine = Machine(model=self, **_definition(self))

    def put(self, update: Update) -> None:
        """Follow the run: see `Listener`."""
        if isinstance(update, Recorded) and isinstance(update.event, StateChanged):
            # A person's answer leads back to where the agent asked: the table's two targets need to know.
            self.follow(update.event.trigger, update.event.target)

    def close(self) -> None:
        """It stays where the run stands, which may go on."""

    def follow(self, trigger: str, came_from: str | None) -> None:
        """Make a recorded move; callbacks run. Raises `transitions.MachineError` if the table has none such."""
        self.came_from = came_from
        self.trigger(trigger)


def mermaid() -> str:
    """The machine as a Mermaid state diagram, drawn by `transitions` from the table."""
    agent = LiveAgent()
    drawn = GraphMachine(model=agent, graph_engine="mermaid", title="AgentState", **_definition(agent))
    return "\n".join(line.rstrip() for line in str(drawn.get_graph().source).splitlines())


def _definition(agent: LiveAgent) -> dict[str, Any]:
    return {
        "states": [str(state) for state in AgentState],
        "transitions": [
            _move(agent, str(source), str(trigger), str(target), chosen=len(targets) > 1)
            for (source, trigger), targets in MOVES.items()
            for target in targets
        ],
        "initial": str(AgentState.RUNNING),
        "auto_transitions": False,
    }


def _move(agent: LiveAgent, source: str, trigger: str, target: str, *, chosen: bool) -> dict[str, Any]:
    move: dict[str, Any] = {"trigger": trigger, "source": source, "dest": target}
    if chosen:
        # Of two targets the state in which the agent asked is the one.
        move["conditions"] = lambda: agent.came_from == target
    return move
