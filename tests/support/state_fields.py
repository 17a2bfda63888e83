"""A state as its fields, by their paths: what the changes up to it add up to."""

from collections.abc import Mapping

from refold.reducers.state import RunState
from refold.replay.why import Changes, state_changes


def fields_of(state: RunState) -> dict[str, str]:
    """The fields of a state by their paths, as JSON text: what the changes up to it add up to.

    Of the policy and the tools it tells the state's own event, for which one brought them is not in it.
    """
    return {path: value for path, value in state_changes(None, state).items() if value is not None}


def applied(fields: Mapping[str, str], changes: Changes) -> dict[str, str]:
    """The fields of a state by their paths, made of those of the state before it."""
    made = dict(fields)
    for path, value in changes.items():
        if value is None:
            for gone in [each for each in made if each == path or each.startswith(f"{path}.")]:
                del made[gone]
        else:
            made[path] = value
    return made
