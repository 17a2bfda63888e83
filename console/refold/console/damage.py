"""Damage of a file that was found while a command read it: told after the answer, which may be the best there is."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from refold.reducers.errors import Damaged

_found: list["Damaged"] = []


def keep(error: "Damaged") -> None:
    """Remember it until the command has answered."""
    _found.append(error)


def forget() -> None:
    """Another command begins."""
    _found.clear()


def first() -> "Damaged | None":
    """What was found first, if anything was."""
    return _found[0] if _found else None
