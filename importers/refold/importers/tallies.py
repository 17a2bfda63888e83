"""What is counted in a run, over its items: messages by whose they are, calls, results, tokens by the
request.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

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
    add_counts,
)
from refold.reducers.messages import Usage
from refold.reducers.vocabulary import Role

_MESSAGES = ("user", "assistant", "tool")
_CALLS = ("calls", "results", "errors")
_TOKENS = ("input", "cache_read", "cache_write", "output")
_PROMPT = Counted(user=1)


class RunCounts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What was counted in a run, by the rule of its format. None: the format does not say.

    Of `unmarked` results it does not say whether they are errors.
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
    """Counts a run while its items are told: each as what it is, or as the rule of its format has it.

    A call has one result, however often that is told; of several calls by one id each has its own.
    """

    def __init__(self) -> None:
        self._unsaid: tuple[str, ...] = ()
        self._sums = dict.fromkeys((*_MESSAGES, *_CALLS, "beside"), 0)
        self._unmarked = 0
        self._used: list[Usage] = []
        self._waiting: Counter[str] = Counter()
        self._answered: set[str] = set()
        self._ended = RunEnded(position="", end="", end_source="")

    def take(self, item: Item) -> None:
        """Count an item in."""
        if isinstance(item, RunBegan):
            self._unsaid = item.unsaid
        elif isinstance(item, RunEnded):
            self._ended = item
            self._sums = dict.fromkeys(self._sums, 0) if item.counts else self._sums
        elif isinstance(item, Answered):
            self._waiting.update(call.id for call in item.calls)
        counts = item.counts or _as_it_is(item)
        if counts is None:
            return
        for name in self._sums:
            self._sums[name] += getattr(counts, name)
        if isinstance(item, Returned):
            self._result(item, counts.results)
        if counts.usage is not None:
            self._used.append(counts.usage)

    def _result(self, item: Returned, results: int) -> None:
        if not self._is_new(item.id):
            self._sums["results"] -= results
        elif not item.marked:
            self._unmarked += results

    def _is_new(self, call: str) -> bool:
        new = not call or self._waiting[call] > 0 or call not in self._answered
        self._waiting[call] -= 1
        self._answered.add(call)
        return new

    def tally(self) -> RunCounts:
        """All of it."""
        found: dict[str, int | None] = {f"{name}_messages": self._sums[name] for name in _MESSAGES}
        found |= {f"tool_{name}": self._sums[name] for name in _CALLS}
        tokens = self._ended.used or _tokens_of(self._used)
        found |= {f"{name}_tokens": count for name, count in zip(_TOKENS, tokens, strict=True)}
        found |= dict.fromkeys(self._unsaid)
        said = [count for name in _MESSAGES if (count := found[f"{name}_messages"]) is not None]
        first, last = self._ended.times or (None, None)
        return msgspec.structs.replace(
            RunCounts(messages=sum(said) if said else None, first_timestamp=first, last_timestamp=last),
            unmarked=self._unmarked,
            beside=self._sums["beside"],
            **found,
        )


def count_items(items: Iterable[Item]) -> Counted | None:
    """As what these items count: of what is told as one remark, though it was said."""
    return add_counts(item.counts or _as_it_is(item) for item in items)


def _as_it_is(item: Item) -> Counted | None:
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


def _tokens_of(used: Sequence[Usage]) -> Tokens:
    if not used:
        return None, None, None, None
    sent, read, written, got = (sum(getattr(usage, name) for usage in used) for name in _TOKENS)
    return sent, read, written, got
