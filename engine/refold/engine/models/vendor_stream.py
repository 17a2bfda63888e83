"""A vendor's answer while it arrives: the library's events become our deltas and, last, one `Reply`."""

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from refold.engine.models.protocol import (
    CallDelta,
    Delta,
    ModelError,
    ReasoningDelta,
    Reply,
    TextDelta,
)
from refold.engine.models.vendor_messages import provider_data
from refold.reducers.messages import ReplyCall, Usage
from refold.reducers.text import clean
from refold.reducers.vocabulary import FailureClass, StopReason

if TYPE_CHECKING:
    from pydantic_ai.messages import ToolCallPart
    from pydantic_ai.models import StreamedResponse
    from pydantic_ai.usage import RequestUsage

ADAPTER = "pydantic-ai"
_DISTRIBUTION = "pydantic-ai-slim"
_MADE_UP_ID = "pyd_ai_"  # how the library's own call ids begin, where the vendor gave none

# The vendor's own word first, where ours is finer than the library's, then the library's.
STOPS: Mapping[str, StopReason] = MappingProxyType(
    {
        "stop_sequence": StopReason.STOP_SEQUENCE,
        "pause_turn": StopReason.OTHER,
        "stop": StopReason.END_TURN,
        "length": StopReason.MAX_TOKENS,
        "content_filter": StopReason.CONTENT_FILTER,
        "tool_call": StopReason.TOOL_USE,
    }
)


class VendorAnswer:
    """What has arrived of one answer. Fed with the library's events in order; gives deltas, then the reply.

    The texts of all deltas, joined, are the reply's text and reasoning. `opened` is set by its owner once
    the vendor has begun to answer.
    """

    def __init__(self) -> None:
        self.opened = False
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: dict[int, int] = {}  # the library's part number to our call number

    @property
    def text(self) -> str:
        """The answer's text so far."""
        return "".join(self._texts)

    def take(self, event: object) -> Iterator[Delta]:
        """The deltas in one event; most of the library's events hold one, its summaries none."""
        from pydantic_ai.messages import (
            PartDeltaEvent,
            PartStartEvent,
            TextPart,
            TextPartDelta,
            ThinkingPart,
            ThinkingPartDelta,
            ToolCallPart,
            ToolCallPartDelta,
        )

        match event:
            case (
                PartStartEvent(part=TextPart(content=text))
                | PartDeltaEvent(delta=TextPartDelta(content_delta=text))
            ) if text:
                yield self._text(text)
            case (
                PartStartEvent(part=ThinkingPart(content=thought))
                | PartDeltaEvent(delta=ThinkingPartDelta(content_delta=thought))
            ) if thought:
                yield self._thought(thought)
            case PartStartEvent(index=index, part=ToolCallPart() as part):
                number = self._calls.setdefault(index, len(self._calls))
                yield CallDelta(number, clean(part.tool_name), _arguments(part.args))
            case PartDeltaEvent(
                index=index, delta=ToolCallPartDelta(tool_name_delta=name, args_delta=args)
            ) if name or args:
                yield CallDelta(self._calls[index], clean(name or ""), _arguments(args))
            case _:  # an empty start, a signature, a summary, or a part that we never ask for
                return

    def finish(self, response: "StreamedResponse", *, strict: bool) -> Iterator[Delta]:
        """Check that the stream came to its end; the last delta is a refusal's text, if that is the answer.

        A server proves the end by a stop reason or, unless `strict`, by a count of tokens: a connection
        that is closed politely in mid-answer looks like an end too. Raises `ModelError` otherwise.
        """
        ended = _raw_stop(response) or response.finish_reason == "content_filter"
        cut = (
            response.state == "incomplete"
        )  # what the library says of OpenAI's responses without a last word
        if cut or (not ended and (strict or response.usage.unmeasured_requests)):
            raise ModelError(
                FailureClass.STREAM_BROKEN,
                "the stream ended without a stop reason",
                partial_text=self.text,
            )
        refusal = (response.provider_details or {}).get("refusal")
        if isinstance(refusal, str) and refusal and not self._texts:
            yield self._text(refusal)

    def reply(self, response: "StreamedResponse", max_output: int | None, cost: int | None) -> Reply:
        """The whole answer. `max_output` is the most tokens that were asked for."""
        whole = response.get()
        calls = tuple(_call(part) for part in whole.tool_calls)
        usage = _usage(response.usage)
        return Reply(
            text=self.text,
            reasoning="".join(self._thoughts),
            calls=calls,
            stop=_stop(response, bool(calls), capped=usage is not None and usage.output == max_output),
            stop_raw=_raw_stop(response),
            usage=usage,
            cost_nanousd=cost,
            model=clean(response.model_name),
            adapter=ADAPTER,
            adapter_version=version(_DISTRIBUTION),
            response_id=clean(response.provider_response_id or ""),
            provider_data=provider_data(whole),
        )

    def _text(self, content: str) -> TextDelta:
        self._texts.append(clean(content))
        return TextDelta(self._texts[-1])

    def _thought(self, content: str) -> ReasoningDelta:
        self._thoughts.append(clean(content))
        return ReasoningDelta(self._thoughts[-1])


def uncounted(usage: "RequestUsage") -> bool:
    """Whether the server counted no tokens. Some say 0 of what they do not count: no request is as short as that."""
    return bool(usage.unmeasured_requests) or not (usage.input_tokens or usage.output_tokens)


def _call(part: "ToolCallPart") -> ReplyCall:
    made_up = part.tool_call_id.startswith(_MADE_UP_ID)
    return ReplyCall(
        provider_id="" if made_up else clean(part.tool_call_id),
        name=clean(part.tool_name),
        arguments=_arguments(part.args),
    )


def _arguments(args: str | Mapping[str, Any] | None) -> str:
    """The arguments as they came; only what came as an object and not as text is written out."""
    if args is None or isinstance(args, str):
        return clean(args or "")
    return clean(msgspec.json.encode(args).decode())


def _raw_stop(response: "StreamedResponse") -> str:
    details = response.provider_details or {}
    raw = details.get("finish_reason") or ("refusal" if details.get("refusal") else "")
    return clean(str(raw))


def _stop(response: "StreamedResponse", calls: bool, *, capped: bool) -> StopReason:  # noqa: FBT001
    """The stop reason; inferred as the policy language says where the vendor gave none."""
    raw = _raw_stop(response)
    stop = STOPS.get(raw) or STOPS.get(response.finish_reason or "", StopReason.OTHER)
    if stop is StopReason.END_TURN and calls:  # some servers say `stop` to everything
        return StopReason.TOOL_USE
    if not raw and stop is StopReason.END_TURN and capped:
        return StopReason.MAX_TOKENS
    return stop


def _usage(usage: "RequestUsage") -> Usage | None:
    if uncounted(usage):
        return None
    thought = getattr(usage, "output_reasoning_tokens", None) or usage.details.get("reasoning_tokens", 0)
    return Usage(
        input=usage.input_tokens,
        output=usage.output_tokens,
        cache_read=usage.cache_read_tokens,
        cache_write=usage.cache_write_tokens,
        reasoning=thought,
    )
