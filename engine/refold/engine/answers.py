"""What a person may say about calls that wait for approval."""

import json
from collections.abc import Mapping
from typing import Any, Literal

from refold.reducers.composition_approvals import ANSWERS, Answer
from refold.reducers.errors import WrongUse

Edit = tuple[Literal["edit"], Mapping[str, Any] | str]
Answers = Mapping[str, Answer | Edit]
"""By call id: a word, or ("edit", the new arguments as a mapping or as JSON text)."""


def words_of(answers: Answers) -> tuple[dict[str, Answer], dict[str, str]]:
    """The words, and the new arguments as JSON text, by call id.

    Raises `WrongUse` for another word, and for arguments that are no JSON.
    """
    words: dict[str, Answer] = {}
    arguments: dict[str, str] = {}
    for call, answer in answers.items():
        if isinstance(answer, str):
            words[call] = answer
        else:
            words[call], arguments[call] = answer[0], _text(call, answer[1])
        if words[call] not in ANSWERS:
            raise WrongUse(f"call {call}: expected one of {', '.join(ANSWERS)}, got {words[call]!r}")
    return words, arguments


def _text(call: str, arguments: Mapping[str, Any] | str) -> str:
    if isinstance(arguments, str):
        return arguments
    try:
        return json.dumps(dict(arguments), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise WrongUse(f"call {call}: expected new arguments that JSON can write: {error}") from error
