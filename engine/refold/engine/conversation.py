"""Prompts: the request for a decision, exactly as the log defines it.

`request_for` is the reference: it renders the whole window with `reducers.views.view`. `Conversation` makes
equal requests of one run incrementally, and keeps the last messages with their window. The next window is
usually the same with messages appended and, under a history policy, some whole units removed; only the
difference is then processed. For any other window each message is compared, and only new ones are rendered.
"""

from collections.abc import Collection, Mapping, Sequence

from refold.engine.models.protocol import (
    KeptMessages,
    Messages,
    ModelRequest,
    SentHash,
    offer_hash,
    sent_hash,
)
from refold.reducers.events import Event, Manifest, ModelRequested, SummaryRequested
from refold.reducers.messages import Message, ToolSchema
from refold.reducers.state import RunState
from refold.reducers.views import (
    MissingContent,
    message_of,
    request_only,
    standing,
    summary_view,
    view,
)
from refold.reducers.window import CHUNK, Chunks, MessageRef

Asked = ModelRequested | SummaryRequested


def request_for(wanted: Asked, state: RunState, contents: Mapping[int, Event]) -> ModelRequest:
    """Return the request for a decision. `contents` and errors as in `view`."""
    if isinstance(wanted, SummaryRequested):
        return _request(wanted, state, summary_view(state, contents), ())
    return _request(wanted, state, view(state, contents), offered(state.setup.tools, wanted.tools))


def hash_request(wanted: ModelRequested, state: RunState, request: ModelRequest) -> SentHash:
    """Return the parts of a request's digest."""
    return sent_hash(request, wanted.model or state.setup.model, len(wanted.request_only))


def offered(tools: Sequence[Manifest], names: tuple[str, ...] | None) -> tuple[ToolSchema, ...]:
    """Return the tool schemas with these names as the model receives them; None: all."""
    return tuple(
        [
            ToolSchema(name=tool.name, description=tool.description, schema=tool.schema)
            for tool in tools
            if names is None or tool.name in names
        ]
    )


class Conversation:
    """The requests of one run, equal to `request_for`, for states in any order."""

    def __init__(self) -> None:
        self._chunks: Chunks = ()  # the window of the kept messages
        self._kept = KeptMessages()
        self._names: dict[str, str] = {}  # of calls in the prompt, by id
        self._hidden: dict[int, frozenset[str]] = {}  # calls not in the prompt, by their message's number
        self._torn = False  # a duplicate id, or a result without its call: in forged logs only
        self._offered: tuple[object, tuple[ToolSchema, ...]] = None, ()
        self._offer: tuple[object, bytes] = None, b""

    def request(self, wanted: Asked, state: RunState, contents: Mapping[int, Event]) -> ModelRequest:
        """Return the same as `request_for`."""
        if isinstance(wanted, SummaryRequested):
            return request_for(wanted, state, contents)
        key = state.setup.tools, wanted.tools
        if self._offered[0] != key:
            self._offered = key, offered(*key)
        return _request(wanted, state, self.messages(state, contents), self._offered[1])

    def sent(self, wanted: ModelRequested, state: RunState, request: ModelRequest) -> SentHash:
        """Return the same as `sent_of`."""
        key = wanted.model or state.setup.model, state.setup.settings, request.tools
        if self._offer[0] != key:
            self._offer = key, offer_hash(*key)
        return sent_hash(request, key[0], len(wanted.request_only), self._offer[1])

    def messages(self, state: RunState, contents: Mapping[int, Event]) -> Messages:
        """Return the same as `view`."""
        chunks = state.window.chunks
        same = max(0, len(self._chunks) - 1)  # all chunks except the last are full
        if chunks[:same] != self._chunks[:same]:
            same = 0
        old, new = _refs(self._chunks[same:]), _refs(chunks[same:])
        if not self._grow(state, contents, same * CHUNK, old, new):
            self._rebuild(state, contents, _refs(self._chunks), _refs(chunks))
        self._chunks = chunks
        return Messages(self._kept, request_only(state, contents))

    def _grow(
        self,
        state: RunState,
        contents: Mapping[int, Event],
        base: int,
        old: list[MessageRef],
        new: list[MessageRef],
    ) -> bool:
        """Extend the kept messages, which are `old` from place `base` on; False if that might be wrong."""
        begin, end = _stretch(old, new)
        added = new[begin + len(old) - end :]
        if self._torn or old[end:] != new[begin : len(new) - len(added)]:
            return False
        messages = [message_of(state, ref, contents) for ref in added]
        made, results = _calls(messages), _results(added)
        if not _is_consistent(made, results) or self._knows_any(made):
            return False
        if begin < end and not self._remove(old[begin:end], base + begin, base + end):
            return False
        answered = set(results)
        for ref, message in zip(added, messages, strict=True):
            self._add(ref, message, answered)
        return True

    def _knows_any(self, calls: Collection[str]) -> bool:
        """Return whether one of these calls occurred before, in the prompt or hidden."""
        hidden = (not ids.isdisjoint(calls) for ids in self._hidden.values())
        return not self._names.keys().isdisjoint(calls) or any(hidden)

    def _remove(self, gone: Sequence[MessageRef], begin: int, end: int) -> bool:
        """Drop the messages from place `begin` to before `end`; False without changes unless whole units."""
        calls = _calls(self._kept.messages[begin:end])
        if set(_results(gone)) != set(calls):
            return False  # the rest of a divided unit would be rendered differently
        self._kept = self._kept.without(begin, end)
        for call in calls:
            del self._names[call]
        for ref in gone:
            self._hidden.pop(ref.number, None)
        return True

    def _rebuild(
        self,
        state: RunState,
        contents: Mapping[int, Event],
        old: list[MessageRef],
        new: list[MessageRef],
    ) -> None:
        """Rebuild from the whole window, reusing kept messages that would render the same."""
        before, hidden = self._kept, self._hidden
        known = {id(ref): place for place, ref in enumerate(old)}  # the old window keeps them alive
        results = _results(new)
        answered = set(results)
        self._forget()
        try:
            for ref in new:
                place = known.get(id(ref))
                kept = None if place is None or ref.number in hidden else before.messages[place]
                if place is None or kept is None or not self._stays(kept, answered):
                    self._add(ref, message_of(state, ref, contents), answered)
                else:
                    self._kept.add(kept, before.digest(place))
                    self._names.update([(call.id, call.name) for call in kept.calls])
        except MissingContent:
            self._forget()
            raise
        self._torn = not _is_consistent(_calls(self._kept.messages), results)

    def _forget(self) -> None:
        self._chunks, self._kept, self._names, self._hidden = (), KeptMessages(), {}, {}

    def _stays(self, message: Message, answered: set[str]) -> bool:
        """Return whether a kept message without hidden calls would render the same in this window."""
        if message.call is not None and message.name != self._names.get(message.call):
            return False
        return not message.calls or answered.issuperset([call.id for call in message.calls])

    def _add(self, ref: MessageRef, rendered: Message, answered: set[str]) -> None:
        message = standing(rendered, answered, self._names)
        if len(message.calls) < len(rendered.calls):
            self._hidden[ref.number] = frozenset([call.id for call in rendered.calls]) - answered
        self._kept.add(message)


def _request(
    wanted: Asked, state: RunState, messages: Sequence[Message], tools: tuple[ToolSchema, ...]
) -> ModelRequest:
    return ModelRequest(
        messages=messages, tools=tools, settings={**state.setup.settings}, max_output=wanted.max_output
    )


def _refs(chunks: Chunks) -> list[MessageRef]:
    found: list[MessageRef] = []
    for chunk in chunks:
        found += chunk.refs
    return found


def _calls(messages: Sequence[Message]) -> list[str]:
    return [call.id for message in messages for call in message.calls]


def _results(refs: Sequence[MessageRef]) -> list[str]:
    return [ref.call for ref in refs if ref.call is not None]


def _is_consistent(calls: list[str], results: list[str]) -> bool:
    """Return whether ids are unique, and each result has its call."""
    known, answered = set(calls), set(results)
    return len(known) == len(calls) and len(answered) == len(results) and answered <= known


def _stretch(old: list[MessageRef], new: list[MessageRef]) -> tuple[int, int]:
    """Return the places in `old` between which all may have been removed; equal if nothing was."""
    if new[: len(old)] == old:
        return len(old), len(old)
    begin = 0
    for one, other in zip(old, new, strict=False):
        if one is not other:
            break
        begin += 1
    try:
        return begin, old.index(new[begin], begin) if begin < len(new) else len(old)
    except ValueError:  # the message is new
        return begin, len(old)
