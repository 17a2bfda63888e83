"""Replacing one piece of a text. Pure."""

from typing import NamedTuple


class EditError(Exception):
    """The piece is not to be found exactly once; the message is for the model and repeats no text."""


class Edit(NamedTuple):
    """The text after an edit, and the line, from 1, at which the piece began."""

    text: str
    line: int


def replace_once(text: str, old: str, new: str) -> Edit:
    """Replace `old`, which must occur exactly once, by `new`. Raises `EditError`.

    Occurrences may overlap: `aa` occurs twice in `aaa`, and which one was meant is not ours to guess.
    """
    if not old:
        raise EditError("the old text is empty; give the text to replace, or use write_file")
    if old == new:
        raise EditError("the old and the new text are the same, so there is nothing to do")
    first = text.find(old)
    if first < 0:
        raise EditError(_absent(text, old))
    if text.find(old, first + 1) >= 0:
        raise EditError(
            f"the old text occurs {occurrences(text, old)} times; add lines around it until it is the only one"
        )
    return Edit(text[:first] + new + text[first + len(old) :], text.count("\n", 0, first) + 1)


def occurrences(text: str, piece: str) -> int:
    """How often a piece occurs, overlapping or not; it must not be empty."""
    count = 0
    at = text.find(piece)
    while at >= 0:
        count += 1
        at = text.find(piece, at + 1)
    return count


def _absent(text: str, old: str) -> str:
    if "\r\n" in text and "\r\n" not in old and old.replace("\n", "\r\n") in text:
        return "the old text does not occur as it is: lines of this file end in \\r\\n, so write \\r\\n in old and new"
    if old.strip() and old.strip() in text:
        return "the old text does not occur as it is, only with other space around it; copy it exactly"
    return "the old text does not occur; read the file and copy the text exactly, spaces and line ends too"
