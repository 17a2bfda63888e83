"""Permission rules that never decide a call, because another rule of the list always decides first.

Only what follows from the text of the rules is found: a rule that is not listed may still never decide.
"""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from refold.reducers.patterns import matches
from refold.reducers.permissions.commands import Token, command_pattern
from refold.reducers.permissions.conditions import Conditions
from refold.reducers.permissions.rules import STRICTNESS, Order, PermissionRule


def find_shadowed(rules: Sequence[PermissionRule], order: Order) -> Iterator[tuple[int, int]]:
    """Yield the index of each rule that never decides, and that of the rule that decides instead."""
    for place, rule in enumerate(rules):
        others = (at for at, other in enumerate(rules) if _precedes(at, other, place, rule, order))
        by = next((at for at in others if covers(rules[at], rule)), None)
        if by is not None:
            yield place, by


def _precedes(at: int, other: PermissionRule, place: int, rule: PermissionRule, order: Order) -> bool:
    """Return whether the other rule decides a call that both match."""
    if order == "first":
        return at < place
    if order == "last":
        return at > place
    stricter = STRICTNESS[other.effect] - STRICTNESS[rule.effect]
    return stricter > 0 or (stricter == 0 and at < place)


def covers(wide: PermissionRule, narrow: PermissionRule) -> bool:
    """Return whether the first rule certainly matches every call that the second matches."""
    if wide.opaque or wide.after is not None or not _covers_tools(wide, narrow):
        return False
    if wide.when is not None and wide.when != narrow.when:
        return False
    conditions = (wide.command, wide.path, wide.host, wide.matches)
    if all(each is None for each in conditions):
        return True
    if wide.effect == "permit" and narrow.effect != "permit":
        return False  # a permission matches fewer commands
    return (
        wide.field == narrow.field
        and (wide.command is None or _covers_command(wide, narrow))
        and (wide.path is None or wide.path == narrow.path)
        and (wide.host is None or _covers_hosts(wide, narrow))
        and (wide.matches is None or (wide.matches, wide.unless) == (narrow.matches, narrow.unless))
    )


def _covers_tools(wide: Conditions, narrow: Conditions) -> bool:
    return all(
        any(glob == other or (_is_plain(glob) and fnmatchcase(other, glob)) for glob in wide.tools)
        for other in narrow.tools
    )


def _is_plain(glob: str) -> bool:
    return not any(letter in glob for letter in "?[")


def _covers_command(wide: Conditions, narrow: Conditions) -> bool:
    glob, other = wide.command, narrow.command
    if isinstance(glob, str) and isinstance(other, str):
        # A glob with one ` *` at its end also matches no further words.
        least = other.removesuffix(" *") if other.endswith(" *") and other.count("*") == 1 else other
        return all(matches(command_pattern(glob), text) for text in (other, least))
    if isinstance(glob, tuple) and isinstance(other, tuple):
        return len(glob) <= len(other) and all(map(_covers_word, glob, other))
    return False


def _covers_word(wide: Token, narrow: Token) -> bool:
    choices = {wide} if isinstance(wide, str) else set(wide)
    return ({narrow} if isinstance(narrow, str) else set(narrow)) <= choices


def _covers_hosts(wide: Conditions, narrow: Conditions) -> bool:
    known = set(wide.host or ())
    return narrow.host is not None and ("*" in known or set(narrow.host) <= known)
