"""What an adapter of Inspect sends in place of a message: by the raw requests, where a log has them, else by its rule.

Most adapters send the error's message behind `Error: `, and not what the result says besides; Anthropic's, Google's and Bedrock's
send the message alone, with a mark. Of an answer in parts, as one with reasoning, most adapters send each text behind a line break. Source: `_openai.py` and `_providers/` of inspect-ai 0.3.285.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from refold.importers.content import words
from refold.importers.fields import JSON, at, rows, text
from refold.reducers.messages import Message

_PREFIXED = frozenset({
    "azureai", "cloudflare", "deepseek", "fireworks", "grok", "groq", "hf-inference-providers", "litellm-proxy",
    "llama-cpp-python", "meta", "mistral", "moonshot", "ollama", "openai", "openai-api", "openrouter", "perplexity", "sagemaker",
    "sambanova", "sglang", "together", "vllm",
})  # fmt: skip
"""Providers, the first part of a model's name, whose adapters put `Error: ` before the message of an error."""

_Answer = tuple[tuple[str, ...], str]
"""The ids of an answer's calls, and its text without the white space around it."""


class Requests:
    """The raw requests of a sample: its events, and the pool that they share."""

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
        """What was sent in place of the result of a call that failed with this message."""
        if self._results is None:  # nothing is looked through for a sample without errors
            self._results = {}
            for name, content in _results(_messages(self._events, self._pool)):
                self._results.setdefault(name, content)
        if call in self._results:
            return words(self._put_back(self._results[call]))
        return f"Error: {error}" if self.model.partition("/")[0] in _PREFIXED else error

    def answer_text(self, answer: Message) -> str:
        """The text of an answer in parts as a later request sends it: white space around it may differ."""
        if self._answers is None:  # nothing is looked through for a sample without such answers
            self._answers = {}
            stripped: dict[str, str] = {}  # an attachment is one text, however many messages name it
            for calls, content in _answers(_messages(self._events, self._pool)):
                if content not in stripped:
                    stripped[content] = self._look_up(content).strip()
                self._answers.setdefault((calls, stripped[content]), content)
        calls = tuple(call.id for call in answer.calls)
        sent = self._answers.get((calls, answer.text.strip()))
        return answer.text if sent is None else words(self._put_back(sent))


def _answers(messages: Iterable[JSON]) -> Iterator[tuple[tuple[str, ...], str]]:
    """The answers in messages of the chat API: the ids of their calls, and their texts."""
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
    """The results in messages of any provider's, by their calls: Google's name none."""
    for message in messages:
        if call := text(message, "tool_call_id"):
            yield call, at(message, "content")
        elif text(message, "type") == "function_call_output":
            yield text(message, "call_id"), at(message, "output")
        for block in rows(message, "content"):
            if text(block, "type") == "tool_result":
                yield text(block, "tool_use_id"), at(block, "content")
