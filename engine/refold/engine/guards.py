"""Guards that are installed here: those of refold, and those that other packages offer by an entry point."""

import sys
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from refold.reducers.errors import WrongUse
from refold.reducers.guards import BUILTIN, Registry

GROUP = "refold.guards"


def installed_guards() -> Registry:
    """The guards by their kind. An entry point in group `refold.guards` names a class; its name is the kind."""
    found = dict(BUILTIN)
    for point in _points(tuple((folder, _changed(folder)) for folder in sys.path)):
        if point.name in found:
            raise WrongUse(f"the guard {point.name!r} of {point.value} has a name that is taken")
        found[point.name] = point.load()
    return found


@lru_cache(maxsize=1)
def _points(folders: tuple[tuple[str, float], ...]) -> tuple[EntryPoint, ...]:  # noqa: ARG001
    """What is installed there: reading it takes milliseconds, seeing that nothing has changed takes none."""
    return tuple(entry_points(group=GROUP))


def _changed(folder: str) -> float:
    """When something was put into the folder, or taken out; 0 for none."""
    try:
        return Path(folder or ".").stat().st_mtime
    except OSError:
        return 0.0
