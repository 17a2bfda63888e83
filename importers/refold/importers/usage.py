"""Tokens of a request, under the names that formats use."""

from collections.abc import Callable, Iterable
from functools import cache
from operator import add

import msgspec

from refold.importers.fields import JSON, at, number, table, take
from refold.reducers.messages import Usage


class UsageNames(msgspec.Struct, frozen=True, kw_only=True):
    """Names of a format's token counts. For each kind, the first name with a count applies.

    A name may be a path, with `/` between its steps. `beside`: the input count excludes cached tokens.
    """

    input: tuple[str, ...]
    output: tuple[str, ...]
    cache_read: tuple[str, ...] = ()
    cache_write: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()
    beside: bool = False

    def of(self, said: JSON) -> Usage | None:
        """Return the usage that an object records, None if it is not an object."""
        counted = isinstance(said, dict)
        return self._make_usage([_first(said, each) for each in self._kinds()]) if counted else None

    def take(self, value: JSON, *path: str) -> Usage | None:
        """Take the usage that the object there records, else return None."""
        found = at(value, *path)
        if not isinstance(found, dict):
            return None
        used = self._make_usage([_take_first(found, each) for each in self._kinds()])
        if not found:
            take(value, *path)
        return used

    def _kinds(self) -> tuple[tuple[str, ...], ...]:
        return self.input, self.output, self.cache_read, self.cache_write, self.reasoning

    def _make_usage(self, counts: Iterable[int]) -> Usage:
        sent, got, read, written, thought = counts
        sent += read + written if self.beside else 0
        return Usage(input=sent, output=got, cache_read=read, cache_write=written, reasoning=thought)

    def list_unrecorded(self, said: Iterable[JSON]) -> tuple[str, ...]:
        """Return the kinds of tokens (names of `RunCounts` fields) that none of these objects records."""
        known = {name for one in said for name in table(one)}
        kinds = {
            "input_tokens": self.input,
            "cache_read_tokens": self.cache_read,
            "cache_write_tokens": self.cache_write,
            "output_tokens": self.output,
        }
        return tuple(kind for kind, names in kinds.items() if not known & {*names})


CHAT_TOKENS = UsageNames(
    input=("prompt_tokens", "input_tokens"),
    output=("completion_tokens", "output_tokens"),
    cache_read=("prompt_tokens_details/cached_tokens", "input_tokens_details/cached_tokens"),
    reasoning=("completion_tokens_details/reasoning_tokens",),
)
"""Names in OpenAI's APIs and their imitations."""


def _first(said: JSON, names: Iterable[str]) -> int:
    return next((count for name in names if (count := number(said, *_path(name)))), 0)


def _take_first(said: JSON, names: Iterable[str]) -> int:
    """Return the same, and take the value from each name that has it."""
    counts = [(name, number(said, *_path(name))) for name in names]
    found = next((count for _, count in counts if count), 0)
    for name, count in counts:
        if count == found:
            take(said, *_path(name))
    return found


@cache
def _path(name: str) -> list[str]:
    return name.split("/")


def each_of(one: Usage, other: Usage, rule: Callable[[int, int], int]) -> Usage:
    """Combine two usages with one rule for each kind of token."""
    return Usage(
        input=rule(one.input, other.input),
        output=rule(one.output, other.output),
        cache_read=rule(one.cache_read, other.cache_read),
        cache_write=rule(one.cache_write, other.cache_write),
        reasoning=rule(one.reasoning, other.reasoning),
    )


def larger(one: Usage | None, other: Usage | None) -> Usage | None:
    """Return the larger of two counts of one response."""
    return each_of(one, other, max) if one and other else one or other


def plus(one: Usage, other: Usage) -> Usage:
    """Return the sum of two usages."""
    return each_of(one, other, add)


def sum_counts(said: Iterable[JSON], *names: str) -> int | None:
    """Sum the first count that each object has; None if no object has one."""
    found = (next((n for name in names if (n := number(one, name)) is not None), None) for one in said)
    known = [count for count in found if count is not None]
    return sum(known) if known else None
