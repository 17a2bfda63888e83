"""Tokens of a text by the tokenizers of the extra `tokens`: found when the first text is counted, and not before.

What a tokenizer says follows from its table, which never changes under its name. So tokens that were recorded need no
tokenizer any more: a fold adds them up. Only who weighs a text anew, to decide or to audit a decision, has to have it.
"""

from functools import cache
from typing import Protocol

from refold.reducers.errors import CannotJudge

WAY_OUT = "pip install 'refold[tokens]'"
KIND = "bpe:"
"""What the name of an estimator or codec that is a tokenizer begins with."""


class MissingTokenizer(CannotJudge):
    """A text is to be weighed by a tokenizer that is not installed here."""

    def __init__(self, estimator: str) -> None:
        super().__init__(estimator)
        self.estimator = estimator

    def __str__(self) -> str:
        return (
            f"the policy weighs texts by {self.estimator}, and its tokenizer is not installed here: {WAY_OUT}"
        )


class _Tokenizer(Protocol):
    def encode_ordinary(self, text: str, /) -> list[int]: ...
    def decode_bytes(self, tokens: list[int], /) -> bytes: ...


def count(estimator: str, text: str) -> int:
    """Tokens of a text by an estimator `bpe:…`; what looks like a special token of the table's is text like any other.

    The time grows with the length of the text, whatever it says. Raises `MissingTokenizer`.
    """
    return len(encode(estimator, text))


def encode(estimator: str, text: str) -> list[int]:
    """The tokens of a text, in order. Joined, their bytes are those of the text. Raises `MissingTokenizer`."""
    return _tokenizer(estimator).encode_ordinary(text) if text else []


def characters(estimator: str, tokens: list[int]) -> int:
    """The number of characters that lie whole within these tokens, which follow each other in a text.

    A token may begin or end inside a character. Such a character does not count. Raises `MissingTokenizer`.
    """
    return len(_tokenizer(estimator).decode_bytes(tokens).decode(errors="ignore")) if tokens else 0


@cache
def _tokenizer(estimator: str) -> _Tokenizer:
    try:
        from splintr import Tokenizer
    except ImportError as error:
        raise MissingTokenizer(estimator) from error
    return Tokenizer.from_pretrained(estimator.removeprefix(KIND))
