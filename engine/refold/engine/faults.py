"""Exceptions out of other people's code: whose they are, and how they are told."""

import math

import anyio

from refold.engine.isolation import closed, cut_short


def somebody_elses(error: BaseException) -> bool:
    """Whether it is the model's or the tool's own failure: no interrupt, and no cancellation that is ours."""
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return False
    if isinstance(error, GeneratorExit):
        return not closed()
    if not isinstance(error, anyio.get_cancelled_exc_class()):
        return True
    return not (anyio.current_effective_deadline() == -math.inf or cut_short())


class Exited(Exception):
    """A tool asked to end its process, as `sys.exit` does; it is told in those words."""


def worded(error: BaseException) -> str:
    """The error's class, and what it says of itself."""
    if isinstance(error, Exited):
        return str(error)
    try:
        said = str(error)
    except Exception:  # an error that cannot even be printed
        said = ""
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
