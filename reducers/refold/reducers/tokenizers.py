"""Tokens of a text by the tokenizers of the extra `tokens`: found when the first text is counted, and not before.

What a tokenizer says follows from its table, which never changes under its name. So tokens that were recorded need no
tokenizer any more: a fold adds them up. Only who weighs a text anew, to decide or to audit a decision, has to have it.
"""

from collections.abc import Callable
from functools import cache

from refold.reducers.errors import CannotJudge, PolicyError

WAY_OUT = "pip install 'refold[tokens]'"
_KIND = "bpe:"


class MissingTokenizer(CannotJudge):
    """A text is to be weighed by a tokenizer that is not installed here."""

    def __init__(self, estimator: str) -> None:
        super().__init__(estimator)
        self.estimator = estimator

    def __str__(self) -> str:
        return (
            f"the policy weighs texts by {self.estimator}, and its tokenizer is not installed here: {WAY_OUT}"
        )


def count(estimator: str, text: str) -> int:
    """Tokens of a text by an estimator `bpe:…`; what looks like a special token of the table's is text like any other.

    The time grows with the length of the text, whatever it says. Raises `MissingTokenizer`.
    """
    return len(_encoder(estimator)(text)) if text else 0


def refuse_without_tokenizer(estimator: str) -> None:
    """Raise `PolicyError` for an estimator whose tokenizer is not installed here: nothing could be decided by it."""
    try:
        if estimator.startswith(_KIND):
            _encoder(estimator)
    except MissingTokenizer as error:
        problem = f"{estimator} needs a tokenizer, which is not installed here: {WAY_OUT}; or write 'chars4'"
        raise PolicyError("estimator", problem) from error


@cache
def _encoder(estimator: str) -> Callable[[str], list[int]]:
    try:
        from splintr import Tokenizer
    except ImportError as error:
        raise MissingTokenizer(estimator) from error
    return Tokenizer.from_pretrained(estimator.removeprefix(_KIND)).encode_ordinary
