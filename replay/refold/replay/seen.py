"""The prompts of a run as changes: each message once, and how each prompt differs from the previous one.

`view` shows one request. Most requests of a long run repeat the same messages, so printing every prompt takes
quadratic space. Here each message has a number, and each call lists the removed and added messages.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from refold.reducers.events import Event, RequestText
from refold.reducers.limits import TokenLimit, threshold
from refold.reducers.messages import Message
from refold.reducers.state import RunState
from refold.reducers.views import MissingContent, message_of, request_only
from refold.reducers.window import Chunks, MessageRef
from refold.replay.figures import by


class ShownMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as a prompt contains it; a later, shortened form has the same `number`.

    `number` counts messages of the run from 1; 0 means that it was in one request only. `seq` is the event
    with the text, `tokens` the estimate. `cut` means that the text is shortened. `cause` names the rule that
    added a harness message. `message` is None if the text was erased.
    """

    number: int
    seq: int
    tokens: int
    cut: bool = False
    cause: str = ""
    message: Message | None = None


class Splice(msgspec.Struct, frozen=True, array_like=True):
    """Edit of the previous prompt: at this position (from 0, after earlier splices), remove and insert."""

    place: int
    removed: int
    added: tuple[int, ...]


class RequestView(msgspec.Struct, frozen=True, kw_only=True):
    """The request of event `seq`. `splices` convert the previous prompt into this one.

    Messages are named by index in `Views.shown`, from 0. `once` lists messages at the end of this prompt
    only. `context` is the model's context in tokens, None if unknown; `allowed` the lowest policy limit on
    prompt tokens, None if there is none. `tools` are the offered tool names.
    """

    seq: int
    step: int
    attempt: int
    purpose: str
    model: str
    context: int | None
    allowed: int | None
    tools: tuple[str, ...]
    splices: tuple[Splice, ...]
    once: tuple[int, ...] = ()


class Views:
    """Takes the state after each request in order, and returns the prompts. `shown` only grows."""

    def __init__(self) -> None:
        self.shown: list[ShownMessage] = []
        self._chunks: Chunks = ()
        self._places: dict[
            int, tuple[int, MessageRef]
        ] = {}  # by id() of the reference, which stays alive here
        self._latest: dict[
            int, tuple[int, MessageRef]
        ] = {}  # by number: an equal reference may be a new object
        self._answered: set[str] = set()
        self._names: dict[str, str] = {}

    def take(self, state: RunState, contents: Mapping[int, Event]) -> RequestView | None:
        """Return the request that the state waits for after `model_requested`; None if there is none.

        `contents` holds events by number, with their payload if it still exists.
        """
        if state.request is None or state.ended or state.stopping is not None:
            return None
        request = state.request.event
        common, old, new = self._split_common(state.window.chunks)
        # A response is in a window with all its results or not at all, so one occurrence is enough.
        self._answered |= {ref.call for ref in new if ref.call is not None}
        splices = list_splices(
            common,
            [self._find_place(state, ref, contents) for ref in old],
            [self._find_place(state, ref, contents) for ref in new],
        )
        self._chunks = state.window.chunks
        return RequestView(
            seq=state.seq,
            step=request.step,
            attempt=request.attempt,
            purpose=request.purpose,
            model=request.model or state.setup.model,
            context=state.setup.context,
            allowed=find_prompt_limit(state),
            tools=tuple(tool.name for tool in state.setup.tools) if request.tools is None else request.tools,
            splices=tuple(splices),
            once=tuple(self._list_once(state, contents)),
        )

    def _split_common(self, chunks: Chunks) -> tuple[int, list[MessageRef], list[MessageRef]]:
        """Return the length of the common start of both prompts and the remainder of each."""
        same = common = 0
        for one, other in zip(self._chunks, chunks, strict=False):
            if one is not other:
                break
            same, common = same + 1, common + len(one)
        old = [ref for chunk in self._chunks[same:] for ref in chunk]
        return common, old, [ref for chunk in chunks[same:] for ref in chunk]

    def _find_place(self, state: RunState, ref: MessageRef, contents: Mapping[int, Event]) -> int:
        known = self._places.get(id(ref))
        if known is not None:
            return known[0]
        place, latest = self._latest.get(ref.number, (-1, ref))
        if place < 0 or latest != ref:
            place = len(self.shown)
            self.shown.append(self._make_message(state, ref, contents))
        self._places[id(ref)] = self._latest[ref.number] = (place, ref)
        return place

    def _make_message(self, state: RunState, ref: MessageRef, contents: Mapping[int, Event]) -> ShownMessage:
        try:
            message = self._message(state, ref, contents)
        except MissingContent:
            message = None
        return ShownMessage(
            number=ref.number,
            seq=ref.seq,
            tokens=ref.size.tokens,
            cut=ref.shown is not None,
            cause=ref.gap.filling if ref.gap else "",
            message=message,
        )

    def _message(self, state: RunState, ref: MessageRef, contents: Mapping[int, Event]) -> Message:
        """Return the message as `view` shows it: without unfinished calls, results with tool names."""
        message = message_of(state, ref, contents)
        if any(call.id not in self._answered for call in message.calls):
            calls = tuple(call for call in message.calls if call.id in self._answered)
            message = replace(message, calls=calls, provider_data="")
        self._names.update((call.id, call.name) for call in message.calls)
        if message.call is not None and message.name is None:
            message = replace(message, name=self._names.get(message.call))
        return message

    def _list_once(self, state: RunState, contents: Mapping[int, Event]) -> Iterator[int]:
        for text, message in list_request_texts(state, contents):
            cause = by(text.cause, text.name)
            self.shown.append(
                ShownMessage(number=0, seq=state.seq, tokens=text.size.tokens, cause=cause, message=message)
            )
            yield len(self.shown) - 1


def list_request_texts(
    state: RunState, contents: Mapping[int, Event]
) -> list[tuple[RequestText, Message | None]]:
    """Return the messages of this request only; a message is None if its text was erased."""
    texts = state.request.event.request_only if state.request else ()
    try:
        return list(zip(texts, request_only(state, contents), strict=True))
    except MissingContent:
        return [(text, None) for text in texts]


def list_splices(start: int, old: Sequence[int], new: Sequence[int]) -> Iterator[Splice]:
    """Return splices that turn `old` into `new`. Neither has duplicates, and common items keep their order.

    Positions begin at `start`.
    """
    stays, was = set(new), set(old)
    before, after = 0, 0
    while before < len(old) or after < len(new):
        first = after
        removed = 0
        while before < len(old) and old[before] not in stays:
            before, removed = before + 1, removed + 1
        while after < len(new) and new[after] not in was:
            after += 1
        if removed or after > first:
            yield Splice(start + first, removed, tuple(new[first:after]))
        else:
            assert old[before] == new[after], "messages of a window never change places"
            before, after = before + 1, after + 1


def find_prompt_limit(state: RunState) -> int | None:
    """Return the lowest policy limit on estimated prompt tokens; None if there is none."""
    limits = [
        limit
        for limit in state.policy.limits
        if isinstance(limit, TokenLimit) and limit.measure == "estimate"
    ]
    return min((most for limit in limits if (most := threshold(limit)) is not None), default=None)
