"""What the engine logs, as lines on stderr: warnings of a policy, and of `refold.prune` where a variable asks for it."""

import logging
from collections.abc import Mapping

from refold.console.screen import note
from refold.engine.journal import LOGGER
from refold.reducers.overlay import flag

PRUNE_LOG = "REFOLD_PRUNE_LOG"


class _OnStderr(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


def follow(environment: Mapping[str, str]) -> None:
    """Show the lines from now on. Raises `PolicyError` where the variable is neither on nor off."""
    if flag(environment, PRUNE_LOG):
        LOGGER.setLevel(logging.INFO)
        _shown(LOGGER)
    _shown(logging.getLogger("refold.policy"))


def _shown(logger: logging.Logger) -> None:
    if not any(isinstance(handler, _OnStderr) for handler in logger.handlers):
        logger.addHandler(_OnStderr())
