"""Words of strangers for what they recorded: their own where we know it, never one that we say something else by.

What an import says of a source is told by these words (`limit:steps`, `prompt:equal`), so no source may choose them.
"""

from collections.abc import Set

_LONGEST = 40
_MARKS = "_-."


def known_or(word: str, known: Set[str]) -> str:
    """A source's word if it is one of `known`; else `unmapped:WORD`, or `unmapped` where it is no plain short word."""
    return word if word in known else prefixed("unmapped", word)


def prefixed(kind: str, word: str) -> str:
    """`KIND:WORD` for a word of at most 40 ASCII letters, digits and `_`, `-`, `.`; for anything else `KIND`."""
    plain = word.isascii() and all(char.isalnum() or char in _MARKS for char in word)
    return f"{kind}:{word}" if word and plain and len(word) <= _LONGEST else kind
