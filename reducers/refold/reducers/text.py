"""Pure rules over text: cleaning, measuring, cutting."""

import msgspec

from refold.reducers.texts import render


class Cut(msgspec.Struct, frozen=True):
    """A tool output after the cap: the text for the model, and the size in UTF-8 bytes before."""

    text: str
    size: int
    cut: bool = False


def clean(text: str) -> str:
    """The text without lone surrogates, each replaced by U+FFFD, so that it can be written as UTF-8 JSON."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)
    return text


def label(name: str) -> str:
    """Who somebody is, as it may stand in a sentence: one line of printable characters, 100 at most."""
    return "".join(char for char in " ".join(name.split()) if char.isprintable())[:100]


def size_of(text: str) -> int:
    """The size of a text in UTF-8 bytes."""
    return len(text) if text.isascii() else len(text.encode())


def cut_output(output: str, maximum: int | None, marker: str, tool: str) -> Cut:
    """Cap a tool's output to `maximum` UTF-8 bytes: its first half and its last, the `output_cut` text between.

    Equal to the maximum is untouched. Both halves are cut between characters, so what stays of the output
    never exceeds the cap; the text between does not count. None is no cap.
    """
    size = size_of(output)
    if maximum is None or size <= maximum:
        return Cut(output, size)
    data = output.encode()
    head = data[: maximum // 2].decode(errors="ignore")
    tail = data[size - (maximum - maximum // 2) :].decode(errors="ignore")
    return Cut(head + render(marker, {"tool": tool, "size": size}) + tail, size, cut=True)
