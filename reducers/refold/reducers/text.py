"""Pure rules over text: cleaning, measuring, cutting."""

import re
from typing import Literal, TypeVar

import msgspec

from refold.reducers.numbers import NANO
from refold.reducers.texts import render

_THINKING = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)


class Cut(msgspec.Struct, frozen=True):
    """A tool output after the cap: the text for the model, and the size in UTF-8 bytes before."""

    text: str
    size: int
    cut: bool = False


def clean(text: str) -> str:
    """The text without lone surrogates, each replaced by U+FFFD, so that it can be written as UTF-8 JSON."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)
    return text


StructT = TypeVar("StructT", bound=msgspec.Struct)


def all_clean(said: StructT) -> StructT:
    """The value with each of its texts `clean`: itself, if they were."""
    changed: dict[str, str] = {}
    for name in said.__struct_fields__:
        text = getattr(said, name)
        if type(text) is str and (shown := clean(text)) is not text:
            changed[name] = shown
    return msgspec.structs.replace(said, **changed) if changed else said


def label(name: str) -> str:
    """Who somebody is, as it may stand in a sentence: one line of printable characters, 100 at most."""
    return "".join(char for char in " ".join(name.split()) if char.isprintable())[:100]


def size_of(text: str) -> int:
    """The size of a text in UTF-8 bytes."""
    return len(text) if text.isascii() else len(text.encode())


def cut_output(
    output: str,
    maximum: int | None,
    marker: str,
    tool: str,
    unit: Literal["bytes", "chars"] = "bytes",
    keep: Literal["head_tail", "head"] = "head_tail",
) -> Cut:
    """Cap a tool's output to `maximum` UTF-8 bytes or characters: its first half and its last, or its head only.

    Equal to the maximum is untouched; None is no cap. The `output_cut` text stands between the halves, or after
    the head. All is cut between characters, so what stays of the output never exceeds the cap; a tail may be longer
    by what the head had to leave. The text does not count.
    """
    size = size_of(output)
    length = size if unit == "bytes" else len(output)
    if maximum is None or length <= maximum:
        return Cut(output, size)
    head = maximum if keep == "head" else maximum // 2
    if unit == "chars":
        first, last = output[:head], output[length - (maximum - head) :]
    else:
        data = output.encode()
        first = data[:head].decode(errors="ignore")
        # What the head could not use of its half, because a character does not end there, is the tail's.
        room = maximum - head if keep == "head" else maximum - len(first.encode())
        last = data[length - room :].decode(errors="ignore")
    return Cut(first + render(marker, {"tool": tool, "size": size}) + last, size, cut=True)


def without_thinking(text: str) -> str:
    """The text without what stands from each `<think>` to the next `</think>`, or to the end if none follows."""
    return _THINKING.sub("", text) if "<think>" in text else text


_CHANCE = 8  # characters: that so few are the same at the beginning may be chance


def starts_over(before: str, text: str) -> bool:
    """Whether a text that was to go on from `before` repeats all of it from the beginning."""
    begun = before.strip()
    return len(begun) >= _CHANCE and text.lstrip().startswith(begun)


def hollow(text: str) -> bool:
    """Whether nothing but white space is left of the text without its thinking."""
    words = text.lstrip()
    return not words or (words.startswith("<think>") and not without_thinking(words).strip())


def hours_minutes_seconds(nanoseconds: int) -> str:
    """`HH:MM:SS` of a time that is not negative: whole seconds toward zero, hours not wrapped at 24."""
    minutes, seconds = divmod(nanoseconds // NANO, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}"


def preview_length(text: str, chars: int, lines: int) -> int:
    """How many characters a preview has: the first `chars`, or up to and including newline number `lines` if fewer."""
    most, end = min(chars, len(text)), 0
    for _ in range(lines):
        end = text.find("\n", end, most) + 1
        if end == 0:
            return most
    return end
