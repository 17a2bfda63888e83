"""Estimates of tokens, by named estimators or by tokenizers.

A tokenizer's result depends only on its table, which never changes under its name. So recorded token counts
need no tokenizer: a fold adds them up. Only measuring a text again, for a new decision or an audit, needs it.

An estimator is pure, and the policy records it by name. It measures one message by its texts. For a list it
adds parts that depend on sizes alone, so a window knows its size without reading texts. Tokenizer estimators
raise `MissingTokenizer` for texts if the tokenizer is not installed; estimates from sizes never need it.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Protocol

from refold.reducers.errors import Inconclusive
from refold.reducers.messages import Size
from refold.reducers.patterns import canonical
from refold.reducers.text import size_of
from refold.reducers.vocabulary import Role

WAY_OUT = "pip install 'refold[tokens]'"
KIND = "bpe:"
"""The prefix of estimators and codecs that are tokenizers."""


class MissingTokenizer(Inconclusive):
    """A text must be measured by a tokenizer that is not installed."""

    def __init__(self, estimator: str) -> None:
        super().__init__(estimator)
        self.estimator = estimator

    def __str__(self) -> str:
        return f"the policy estimates tokens with {self.estimator}, and its tokenizer is not installed here: {WAY_OUT}"


class _Tokenizer(Protocol):
    def encode_ordinary(self, text: str, /) -> list[int]: ...
    def decode_bytes(self, tokens: list[int], /) -> bytes: ...


def count(estimator: str, text: str) -> int:
    """Count the tokens of a text with an estimator `bpe:…`. Special tokens count as plain text.

    The time is linear in the length of the text. Raises `MissingTokenizer`.
    """
    return len(encode(estimator, text))


def encode(estimator: str, text: str) -> list[int]:
    """Return the tokens of a text in order; their joined bytes are the text's. Raises `MissingTokenizer`."""
    return _tokenizer(estimator).encode_ordinary(text) if text else []


def characters(estimator: str, tokens: list[int]) -> int:
    """Return the number of complete characters in consecutive tokens of a text.

    A token may begin or end inside a character; that character does not count. Raises `MissingTokenizer`.
    """
    return len(_tokenizer(estimator).decode_bytes(tokens).decode(errors="ignore")) if tokens else 0


@cache
def _tokenizer(estimator: str) -> _Tokenizer:
    try:
        from splintr import Tokenizer
    except ImportError as error:
        raise MissingTokenizer(estimator) from error
    return Tokenizer.from_pretrained(estimator.removeprefix(KIND))


LONGEST = 1 << 24
"""The maximum characters of a text: no model writes more, and a forged size must not allocate more."""

_CJK = re.compile("[\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]")

Calls = Sequence[tuple[str, str]]
"""For each call of a message, the tool's name and the arguments as JSON text."""


class Estimator(ABC):
    """A method to estimate the tokens of a message, a list of messages, or an offered tool.

    By default a list is the sum of its messages, and a tool a quarter of its characters.
    """

    @abstractmethod
    def weigh(self, text: str, reasoning: str, calls: Calls) -> int:
        """Return the tokens of one message."""

    def weigh_all(self, messages: Sequence[tuple[Role, Size]]) -> int:
        """Return the tokens of a list of messages."""
        return self.total(sum([self.part(role, size) for role, size in messages]), len(messages))

    def part(self, role: Role, size: Size) -> int:  # noqa: ARG002
        """Return the part of a message in the sum of a list."""
        return size.tokens

    def total(self, parts: int, count: int) -> int:  # noqa: ARG002 (some join their messages by something)
        """Return the tokens of a list of `count` messages whose parts add up to `parts`."""
        return parts

    def tool(self, name: str, description: str, schema: str) -> int:
        """Return the tokens of an offered tool; `schema` is JSON text."""
        return _up(len(name) + len(description) + len(schema), 4)

    def shortened(self, whole: Size, chars: int, reasoning: int) -> int:
        """Return the tokens of a message after a cut to these characters of text and reasoning.

        The calls' tokens stay.
        """
        beside = whole.tokens - self._unread(whole.chars, whole.reasoning)
        return max(0, beside + self._unread(chars, reasoning))

    def quoting(self, frame: Sequence[str], chars: int, sources: Sequence[Size]) -> int:  # noqa: ARG002
        """Return the tokens of a message with `chars` characters quoted from `sources` between the texts of
        `frame`.
        """
        return self._unread(sum(map(len, frame)) + chars, 0)

    def _unread(self, chars: int, reasoning: int) -> int:
        return self.weigh("x" * min(chars, LONGEST), "x" * min(reasoning, LONGEST), ())


class _Chars4(Estimator):
    """ceil(chars / 4) over text, reasoning, call names and argument texts."""

    def weigh(self, text: str, reasoning: str, calls: Calls) -> int:
        chars = len(text) + len(reasoning)
        for name, arguments in calls:
            chars += len(name) + len(arguments)
        return (chars + 3) // 4


class _Chars4Total(Estimator):
    """chars // 4 over text, results and argument texts: of all of them together, system prompt and tools left
    out.
    """

    def weigh(self, text: str, reasoning: str, calls: Calls) -> int:  # noqa: ARG002
        return (len(text) + sum([len(arguments) for _, arguments in calls])) // 4

    def part(self, role: Role, size: Size) -> int:
        return 0 if role is Role.SYSTEM else size.chars + size.arguments

    def total(self, parts: int, count: int) -> int:  # noqa: ARG002
        return parts // 4

    def tool(self, name: str, description: str, schema: str) -> int:  # noqa: ARG002
        return 0


class _Chars4Joined(Estimator):
    """ceil(chars / 4) of the texts, joined by a newline; the reasoning of a message that has no text; no
    arguments.
    """

    def weigh(self, text: str, reasoning: str, calls: Calls) -> int:  # noqa: ARG002
        return _up(len(text or reasoning), 4)

    def part(self, role: Role, size: Size) -> int:  # noqa: ARG002
        return size.chars or size.reasoning

    def total(self, parts: int, count: int) -> int:
        return _up(parts + max(0, count - 1), 4)


class _Cjk(Estimator):
    """4 for a message, 20 for a call or a tool; Chinese, Japanese, Korean at 1.5 characters a token, others
    at 4.
    """

    def weigh(self, text: str, reasoning: str, calls: Calls) -> int:  # noqa: ARG002
        called = sum([self.tool(name, "", canonical(arguments)) for name, arguments in calls])
        return 4 + _mixed(text) + called

    def tool(self, name: str, description: str, schema: str) -> int:
        return 20 + _mixed(name) + _mixed(description) + _mixed(schema)


class _Bytes4(Estimator):
    """4 for a message and a quarter of its text's bytes; of a tool a quarter of its schema, the rest
    undivided.
    """

    def weigh(self, text: str, reasoning: str, calls: Calls) -> int:  # noqa: ARG002
        return 4 + size_of(text) // 4

    def tool(self, name: str, description: str, schema: str) -> int:
        return 10 + size_of(name) + size_of(description) + size_of(schema) // 4


class _Bpe(Estimator):
    """A tokenizer's count of text, reasoning, call names and argument texts separately, and of tools
    likewise.

    A shortened or quoted message is not read again: it keeps its tokens in proportion to its remaining
    characters, rounded up. Call names, which no size counts, shrink with it.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def weigh(self, text: str, reasoning: str, calls: Calls) -> int:
        called = sum([self._count(name, arguments) for name, arguments in calls])
        return self._count(text, reasoning) + called

    def tool(self, name: str, description: str, schema: str) -> int:
        return self._count(name, description, schema)

    def shortened(self, whole: Size, chars: int, reasoning: int) -> int:
        return _share([whole], chars + reasoning + whole.arguments)

    def quoting(self, frame: Sequence[str], chars: int, sources: Sequence[Size]) -> int:
        return self._count(*frame) + _share(sources, chars)

    def _count(self, *texts: str) -> int:
        return sum([count(self._name, text) for text in texts])


ESTIMATORS: Mapping[str, Estimator] = MappingProxyType(
    {
        "chars4": _Chars4(),
        "chars4_total": _Chars4Total(),
        "chars4_joined": _Chars4Joined(),
        "cjk": _Cjk(),
        "bytes4": _Bytes4(),
        "bpe:o200k_base": _Bpe("bpe:o200k_base"),
        "bpe:cl100k_base": _Bpe("bpe:cl100k_base"),
    }
)


def _up(count: int, each: int) -> int:
    return -(-count // each)


def _share(sizes: Sequence[Size], chars: int) -> int:
    """Return the tokens of `chars` characters at the ratio of these messages, one each without a ratio."""
    whole = sum([size.chars + size.reasoning + size.arguments for size in sizes])
    tokens = _up(chars * sum([size.tokens for size in sizes]), whole) if whole else chars
    return max(0, min(tokens, LONGEST))


def _mixed(text: str) -> int:
    wide = 0 if text.isascii() else len(_CJK.findall(text))
    return _up(2 * wide, 3) + _up(len(text) - wide, 4)
