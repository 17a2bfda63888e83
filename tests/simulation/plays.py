"""Plays of our own scenarios: a plan, with a scenario by hand or that of its seed."""

import msgspec

from refold.testing.simulation.faults import Fault, draw_faults
from refold.testing.simulation.plan import Plan
from refold.testing.simulation.schedule import Outcome, play
from simulation.scenarios import BY_HAND, by_chance


class Play(msgspec.Struct, frozen=True):
    """A plan, and the name of a scenario; "" for the scenario that the plan's seed makes."""

    plan: Plan
    scenario: str = ""

    def __str__(self) -> str:
        """Return the command that plays it again with its trace."""
        named = f" --scenario '{self.scenario}'" if self.scenario else ""
        return f"python tests/simulation/run.py --schedule '{self.plan}'{named}"

    def play(self, *, trace: bool = False) -> Outcome:
        """Play it."""
        scenario = BY_HAND[self.scenario] if self.scenario else by_chance(self.plan.seed)
        return play(self.plan, scenario, trace=trace)


def of_seed(seed: int) -> Play:
    """Return the play of a seed."""
    return Play(Plan.draw(seed, draw_faults))


def of_faults(scenario: str, *faults: Fault, seed: int = 0) -> Play:
    """Return a play of a scenario by hand with these faults."""
    return Play(Plan(seed, faults), scenario)
