"""What providers say of an answer, by whatever names: its tokens, and why it stopped."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from operator import add
from types import MappingProxyType

import msgspec

from refold.importers.fields import JSON, at, number, table, take
from refold.reducers.messages import Usage
from refold.reducers.vocabulary import StopReason


class UsageNames(msgspec.Struct, frozen=True, kw_only=True):
    """The names by which a format tells the tokens of a request: for each kind some, of which the first that counts holds.

    A name may be a path, its steps parted by `/`. `beside`: the input has what was cached not in it, but
    beside it.
    """

    input: tuple[str, ...]
    output: tuple[str, ...]
    cache_read: tuple[str, ...] = ()
    cache_write: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()
    beside: bool = False

    def of(self, said: JSON) -> Usage | None:
        """The usage that an object tells, None where there is none."""
        if not isinstance(said, dict):
            return None
        return self._used([_first(said, each) for each in self._kinds()])

    def take(self, value: JSON, *path: str) -> Usage | None:
        """The usage that the object there tells, taken out of it, None where there is none."""
        found = at(value, *path)
        if not isinstance(found, dict):
            return None
        used = self._used([_take_first(found, each) for each in self._kinds()])
        if not found:
            take(value, *path)
        return used

    def _kinds(self) -> tuple[tuple[str, ...], ...]:
        return self.input, self.output, self.cache_read, self.cache_write, self.reasoning

    def _used(self, counts: Iterable[int]) -> Usage:
        sent, got, read, written, thought = counts
        sent += read + written if self.beside else 0
        return Usage(input=sent, output=got, cache_read=read, cache_write=written, reasoning=thought)

    def unsaid(self, said: Iterable[JSON]) -> tuple[str, ...]:
        """The kinds of tokens of which none of these objects says anything, as `Tally` calls them."""
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
"""As OpenAI's APIs report them, and who copies them."""


def _first(said: JSON, names: Iterable[str]) -> int:
    return next((count for name in names if (count := number(said, *_path(name)))), 0)


def _take_first(said: JSON, names: Iterable[str]) -> int:
    """The same, taken from under each of the names that has it."""
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
    """Two usages together, each kind of token by the same rule."""
    return Usage(**{name: rule(getattr(one, name), getattr(other, name)) for name in Usage.__struct_fields__})


def larger(one: Usage | None, other: Usage | None) -> Usage | None:
    """Of two counts of one response the larger."""
    return each_of(one, other, max) if one and other else one or other


def plus(one: Usage, other: Usage) -> Usage:
    """The tokens of both."""
    return each_of(one, other, add)


def sum_counts(said: Iterable[JSON], *names: str) -> int | None:
    """The sum over these objects of the first of the counts that each has; None where none has one."""
    found = (next((n for name in names if (n := number(one, name)) is not None), None) for one in said)
    known = [count for count in found if count is not None]
    return sum(known) if known else None


_WORDS: Mapping[StopReason, tuple[str, ...]] = MappingProxyType(
    {
        StopReason.END_TURN: ("stop", "end_turn"),
        StopReason.MAX_TOKENS: (
            "length",
            "max_tokens",
            "max_output_tokens",
            "model_length",
            "model_context_window_exceeded",
        ),
        StopReason.TOOL_USE: ("tool_call", "tool_calls", "tool_use", "tooluse", "function_call"),
        StopReason.STOP_SEQUENCE: ("stop_sequence",),
        StopReason.CONTENT_FILTER: ("content_filter", "refusal"),
        StopReason.OTHER: ("error", "aborted", "cancelled", "pause_turn"),
    }
)
_STOPS = {word: stop for stop, words in _WORDS.items() for word in words}


def stop_of(word: str) -> StopReason | None:
    """The stop reason for a provider's word, None where it says nothing."""
    return _STOPS.get(_plain(word), StopReason.OTHER) if word else None


def end_of(word: str) -> str:
    """How a run ended whose last answer has no call and stopped by this word: without a known one nobody knows if it was whole."""
    match stop_of(word):
        case None | StopReason.OTHER:
            return "unknown"
        case StopReason.MAX_TOKENS:
            return "limit:token"
        case _:
            return "finished"


def is_known(word: str) -> bool:
    """Whether it is a word of which anybody here knows what it means."""
    return _plain(word) in _STOPS


def _plain(word: str) -> str:
    return word.lower().removeprefix("stopreason.").replace("-", "_")
