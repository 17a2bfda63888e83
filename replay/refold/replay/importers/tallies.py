"""What formats count alike: messages by whose they are, calls by their ids, tokens by the request, times by their edges."""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from refold.reducers.messages import Usage
from refold.replay.importers.fields import JSON, instant, number
from refold.replay.importers.items import Tally


class UsageNames(msgspec.Struct, frozen=True, kw_only=True):
    """The names by which a format tells the tokens of a request: for each kind some, of which the first that counts holds.

    A name may be a path, its steps parted by `/`. `beside`: the input has what was cached not in it, but beside it.
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
        names = (self.input, self.output, self.cache_read, self.cache_write, self.reasoning)
        sent, got, read, written, thought = (_first(said, each) for each in names)
        sent += read + written if self.beside else 0
        return Usage(input=sent, output=got, cache_read=read, cache_write=written, reasoning=thought)


CHAT_TOKENS = UsageNames(
    input=("prompt_tokens", "input_tokens"),
    output=("completion_tokens", "output_tokens"),
    cache_read=("prompt_tokens_details/cached_tokens", "input_tokens_details/cached_tokens"),
    reasoning=("completion_tokens_details/reasoning_tokens",),
)
"""As OpenAI's APIs report them, and who copies them."""


def _first(said: JSON, names: Iterable[str]) -> int:
    return next((count for name in names if (count := number(said, *name.split("/")))), 0)


def each_of(one: Usage, other: Usage, rule: Callable[[int, int], int]) -> Usage:
    """Two usages together, each kind of token by the same rule."""
    return Usage(**{name: rule(getattr(one, name), getattr(other, name)) for name in Usage.__struct_fields__})


Tokens = tuple[int | None, int | None, int | None, int | None]
"""Input, read from the cache, written to it, output; None where the source does not say."""


def tokens_of(used: Sequence[Usage], *, writes: bool = True) -> Tokens:
    """The tokens of these requests together. `writes`: the format says what was written to the cache."""
    if not used:
        return None, None, None, None
    read, written = (sum(getattr(usage, name) for usage in used) for name in ("cache_read", "cache_write"))
    return sum(u.input for u in used), read, written if writes else None, sum(u.output for u in used)


def summed(said: Iterable[JSON], *names: str) -> int | None:
    """The sum over these objects of the first of the counts that each has; None where none has one."""
    found = (next((n for name in names if (n := number(one, name)) is not None), None) for one in said)
    known = [count for count in found if count is not None]
    return sum(known) if known else None


def tally_of(
    users: int | None,
    answers: int | None,
    tools: int | None,
    *,
    tokens: Tokens = (None, None, None, None),
    times: Iterable[JSON] = (),
    **counted: int | None,
) -> Tally:
    """A tally of so many messages of each kind, with the earliest and the latest of `times`; `counted` by its names there."""
    known = [number for number in (users, answers, tools) if number is not None]
    sent, read, written, got = tokens
    first, last = edges(times)
    return msgspec.structs.replace(
        Tally(user_messages=users, assistant_messages=answers, tool_messages=tools),
        messages=sum(known) if known else None,
        input_tokens=sent,
        cache_read_tokens=read,
        cache_write_tokens=written,
        output_tokens=got,
        first_timestamp=first,
        last_timestamp=last,
        **counted,
    )


class Count:
    """What is counted in a session while its rows are read: calls and results once an id."""

    writes = True
    """Whether the format says what was written to the cache."""

    def __init__(self) -> None:
        self.users = self.answers = self.tools = self.errors = self.beside = 0
        self.requests: int | None = None
        self.used: list[Usage] = []
        self.calls: set[str] = set()
        self.results: set[str] = set()
        self._unnamed = 0
        self._times: list[str] = []

    def time(self, written: JSON) -> None:
        """Count a time in; what is none counts for nothing."""
        first, last = edges([*self._times, written])
        self._times = [time for time in (first, last) if time]

    def call(self, name: str) -> str:
        """Count a call in by its id, or a name for it. The name that it goes by."""
        self._unnamed += 1
        self.calls.add(name := name or f"#{self._unnamed}")
        return name

    def tally(self) -> Tally:
        """All of it."""
        return tally_of(
            self.users,
            self.answers,
            self.tools,
            tool_calls=len(self.calls),
            tool_results=len(self.results),
            tool_errors=self.errors,
            tokens=tokens_of(self.used, writes=self.writes),
            times=self._times,
            beside=self.beside,
            requests=self.requests,
        )


def edges(times: Iterable[JSON]) -> tuple[str | None, str | None]:
    """The earliest and the latest of these times, each as `stamp` writes it; None without any."""
    known = [(at, text) for text in times if isinstance(text, str) and (at := instant(text)) is not None]
    return (stamp(min(known)[1]), stamp(max(known)[1])) if known else (None, None)


def stamp(written: str) -> str:
    """A time as its source wrote it, in UTC as `Z` where it names a zone, a fraction of zero left out."""
    read = datetime.fromisoformat(written)
    if read.utcoffset():
        fine = re.search(r"\.\d{4}", written)
        timespec = "microseconds" if fine else "milliseconds"
        written = read.astimezone(UTC).isoformat(timespec=timespec)
    zone = "Z" if written.endswith(("Z", "z", "+00:00")) else ""
    bare = written.removesuffix("+00:00").rstrip("Zz") if zone else written
    whole, dot, fraction = bare.partition(".")
    return whole + (dot + fraction if fraction.strip("0") else "") + zone
