"""Strategies of single events, derived from their types."""

from functools import cache
from typing import Any

import msgspec
from hypothesis import strategies as st

from refold.reducers.errors import WrongUse
from refold.reducers.events import (
    KINDS,
    Answer,
    ApprovalAnswered,
    CallRefused,
    Event,
    LateResult,
    MessageInjected,
    MessageTrimmed,
    ModelRequested,
    ModelResponded,
    Result,
    RunStarted,
    Said,
    SummaryRequested,
)
from refold.reducers.parser import parse
from refold.reducers.pending import bare
from refold.reducers.policy import Policy
from refold.testing.strategies.policies import policies

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_POLICIES = st.deferred(lambda: st.builds(parse, policies()))


def events(kind: str | None = None) -> st.SearchStrategy[Event]:
    """Return a strategy of events that can be encoded and decoded.

    The events are valid one by one. For events that follow from each other, see `logs`.

    Args:
        kind: the kind of all events, as in `refold.reducers.events.KINDS`; None for any kind.

    Raises:
        WrongUse: there is no such kind.
    """
    if kind is None:
        return st.sampled_from(sorted(KINDS)).flatmap(_events)
    if kind not in KINDS:
        raise WrongUse(f"events: unknown kind {kind!r}; expected one of {', '.join(sorted(KINDS))}")
    return _events(kind)


@cache
def _events(kind: str) -> st.SearchStrategy[Event]:
    return _of(msgspec.inspect.type_info(KINDS[kind])).map(_fitting)


def _fitting(event: Event) -> Event:
    """Return the event with a payload that has as many parts as its body refers to."""
    match event:
        case ModelResponded(calls=calls, content=Answer() as said):
            arguments = (*said.arguments, *["{}"] * len(calls))[: len(calls)]
            return msgspec.structs.replace(event, content=msgspec.structs.replace(said, arguments=arguments))
        case ApprovalAnswered(content=said) if said is not None:
            edited = {each.call: "{}" for each in event.answers if each.decision == "edit"}
            return msgspec.structs.replace(event, content=msgspec.structs.replace(said, arguments=edited))
        case LateResult(fact=fact):
            late = _fitting(fact)
            assert isinstance(late, Result)
            return LateResult(at=event.at, fact=bare(late), content=late.content)
        case RunStarted(messages=sizes, content=opening) if opening is not None:
            count = min(len(sizes), len(opening.messages))
            content = msgspec.structs.replace(opening, messages=opening.messages[:count])
            return msgspec.structs.replace(event, messages=sizes[:count], content=content)
        case CallRefused() | MessageInjected() | SummaryRequested() if event.content is not None:
            return _with_texts(event, event.content, 1)
        case MessageTrimmed(cuts=parts) | ModelRequested(request_only=parts) if event.content is not None:
            return _with_texts(event, event.content, len(parts))
        case _:
            return event


def _with_texts(event: Event, said: Said, count: int) -> Event:
    texts = (*said.texts, *[""] * count)[:count]
    return msgspec.structs.replace(event, content=Said(texts=texts))


def _of(info: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for a type, as msgspec describes it."""
    match info:
        case msgspec.inspect.StructType(cls=cls) if cls is Policy:
            return _POLICIES
        case msgspec.inspect.StructType(cls=cls, fields=fields):
            required = {field.name: _of(field.type) for field in fields if field.required}
            optional = {field.name: _of(field.type) for field in fields if not field.required}
            return st.fixed_dictionaries(required, optional=optional).map(lambda values: cls(**values))
        case msgspec.inspect.UnionType(types=types):
            return st.one_of([_of(one) for one in types])
        case msgspec.inspect.VarTupleType(item_type=item):
            return st.lists(_of(item), max_size=3).map(tuple)
        case msgspec.inspect.TupleType(item_types=items):
            return st.tuples(*[_of(item) for item in items])
        case msgspec.inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(_of(key), _of(value), max_size=3)
        case msgspec.inspect.EnumType(cls=cls):
            return st.sampled_from(list(cls))
        case msgspec.inspect.LiteralType(values=values):
            return st.sampled_from(list(values))
        case _:
            return _plain(info)


def _plain(info: Any) -> st.SearchStrategy[Any]:
    match info:
        case msgspec.inspect.IntType(ge=least, le=most):
            return st.integers(least or 0, most or 2**53)
        case msgspec.inspect.FloatType():
            return st.floats(0, 1e6)
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.StrType():
            return _TEXT
        case msgspec.inspect.BytesType():
            return st.binary(max_size=8)
        case msgspec.inspect.NoneType():
            return st.none()
        case _:
            raise AssertionError(f"no strategy for {info}")
