"""Counts of a run from its items: messages by role, calls, results, and tokens per request."""

from collections import Counter
from collections.abc import Iterable
from functools import reduce

import msgspec

from refold.importers.items import (
    Answered,
    Counted,
    Item,
    Returned,
    RunBegan,
    RunEnded,
    Said,
    Tokens,
)
from refold.importers.usage import plus
from refold.reducers.messages import Usage
from refold.reducers.vocabulary import Role

_PROMPT = Counted(user=1)


class RunCounts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Counts of a run by the rule of its format; None if the format does not record them.

    `unmarked`: results for which it is not recorded whether they are errors.
    """

    messages: int | None = None
    user_messages: int | None = None
    assistant_messages: int | None = None
    tool_messages: int | None = None
    tool_calls: int | None = None
    tool_results: int | None = None
    tool_errors: int | None = None
    input_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    unmarked: int = 0
    beside: int = 0


class Count:
    """Counts the items of a run, by their types or by the rule of the format.

    Repeated results of a call count once; if several calls share an id, each has its own result.
    """

    def __init__(self) -> None:
        self._unsaid: tuple[str, ...] = ()
        self._sum: Counted | None = None
        self._unmarked = 0
        self._waiting: Counter[str] = Counter()
        self._answered: set[str] = set()
        self._ended = RunEnded(position="", end="", end_source="")

    def take(self, item: Item) -> None:
        """Count an item."""
        if isinstance(item, RunBegan):
            self._unsaid = item.unsaid
        elif isinstance(item, RunEnded):
            self._ended = item
            if item.counts and self._sum:  # replaces all counts except the tokens
                self._sum = Counted(usage=self._sum.usage)
        elif isinstance(item, Answered):
            self._waiting.update(call.id for call in item.calls)
        counts = item.counts or _count_by_type(item)
        if counts is not None:
            counts = self._result(item, counts) if isinstance(item, Returned) else counts
            self._sum = add_counts((self._sum, counts))

    def _result(self, item: Returned, counts: Counted) -> Counted:
        if not self._is_new(item.id):
            return msgspec.structs.replace(counts, results=0)
        self._unmarked += 0 if item.marked else counts.results
        return counts

    def _is_new(self, call: str) -> bool:
        new = not call or self._waiting[call] > 0 or call not in self._answered
        self._waiting[call] -= 1
        self._answered.add(call)
        return new

    def tally(self) -> RunCounts:
        """Return all counts."""
        found = self._sum or Counted()
        sent, read, written, got = self._ended.used or _tokens_of(found.usage)
        first, last = self._ended.times or (None, None)
        counts = RunCounts(
            user_messages=found.user,
            assistant_messages=found.assistant,
            tool_messages=found.tool,
            tool_calls=found.calls,
            tool_results=found.results,
            tool_errors=found.errors,
            input_tokens=sent,
            cache_read_tokens=read,
            cache_write_tokens=written,
            output_tokens=got,
            first_timestamp=first,
            last_timestamp=last,
            unmarked=self._unmarked,
            beside=found.beside,
        )
        counts = msgspec.structs.replace(counts, **dict.fromkeys(self._unsaid))
        messages = (counts.user_messages, counts.assistant_messages, counts.tool_messages)
        said = [count for count in messages if count is not None]
        return msgspec.structs.replace(counts, messages=sum(said) if said else None)


def add_counts(listed: Iterable[Counted | None]) -> Counted | None:
    """Return the sum of all counts that are not None, None if all are."""
    marks = [counts for counts in listed if counts is not None]
    return reduce(_plus, marks) if marks else None


def _plus(one: Counted, other: Counted) -> Counted:
    return Counted(
        user=one.user + other.user,
        assistant=one.assistant + other.assistant,
        tool=one.tool + other.tool,
        calls=one.calls + other.calls,
        results=one.results + other.results,
        errors=one.errors + other.errors,
        beside=one.beside + other.beside,
        usage=plus(one.usage, other.usage) if one.usage and other.usage else one.usage or other.usage,
    )


def count_items(items: Iterable[Item]) -> Counted | None:
    """Return the counts of these items, for a remark that replaces them."""
    return add_counts(item.counts or _count_by_type(item) for item in items)


def _count_by_type(item: Item) -> Counted | None:
    match item:
        case RunBegan(messages=messages) if messages:
            roles = [message.role for message in messages]
            users, answers, results = map(roles.count, (Role.USER, Role.ASSISTANT, Role.TOOL))
            calls = sum(len(message.calls) for message in messages)
            return Counted(user=users, assistant=answers, tool=results, calls=calls, results=results)
        case Said(role=Role.USER):
            return _PROMPT
        case Answered(calls=calls, usage=usage, quality=quality):
            return Counted(assistant=1, calls=len(calls), usage=usage if quality else None)
        case Returned(error=error, refused_by=refuser):
            return Counted(tool=1, results=1, errors=error is not None or refuser is not None)
        case _:
            return None


def _tokens_of(used: Usage | None) -> Tokens:
    return (used.input, used.cache_read, used.cache_write, used.output) if used else (None, None, None, None)
