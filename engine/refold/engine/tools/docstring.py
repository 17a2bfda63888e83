"""What a docstring says of a tool and of each of its arguments.

Two styles are read, Google's `Args:` and Sphinx's `:param x:`. It is a small parser of our own rather than a
dependency: a docstring is shown to a model, not rendered, so paragraphs and names are all that is needed.
"""

import inspect
import re
from collections.abc import Iterator
from typing import NamedTuple

_ARGUMENTS = re.compile(r"(args|arguments|parameters|params):\s*$", re.IGNORECASE)
# What a tool returns or raises is for the people who call the function, not for the model that reads results.
_SILENT = re.compile(r"(returns?|raises|yields?):\s*$", re.IGNORECASE)
_SPHINX = re.compile(r":param(?:eter)?\s+(?:[^:]*\s)?(\w+)\s*:\s*(.*)")
_SPHINX_SILENT = re.compile(r":(type|returns?|rtype|raises?|yields?)\b[^:]*:")
_ENTRY = re.compile(r"(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")


class Documentation(NamedTuple):
    """The text before and after the sections, and one line of text an argument."""

    description: str
    arguments: dict[str, str]


def parse(docstring: str | None) -> Documentation:
    """Split a docstring into the description of the tool and those of its arguments. Never raises."""
    prose: list[str] = []
    arguments: dict[str, list[str]] = {}
    for name, line in _attributed(inspect.cleandoc(docstring or "").splitlines()):
        if name is None:
            prose.append(line)
        elif name:
            arguments.setdefault(name, []).append(line.strip())
    description = re.sub(r"\n{3,}", "\n\n", "\n".join(prose)).strip()
    return Documentation(description, {name: " ".join(lines).strip() for name, lines in arguments.items()})


def _attributed(lines: list[str]) -> Iterator[tuple[str | None, str]]:
    """Each line with whom it is about: None is the tool, a name is an argument, "" is left out."""
    about: str | None = None
    entries = False  # within a Google section of arguments
    margin: int | None = None  # how far the entries of that section are indented
    for line in lines:
        text = line
        indent = len(line) - len(line.lstrip())
        if line and not indent:
            entries, margin = bool(_ARGUMENTS.match(line)), None
            about, text = _section(line)
        elif entries and line.strip():
            margin = indent if margin is None else margin
            if indent <= margin and (entry := _ENTRY.match(line.strip())):
                about, text = entry[1], entry[2]
        yield about, text


def _section(line: str) -> tuple[str | None, str]:
    """Whom a line without indentation, and what hangs below it, is about."""
    if parameter := _SPHINX.match(line):
        return parameter[1], parameter[2]
    if _ARGUMENTS.match(line) or _SILENT.match(line) or _SPHINX_SILENT.match(line):
        return "", ""
    return None, line
