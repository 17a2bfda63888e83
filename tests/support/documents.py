"""Fenced blocks of documents: their text, and the commands of a console block with what they print."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FENCE = re.compile(r"^```(?P<language>[^\n]*)\n(?P<text>.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
_NOT_RUN = re.compile(r"<!-- not run: (?P<why>[^\n]+) -->\n\Z")
_FILE = re.compile(r"# (?P<name>[\w.-]+\.\w+)\n")


class Block(NamedTuple):
    """A fenced block: language, text, first line number, and why it is not run, if so."""

    language: str
    text: str
    line: int
    not_run: str
    follows: str  # the language of the block right before it, with nothing but white space in between

    @property
    def file(self) -> str:
        """The name under which a reader saves it, "" if they do not."""
        found = _FILE.match(self.text)
        return found["name"] if found and self.language != "text" else ""


def blocks(path: Path) -> list[Block]:
    """The fenced blocks of a document, in order."""
    text = path.read_text(encoding="utf-8")
    found: list[Block] = []
    end = 0
    for match in FENCE.finditer(text):
        between = text[end : match.start()]
        skip = _NOT_RUN.search(between)
        follows = found[-1].language if found and not between.strip() else ""
        line = text.count("\n", 0, match.start()) + 2
        found.append(
            Block(match["language"].strip(), match["text"], line, skip["why"] if skip else "", follows)
        )
        end = match.end()
    return found


def matches(expected: str, printed: str) -> bool:
    """Return whether the output matches: `...` is any text, trailing white space is ignored."""
    wanted, got = (
        "\n".join(line.rstrip() for line in text.strip().splitlines()) for text in (expected, printed)
    )
    pattern = "".join(
        ".*?" if piece == "..." else re.escape(piece) for piece in re.split(r"(\.\.\.)", wanted)
    )
    return re.fullmatch(pattern, got, re.DOTALL) is not None


def commands(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with what it is said to print."""
    command, output = "", list[str]()
    for line in text.splitlines():
        if line.startswith("$ "):
            if command:
                yield command, "\n".join(output)
            command, output = line[2:], []
        elif line.startswith("> ") and not output:
            command += "\n" + line[2:]
        else:
            output.append(line)
    if command:
        yield command, "\n".join(output)
