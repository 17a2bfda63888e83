"""Matchers: the parts of prompts, arguments and results that a comparison ignores.

    ignore=["date", r"build-\\d+", Ignore("uuid", message="system"), Ignore(field="arguments.request_id")]

A text stands for a pattern that is ignored everywhere: the name of a pattern in `PATTERNS`, or a regular
expression. Matches are replaced by `<date>` or `<ignored>` on both sides before they are compared.
"""

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, cast

import msgspec

from refold.reducers.errors import WrongUse

_MONTH = "(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_DAY = "(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,? +"
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?: ?[ap]m)?(?: ?(?:z|utc|gmt)\b|[+-]\d{2}:?\d{2})?"

PATTERNS: Mapping[str, str] = MappingProxyType(
    {
        "date": (
            rf"(?i)(?:{_DAY})?(?:\b\d{{4}}-\d{{2}}-\d{{2}}(?:[t ]{_CLOCK})?"
            rf"|\b\d{{1,2}}\.? {_MONTH}\.?,? \d{{4}}|\b{_MONTH}\.? \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}"
            r"|\b\d{1,2}[/.]\d{1,2}[/.]\d{4})"
        ),
        "time": rf"(?i)\b{_CLOCK}",
        "uuid": r"(?i)\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b",
        "number": r"-?\b\d+(?:\.\d+)?\b",
        "temporary": r"(?:/private)?/(?:tmp|var/folders|var/tmp)/[^\s\"']+",
    }
)
"""Named patterns: dates with or without a time of day, times of day, UUIDs, numbers, temporary files."""

FIELDS = ("text", "reasoning", "arguments", "description", "schema")
"""The fields that a matcher can name; `arguments.KEY` is one argument of calls and results."""


class Ignore(msgspec.Struct, frozen=True):
    """A part of messages that a comparison ignores.

    Args:
        pattern: A name in `PATTERNS`, or a regular expression; "": the whole field.
        message: Only in messages of this role (`system`, `user`, `assistant`, `tool`), or in results and
            calls of the tool with this name; "": in all.
        field: Only in this field (see `FIELDS`); "": in all.

    Raises:
        WrongUse: The pattern is no regular expression, the field is unknown, or all three are empty.
    """

    pattern: str = ""
    message: str = ""
    field: str = ""

    def __post_init__(self) -> None:
        """Check the pattern and the field."""
        if not (self.pattern or self.message or self.field):
            raise WrongUse("Ignore(): expected a pattern, a message or a field: this would ignore everything")
        if self.field and self.field.split(".", 1)[0] not in FIELDS:
            raise WrongUse(
                f"Ignore(field={self.field!r}): expected one of {', '.join(FIELDS)}, arguments.KEY"
            )
        near = difflib.get_close_matches(self.pattern, PATTERNS, 1, cutoff=0.8)
        if near and self.pattern not in PATTERNS:
            raise WrongUse(
                f"ignore {self.pattern!r}: did you mean {near[0]!r}? For this very text, write {self.pattern + '()'!r}"
            )
        try:
            re.compile(PATTERNS.get(self.pattern, self.pattern))
        except re.error as error:
            known = ", ".join(PATTERNS)
            raise WrongUse(
                f"ignore {self.pattern!r}: expected a regular expression or one of {known}: {error}"
            ) from error

    @property
    def label(self) -> str:
        """The replacement for a match."""
        return f"<{self.pattern}>" if self.pattern in PATTERNS else "<ignored>"

    def applies(self, message: str, name: str, field: str) -> bool:
        """Return whether it applies to a field of a message with this role and tool name.

        Descriptions and schemas of tools are compared in full, unless a matcher names that field.
        """
        if field in ("description", "schema") and self.field != field:
            return False
        return self.message in ("", message, name) and self.field in ("", field)

    def replace(self, text: str) -> str:
        """Return the text with each match replaced."""
        if not self.pattern:
            return self.label
        return re.sub(PATTERNS.get(self.pattern, self.pattern), lambda _: self.label, text)


Ignored = str | Ignore


class Matchers:
    """Several matchers. `used` tells whether one of them changed a text so far.

    Raises:
        WrongUse: As `Ignore`, with the matcher's place.
    """

    def __init__(self, ignore: Iterable[Ignored] = ()) -> None:
        if isinstance(ignore, str):
            raise WrongUse(f"ignore={ignore!r}: expected a list, as in ignore=[{ignore!r}]")
        self._all = tuple(each if isinstance(each, Ignore) else Ignore(each) for each in ignore)
        self.used = False

    def __bool__(self) -> bool:
        return bool(self._all)

    def text(self, text: str, *, message: str = "", name: str = "", field: str = "text") -> str:
        """Return a text with the ignored parts replaced."""
        for each in self._all:
            if each.applies(message, name, field):
                replaced = each.replace(text)
                self.used = self.used or replaced != text
                text = replaced
        return text

    def arguments(self, text: str, *, message: str = "assistant", name: str = "") -> str:
        """Return the JSON text of arguments with the ignored parts replaced."""
        keys = [
            each
            for each in self._all
            if each.field.startswith("arguments.") and each.applies(message, name, each.field)
        ]
        if keys:
            try:
                values: Any = json.loads(text)
            except ValueError:
                values = None
            if isinstance(values, dict):
                text = json.dumps(self._without(cast("dict[str, Any]", values), keys), ensure_ascii=False)
        return self.text(text, message=message, name=name, field="arguments")

    def _without(self, values: dict[str, Any], keys: Iterable[Ignore]) -> dict[str, Any]:
        for each in keys:
            *path, last = each.field.split(".")[1:]
            inner: Any = values
            for key in path:
                inner = cast("dict[str, Any]", inner).get(key) if isinstance(inner, dict) else None
            if isinstance(inner, dict) and last in inner:
                held = cast("dict[str, Any]", inner)
                value = held[last]
                held[last] = each.replace(value if isinstance(value, str) else json.dumps(value))
                self.used = True
        return values
