"""Conversion of Inspect's messages, including the texts that its provider adapters send instead.

For a failed call, most adapters send `Error: ` and the error message, without the text of the result. Those
of Anthropic, Google and Bedrock send only the message, and set a flag. For a response in parts (as with
reasoning), most adapters put a line break before each text. Source: `_openai.py` and `_providers/` of
inspect-ai 0.3.285. `Requests` looks up the texts that were sent.

A text of a hundred characters or more may be recorded as `attachment://<hash>`, a reference into the sample.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from refold.importers.content import mark_unread, take_calls, words
from refold.importers.fields import (
    JSON,
    at,
    json_text,
    nanoseconds,
    number,
    rest,
    rows,
    table,
    take,
    take_each,
    take_if,
    take_text,
    take_words,
    text,
)
from refold.importers.items import UNCOUNTED, Answered, Counted, Place
from refold.importers.source import MOST_SAID
from refold.importers.tallies import add_counts
from refold.importers.usage import UsageNames
from refold.reducers.messages import Message, Usage
from refold.reducers.vocabulary import Role, ToolError


def read_response(event: JSON, message: JSON, ours: Message, place: Place) -> Answered:
    """Return a response from its message, and from its event if there is one."""
    output = at(event, "output")
    return place.reply(
        ours,
        _usage(at(output, "usage")),
        stop=text(output, "choices", 0, "stop_reason"),
        model=text(output, "model") or text(message, "model") or text(event, "model"),
        response=text(message, "id"),
        duration=take_duration(event),
        rest=rest(message if event is None else event),
    )


def take_duration(event: JSON) -> int:
    """Take the working time of an event, in nanoseconds; 0 if not recorded."""
    if duration := nanoseconds(at(event, "working_time")):
        take(event, "working_time")
    return duration


_TOKENS = UsageNames(
    input=("input_tokens",),
    output=("output_tokens",),
    cache_read=("input_tokens_cache_read",),
    cache_write=("input_tokens_cache_write",),
    reasoning=("reasoning_tokens",),
)


def _usage(used: JSON) -> Usage | None:
    """Return a request's usage. If the total adds cached tokens, the recorded input excludes them."""
    found = _TOKENS.of(used)
    cached = found.cache_read + found.cache_write if found else 0
    if found and number(used, "total_tokens") == found.input + found.output + cached:
        return msgspec.structs.replace(found, input=found.input + cached)
    return found


def settings(config: JSON) -> dict[str, str]:
    """Return the options of a request's configuration that are set."""
    return {name: plain(value) for name, value in table(config).items() if value is not None}


def labels(sample: JSON, header: JSON) -> dict[str, str]:
    """Return labels of a sample: task, sample, epoch, version and limits."""
    named = {"task": at(header, "eval", "task"), "sample": at(sample, "id"), "epoch": at(sample, "epoch")}
    named["version"] = at(header, "eval", "packages", "inspect_ai")
    limits = table(header, "eval", "config").items()
    return settings(named | {f"limit.{name}": limit for name, limit in limits if name.endswith("_limit")})


def plain(value: JSON) -> str:
    """Return a string unchanged, and anything else as JSON text."""
    return value if isinstance(value, str) else json_text(value)


_PREFIXED = frozenset({
    "azureai", "cloudflare", "deepseek", "fireworks", "grok", "groq", "hf-inference-providers", "litellm-proxy",
    "llama-cpp-python", "meta", "mistral", "moonshot", "ollama", "openai", "openai-api", "openrouter", "perplexity", "sagemaker",
    "sambanova", "sglang", "together", "vllm",
})  # fmt: skip
"""Providers (first part of a model's name) whose adapters put `Error: ` before an error message."""

_Answer = tuple[tuple[str, ...], str]
"""Call ids of a response, and its text without surrounding white space."""


class Requests:
    """The raw requests of a sample: those of its events, and the pool that they share."""

    def __init__(
        self,
        events: Sequence[JSON],
        pool: Sequence[JSON],
        put_back: Callable[[JSON], JSON],
        look_up: Callable[[str], str],
    ) -> None:
        self.model = ""
        self._events, self._pool, self._put_back, self._look_up = events, pool, put_back, look_up
        self._results: dict[str, JSON] | None = None
        self._answers: dict[_Answer, str] | None = None

    def error_text(self, call: str, error: str) -> str:
        """Return the text that was sent for a call that failed with this error message."""
        if self._results is None:  # built only for samples with errors
            self._results = {}
            for name, content in _results(_messages(self._events, self._pool)):
                self._results.setdefault(name, content)
        if call in self._results:
            return words(self._put_back(self._results[call]))
        return f"Error: {error}" if self.model.partition("/")[0] in _PREFIXED else error

    def answer_text(self, answer: Message) -> str:
        """Return the text of a response in parts as later requests send it, with their white space."""
        if self._answers is None:  # built only for samples with such responses
            self._answers = {}
            stripped: dict[str, str] = {}  # look up each attachment once
            for calls, content in _answers(_messages(self._events, self._pool)):
                if content not in stripped:
                    stripped[content] = self._look_up(content).strip()
                self._answers.setdefault((calls, stripped[content]), content)
        calls = tuple(call.id for call in answer.calls)
        sent = self._answers.get((calls, answer.text.strip()))
        return answer.text if sent is None else words(self._put_back(sent))


def _answers(messages: Iterable[JSON]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the responses in messages of the chat API: the ids of their calls, and their texts."""
    for message in messages:
        content = at(message, "content")
        if text(message, "role") == "assistant" and isinstance(content, str):
            yield tuple(text(call, "id") for call in rows(message, "tool_calls")), content


def _messages(events: Iterable[JSON], pool: Sequence[JSON]) -> Iterator[JSON]:
    yield from pool
    for event in events:
        if text(event, "event") == "model":
            for name in ("messages", "input"):
                yield from rows(event, "call", "request", name)


def _results(messages: Iterable[JSON]) -> Iterator[tuple[str, JSON]]:
    """Yield the results in messages of any provider, by call id. Those of Google have no call ids."""
    for message in messages:
        if call := text(message, "tool_call_id"):
            yield call, at(message, "content")
        elif text(message, "type") == "function_call_output":
            yield text(message, "call_id"), at(message, "output")
        for block in rows(message, "content"):
            if text(block, "type") == "tool_result":
                yield text(block, "tool_use_id"), at(block, "content")


_ATTACHMENT = "attachment://"
_MISSING = f'"{_ATTACHMENT}'
"""Prefix, in a call's arguments, of an attachment that the sample does not have."""
_DEPTH = 60
THOUGHTS = frozenset({"reasoning"})

ERRORS = {
    "parsing": ToolError.BAD_ARGUMENTS,
    "timeout": ToolError.TIMEOUT,
    "approval": ToolError.CANCELLED,
    "cancelled": ToolError.CANCELLED,
}
"""Inspect's kinds of tool errors. Other errors were raised by the tool."""


def error_of(error: JSON) -> ToolError | None:
    """Return the kind of a call's error, None for no error."""
    if error is None:
        return None
    message = text(error, "message")
    if message.startswith("Tool ") and message.endswith("not found"):
        return ToolError.UNKNOWN_TOOL
    return ERRORS.get(text(error, "type"), ToolError.RAISED)


class Attachments:
    """The attachments (long texts) of a sample, and which of them were used."""

    def __init__(self, texts: dict[str, JSON]) -> None:
        self._texts = texts
        self._used: set[str] = set()
        self._size = 0

    def put_back(self, value: JSON, depth: int = 0) -> JSON:
        """Return a value with references replaced by their attachments. Missing ones stay references.

        A small value can refer to a large attachment many times, so replacement stops at the size limit of
        an event.
        """
        self._size = self._size if depth else 0
        if isinstance(value, str):
            name = value.removeprefix(_ATTACHMENT) if value.startswith(_ATTACHMENT) else ""
            found = self._texts.get(name)
            if isinstance(found, str) and self._size <= MOST_SAID:
                self._used.add(name)
                self._size += len(found)
                return found
        elif isinstance(value, list) and depth < _DEPTH:
            return [self.put_back(each, depth + 1) for each in value]
        elif isinstance(value, dict) and depth < _DEPTH:
            return {key: self.put_back(each, depth + 1) for key, each in value.items()}
        return value

    def look_up(self, value: str) -> str:
        """Return the attachment that a string refers to, else the string. It does not count as used."""
        name = value.removeprefix(_ATTACHMENT) if value.startswith(_ATTACHMENT) else ""
        found = self._texts.get(name)
        return found if isinstance(found, str) else value

    def list_unused(self) -> dict[str, JSON]:
        """Return attachments that no message, call or result uses: mostly states, scores, raw requests."""
        return {name: found for name, found in self._texts.items() if name not in self._used}


def read_text(content: JSON) -> str:
    """Return the text of a content without reasoning."""
    return words(content, beside=THOUGHTS)


def _take_reasoning(message: JSON) -> str:
    """Take the reasoning of a response: parts of its content, in old logs a field."""
    thoughts: list[str] = []
    for part in take_each(message, "content"):
        if text(part, "type") in THOUGHTS:
            thoughts.append(take_text(part, "reasoning") or take_text(part, "summary"))
            take_if(part, "type", *THOUGHTS)
    return "\n".join(filter(None, thoughts)) or take_text(message, "reasoning")


def result_text(message: JSON, requests: Requests, call: str, content: str = "content") -> str:
    """Return the text that was sent for a result: its own, or that of its error."""
    words, error = read_text(at(message, content)), text(message, "error", "message")
    return requests.error_text(call, error) if error else words


def take_message(message: JSON, requests: Requests) -> Message:
    """Take a message out of its row, in which attachments were already replaced."""
    word = text(message, "role")
    role = Role(word) if word in set(Role) else Role.USER
    words = read_text(at(message, "content"))
    shown = result_text(message, requests, text(message, "tool_call_id")) if role is Role.TOOL else words
    if words == shown or not words:  # the text of a failed result was not sent, so it is left
        take_words(message, "content", beside=THOUGHTS)
    take_if(message, "role", role.value)
    if role is Role.TOOL:
        name, call = take_text(message, "function") or None, take_text(message, "tool_call_id")
        return Message(role=role, text=shown, call=call, name=name)
    if role is not Role.ASSISTANT:
        return Message(role=role, text=shown)
    calls = tuple(mark_unread(call) if _MISSING in call.arguments else call for call in take_calls(message))
    return Message(role=role, text=shown, reasoning=_take_reasoning(message), calls=calls)


class SampleMessages:
    """The messages of a sample: of its pool, of its events, and the final ones.

    An unchanged message is converted once, even if many prompts have it; its remaining fields are kept once.
    """

    def __init__(self, pool: Sequence[JSON], attachments: Attachments, requests: Requests) -> None:
        self.pool = pool
        self._requests = requests
        self._attachments = attachments
        self._pooled: dict[int, Message] = {}
        self._sent: dict[Message, Message] = {}
        self._same: dict[str | int, tuple[JSON, Message]] = {}
        self._kept_rests: set[str] = set()
        self._rests: list[str] = []

    def of(self, event: JSON) -> tuple[Message, ...] | None:
        """Return the messages of a request, None if not recorded."""
        inputs, refs = rows(event, "input"), rows(event, "input_refs")
        if inputs:
            return tuple(
                self._convert_as_sent(message, self.read(message, place=place))
                for place, message in enumerate(inputs)
            )
        if not refs or not self.pool:
            return None
        return tuple(self._of_pool(place) for ref in refs for place in _range(ref, len(self.pool)))

    def _of_pool(self, place: int) -> Message:
        if place not in self._pooled:
            self._pooled[place] = self._convert_as_sent(self.pool[place], self.read(self.pool[place]))
        return self._pooled[place]

    def _convert_as_sent(self, message: JSON, ours: Message) -> Message:
        """Return a message as the adapter sent it: a response in parts may have other white space."""
        if ours.role is not Role.ASSISTANT or not isinstance(at(message, "content"), list):
            return ours
        if ours not in self._sent:
            self._sent[ours] = replace(ours, text=self._requests.answer_text(ours))
        return self._sent[ours]

    def read(self, message: JSON, *, place: int | None = None, kept_elsewhere: bool = False) -> Message:
        """Return a message without changing its row.

        `place`: its index in a prompt. `kept_elsewhere`: the whole row is kept already.
        """
        name = text(message, "id") or place  # old messages have no ids
        known = self._same.get(name) if name is not None else None
        if known is not None and known[0] == message:
            return known[1]
        own = self._attachments.put_back(message)
        ours, remaining = take_message(own, self._requests), rest(own)
        if remaining and remaining not in self._kept_rests and not kept_elsewhere:
            self._rests.append(remaining)
        self._kept_rests.add(remaining)
        if name is not None:
            self._same[name] = (message, ours)
        return ours

    def take_rest(self) -> str:
        """Return JSON text of fields that remain of messages read since the last call; "" for none."""
        remaining, self._rests = self._rests, []
        return f"[{','.join(remaining)}]" if remaining else ""

    def list_unread(self) -> list[JSON]:
        """Return the messages of the pool that no prompt of the agents has; most are of scorers."""
        return [message for place, message in enumerate(self.pool) if place not in self._pooled]


def _range(ref: JSON, size: int) -> range:
    """Return the indices of a reference `[first, end]` (half-open) into the pool, or of a single number."""
    first, end = at(ref, 0), at(ref, 1)
    if isinstance(ref, int) and not isinstance(ref, bool):
        first, end = ref, ref + 1
    if not isinstance(first, int) or not isinstance(end, int):
        return range(0)
    return range(max(0, first), min(end, size))


def results_of(messages: Iterable[JSON]) -> dict[str, JSON]:
    """Return the first result for each message id and call id; later copies may be cleared."""
    found: dict[str, JSON] = {}
    for message in messages:
        if text(message, "role") == "tool":
            for name in (text(message, "id"), text(message, "tool_call_id")):
                if name and table(message):
                    found.setdefault(name, message)
    return found


_CHOICES = ("output", "choices")


def count_subagent(event: JSON) -> Counted:
    """Count the model's calls and tool results in an event of a subagent and in its nested events."""
    inner = count_nested(event)
    match text(event, "event"):
        case "model":
            choices = rows(event, *_CHOICES)
            calls = sum(len(rows(choice, "message", "tool_calls")) for choice in choices)
            return add_counts([inner, Counted(calls=calls)]) or UNCOUNTED
        case "tool":
            return add_counts([inner, Counted(results=1)]) or UNCOUNTED
        case _:
            return inner


def count_nested(event: JSON) -> Counted:
    """Count the calls and results in events nested in an event, such as a tool that calls a model."""
    return add_counts(map(count_subagent, rows(event, "events"))) or UNCOUNTED
