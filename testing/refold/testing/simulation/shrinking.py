"""Shrinking of a failing plan to the fewest deviations."""

from collections.abc import Callable

from refold.testing.simulation.plan import Plan
from refold.testing.simulation.schedule import Outcome

_PLAYS = 200
"""Maximum of plays: a plan has at most ten deviations, so shrinking usually needs 20 to 60."""


def shrink_plan(failed: Outcome, play: Callable[[Plan], Outcome]) -> Outcome:
    """Return the outcome of the simplest plan found that has a violation of the same kind.

    Args:
        failed: an outcome with violations; the kind of the first one counts.
        play: plays a plan.
    """
    kind = failed.violations[0].kind
    best, left = failed, _PLAYS
    tried = {str(best.plan)}
    improved = True
    while improved and left:
        improved = False
        for plan in best.plan.simpler():
            if str(plan) in tried:
                continue
            tried.add(str(plan))
            left -= 1
            outcome = play(plan)
            if any(each.kind is kind for each in outcome.violations):
                best, improved = outcome, True
                break
            if not left:
                break
    return best
