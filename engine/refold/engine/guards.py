"""Guards that are installed here: those of refold, and those that other packages offer by an entry point."""

from importlib.metadata import entry_points

from refold.reducers.errors import WrongUse
from refold.reducers.guards import BUILTIN, Registry

GROUP = "refold.guards"


def installed_guards() -> Registry:
    """The guards by their kind. An entry point in group `refold.guards` names a class; its name is the kind."""
    found = dict(BUILTIN)
    for point in entry_points(group=GROUP):
        if point.name in found:
            raise WrongUse(f"the guard {point.name!r} of {point.value} has a name that is taken")
        found[point.name] = point.load()
    return found
