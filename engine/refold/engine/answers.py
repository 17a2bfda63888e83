"""What a person may say to a run: when a message, and what about calls that wait for approval."""

import json
from collections.abc import Mapping
from typing import Any, Literal

from refold.reducers import pending
from refold.reducers.composition import ANSWERS, Answer
from refold.reducers.errors import WrongUse
from refold.reducers.machine import AgentState
from refold.reducers.state import RunState

Edit = tuple[Literal["edit"], Mapping[str, Any] | str]
Answers = Mapping[str, Answer | Edit]
"""By call id: a word, or ("edit", the new arguments as a mapping or as JSON text)."""


class NotWaiting(WrongUse):
    """Something for a run that does not wait for it: a message, or an answer about calls."""

    def __init__(self, run: str, state: AgentState, what: str = "a message") -> None:
        super().__init__(run, state, what)
        self.run, self.state, self.what = run, state, what

    def __str__(self) -> str:
        asked = "" if self.what == "a message" else ", and when it is asked for"
        return f"run {self.run} is {self.state}: it takes {self.what} only in WAITING_FOR_INPUT{asked}"


def refuse_message(run: str, state: RunState) -> None:
    """Raise `NotWaiting` if the run waits for nobody, and `WrongUse` if it waits for something other than a message."""
    if state.asked_at is None:
        raise NotWaiting(run, state.agent_state)
    if state.approval is not None:
        calls = ", ".join(state.approval.event.calls)
        raise WrongUse(f"run {run} asks whether calls {calls} may run: answer() says so, not a message")
    if doubted := pending.unknown_calls(state):
        raise WrongUse(
            f"run {run} asks how calls {', '.join(doubted)} ended: resolve() says so, not a message"
        )


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
