"""Which regular expressions a policy may have: those whose search comes to an end on any text.

Python's `re` tries again where it failed, and what can match one text in many ways is tried in all of them. So nothing
that varies may be repeated, and not many repetitions without an end may stand side by side: with nothing between them, or
with characters that those before would take as well. How much of a text is searched at once hangs on how many they are,
and on nothing that could be another on another machine: a decision may follow from it.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from refold.reducers.refusals import Fault, shown

_TOKEN = re.compile(
    r"""
    (?P<escape>\\.)
    | (?P<class>\[\^?\]?(?:\\.|[^\]\\])*\])
    | (?P<open>\((?:\?(?:P<\w+>|P=|<[=!]|[:=!>]|\#|[a-zA-Z-]+:?))?)
    | (?P<close>\))
    | (?P<repeat>(?:[*+?]|\{\d*,?\d*\})[?+]?)
    | (?P<bar>\|)
    | (?P<literal>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_BOUNDS = re.compile(r"\{(\d*)(,?)(\d*)\}")
_SIDE_BY_SIDE = 2
_ENDLESS = 9
"""What a repetition without an end weighs; one with an end weighs the bits of the number of its lengths, 9 at most."""

_SLACK = 6  # a few alternatives, and things that may be missing

_MOST_STEPS = 2**27


class _Group:
    """A group that is being read: whether what it matches varies, and what was repeated since something fixed."""

    def __init__(self, before: frozenset[str] = frozenset()) -> None:
        self.before = before  # what was repeated around it, and may take what it begins with
        self.varies = False
        self.weight = 0  # of the repetitions side by side
        self.repeated: frozenset[str] = frozenset()  # what they repeat, and "" for what is not known
        self.taken: frozenset[str] = frozenset()  # all that it may take
        self.atom = ""  # the last thing, if it was one character or class
        self.inside: _Group | None = None  # the group that was just closed, if that was the last thing
        self.hidden: tuple[int, frozenset[str], bool] = (
            0,
            frozenset(),
            False,
        )  # what stands before that group
        self.fixed = ""  # the last thing, if it was a character of its own
        self.worst = 0  # weight of an alternative that was read before
        self.others: frozenset[str] = frozenset()  # what such alternatives repeat
        self.all_parted = True  # such alternatives
        self.heaviest = 0  # of all repetitions side by side that were seen anywhere in it
        self.bars = 0  # between alternatives
        self.parted = False  # something fixed stands in this alternative

    def closed_in(self, outer: "_Group") -> None:
        """Parentheses part nothing: what is in them stands beside what is around them."""
        outer.inside, outer.varies = self, outer.varies or self.varies
        outer.taken |= self.taken
        parted = self.parted and self.all_parted
        outer.hidden = (
            (outer.weight, outer.repeated, outer.parted) if parted else (0, frozenset(), outer.parted)
        )
        outer.weight = max(self.worst, self.weight) + (0 if parted else outer.weight)
        outer.repeated = self.others | self.repeated | (frozenset() if parted else outer.repeated)
        outer.parted = outer.parted or parted
        if self.bars:  # which of them is a choice, too
            outer.weight += self.bars.bit_length()
            outer.repeated |= self.taken
        outer.heaviest = max(outer.heaviest, self.heaviest, outer.weight)

    def part(self) -> None:
        """The last thing was a character of its own, and was not repeated: it parts, if nothing before it takes it."""
        if not any(_takes(atom, self.fixed) for atom in self.repeated | self.before):
            self.weight, self.repeated, self.parted = 0, frozenset(), True


def problem_of(pattern: str, *, side_by_side: int | None = _SIDE_BY_SIDE) -> str:
    """Why a regular expression cannot be one of a policy's; "" if it can.

    `side_by_side`: so many repetitions without an end may follow each other with nothing fixed between; None: any.
    """
    if "\b" in pattern:
        return (
            r"it holds a backspace; for the edge of a word write '\b' in single quotes, or \\b in double ones"
        )
    problem, weight = _weighed(pattern)
    if not problem and side_by_side is not None and weight > side_by_side * _ENDLESS + _SLACK:
        problem = f"more than {side_by_side} repetitions without an end side by side: give some an end, like {{0,20}}"
    return problem


def pattern_faults(path: str, pattern: str, *, side_by_side: int | None = _SIDE_BY_SIDE) -> Iterator[Fault]:
    """`problem_of` a pattern that stands at this path, if there is one."""
    problem = problem_of(pattern, side_by_side=side_by_side)
    if problem:
        yield path, f"{problem}; got {shown(pattern)}"


@lru_cache(maxsize=256)
def reach(pattern: str, most: int, *, anywhere: bool = True) -> int:
    """How many characters, `most` at most, may be searched at once, so that a search costs 2^27 steps at worst.

    `anywhere`: from each place of them, not from the first alone.
    """
    _, weight = _weighed(pattern)
    power = -(-max(0, weight - _SLACK) // _ENDLESS) + anywhere  # each length of each repetition
    length = most
    while length > 1 and length**power > _MOST_STEPS:
        length -= max(1, length // 16)
    return length


def occurs(pattern: str, texts: Iterable[str]) -> bool | None:
    """Whether a pattern of a policy is found in one of these texts; None: nobody can say, for one of them is too long for
    its search to come to an end in time (see `reach`), or it is no pattern that a policy can have, as in a forged log.
    """
    known: bool | None = False
    for text in texts:
        if _unfit(pattern) or len(text) > reach(pattern, _MOST_STEPS):
            known = None
        elif re.search(pattern, text) is not None:
            return True
    return known


@lru_cache(maxsize=256)
def _unfit(pattern: str) -> bool:
    return bool(problem_of(pattern, side_by_side=None))


def _weighed(pattern: str) -> tuple[str, int]:
    """What is wrong with it, and the heaviest repetitions side by side."""
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"no regular expression: {error}", 0
    groups = [_Group()]
    for token in _TOKEN.finditer(pattern):
        problem = _read(groups, token)
        if problem:
            return problem, 0
    return "", groups[0].heaviest


def _read(groups: list[_Group], token: re.Match[str]) -> str:
    group, kind, text = groups[-1], token.lastgroup, token[0]
    if kind == "repeat":
        return _repeated(group, text)
    if group.fixed:
        group.part()
    group.inside, group.atom, group.fixed = None, "", ""
    if kind in ("literal", "escape", "class"):
        group.atom = text
        group.taken |= {text}
        if (kind == "literal" and text not in ".^$") or (kind == "escape" and not text[1].isalnum()):
            group.fixed = text[-1]
    elif kind == "open":
        groups.append(_Group(group.before | group.repeated))
    elif kind == "close" and len(groups) > 1:
        groups.pop().closed_in(groups[-1])
    elif kind == "bar":
        group.varies, group.bars = True, group.bars + 1
        group.others, group.repeated = group.others | group.repeated, frozenset()
        group.worst, group.weight = max(group.worst, group.weight), 0
        group.all_parted, group.parted = group.all_parted and group.parted, False
    return ""


def _repeated(group: _Group, text: str) -> str:
    least, most = _bounds(text)
    if group.inside is not None and group.inside.varies and (most is None or most > 1):
        return "a repetition of what varies itself: it could search a text without end"
    if group.inside is not None and least == 0:  # what may be missing parts nothing
        weight, repeated, group.parted = group.hidden
        group.weight, group.repeated = group.weight + weight, group.repeated | repeated
    if least != most:
        group.varies = True
        group.weight += _ENDLESS if most is None else min(_ENDLESS, (most - least).bit_length())
        group.repeated |= group.inside.taken if group.inside is not None else {group.atom}
        group.heaviest = max(group.heaviest, group.weight)
    group.inside, group.atom, group.fixed = None, "", ""
    return ""


@lru_cache(maxsize=1024)
def _takes(atom: str, character: str) -> bool:
    """Whether what is repeated may match this character, in any case."""
    try:
        return not atom or re.fullmatch(atom, character, re.IGNORECASE | re.DOTALL) is not None
    except re.error:  # what some other group matched
        return True


def _bounds(text: str) -> tuple[int, int | None]:
    bounds = _BOUNDS.match(text)
    if bounds is None:
        return (0, 1) if text[0] == "?" else (0 if text[0] == "*" else 1, None)
    least = int(bounds[1] or 0)
    if not bounds[2]:
        return least, least
    return least, int(bounds[3]) if bounds[3] else None
