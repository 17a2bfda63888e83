"""Searching by a person's regular expression in lines of any length."""

import re

# Trying again from every place is what a pattern costs: within a line as long as this it is not felt.
_REACH, _OVERLAP = 4096, 512
# What an expression calls an end, and the pieces of it in which the same characters mean something else.
_END = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\$", re.DOTALL)


def found(pattern: re.Pattern[str], line: str) -> re.Match[str] | None:
    """What a pattern finds first in a line, in one as long as you like: not more than 4,096 characters at once.

    A piece decides what begins in it, but for its last 512 characters: they are the next one's, which has what follows
    them. A line begins once, and ends once.
    """
    start, endless = 0, _endless(pattern) if len(line) > _REACH else pattern
    while start + _REACH < len(line):
        match = endless.search(line, start, start + _REACH)
        start += _REACH - _OVERLAP
        if match is not None and match.start() < start:
            return match
    return pattern.search(line, start)


def _endless(pattern: re.Pattern[str]) -> re.Pattern[str]:
    """The pattern for a piece behind which the line goes on: nothing in it is an end."""
    inner = _END.sub(lambda each: "(?!)" if each[0] in ("$", r"\Z") else each[0], pattern.pattern)
    return re.compile(inner, pattern.flags)
