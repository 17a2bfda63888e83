"""A person's answer about calls that wait for approval, made into a fact. See `refold.reducers.composition`."""

from collections.abc import Mapping
from typing import Literal, get_args

from msgspec.structs import replace

from refold.reducers.arguments import is_object
from refold.reducers.composition import told
from refold.reducers.errors import WrongUse
from refold.reducers.events import ApprovalAnswer, ApprovalAnswered, Edits
from refold.reducers.secrets import PLAIN, Redactor
from refold.reducers.state import RunState
from refold.reducers.text import label

Answer = Literal["approve", "reject", "edit", "escalate", "terminate"]
ANSWERS: tuple[str, ...] = get_args(Answer)


def approved(
    state: RunState,
    fact: ApprovalAnswered,
    answers: Mapping[str, Answer],
    arguments: Mapping[str, str],
    note: str,
    salt: bytes,
    redactor: Redactor = PLAIN,
) -> ApprovalAnswered:
    """`approval_answered` with a person's answers, by call id; an edited call has its new `arguments`, JSON text.

    The calls that it says nothing about are asked about again. Raises `WrongUse` for a call that nobody is asked
    about, and for new arguments that are no JSON object, or belong to a call that is not edited.
    """
    asked = state.approval.event.calls if state.approval else ()
    _refuse_unasked(asked, answers)
    edited = {call for call, answer in answers.items() if answer == "edit"}
    for call in sorted(edited ^ set(arguments)):
        way = "give its new arguments" if call in edited else "answer 'edit' for it"
        raise WrongUse(f"call {call}: an edit is the answer 'edit' with new arguments; {way}")
    for call, text in arguments.items():
        if not is_object(text):
            raise WrongUse(f"call {call}: expected new arguments as one JSON object, got {text[:80]!r}")
    edits = {call: redactor.json(text) for call, text in sorted(arguments.items())}
    ordered = tuple(ApprovalAnswer(call=call, decision=answers[call]) for call in asked if call in answers)
    said = Edits(arguments=edits, note=redactor.text(note))
    made = replace(fact, by=label(redactor.text(fact.by)), answers=ordered)
    return told(made, said, salt, state.policy)


def _refuse_unasked(asked: tuple[str, ...], answers: Mapping[str, Answer]) -> None:
    if not answers:
        raise WrongUse("expected an answer about one call or more, got none")
    for call, answer in answers.items():
        if call not in asked:
            raise WrongUse(
                f"call {call!r} does not wait for approval; what does: {', '.join(asked) or 'none'}"
            )
        if answer not in ANSWERS:
            raise WrongUse(f"call {call}: expected one of {', '.join(ANSWERS)}, got {answer!r}")
