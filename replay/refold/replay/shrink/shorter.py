"""Facts that say less: what was said, cut to its first character, with its sizes set right."""

from typing import TypeVar

import msgspec
from msgspec.structs import replace

from refold.reducers.composition import told
from refold.reducers.events import (
    ApprovalAnswered,
    CancelRequested,
    ContextObserved,
    DoubtResolved,
    Fact,
    InputReceived,
    ModelFailed,
    ModelResponded,
    PolicyAmended,
    RunForked,
    RunStarted,
    SummaryReturned,
    ToolReturned,
)
from refold.reducers.messages import Message
from refold.reducers.policy import Policy

AnyFact = TypeVar("AnyFact", bound=Fact)


def shortened(policy: Policy, fact: Fact, salt: bytes) -> Fact | None:
    """The fact with its texts cut as short as they can be; None if there is nothing to cut.

    `policy` is the one in force: by its estimator a message is measured, with its words a summary is shown. Arguments of calls stay: tools and guards tell calls apart by them.
    """
    if getattr(fact, "content", None) is None:
        return None
    cut = _cut(policy, fact, salt)
    return None if cut == fact else cut


def _cut(policy: Policy, fact: Fact, salt: bytes) -> Fact:
    match fact:
        case RunStarted(content=opening) | ContextObserved(content=opening) if opening is not None:
            messages = tuple(_message(message) for message in opening.messages)
            return told(fact, replace(opening, messages=messages), salt, policy)
        case ModelResponded(content=answer) if answer is not None:
            brief = replace(answer, text=_first(answer.text), reasoning="", provider_data="")
            return told(fact, brief, salt, policy)
        case ToolReturned(content=output) if output is not None:
            shown = replace(output, output=_first(output.output), sha256="")
            return told(replace(fact, cut=False), shown, salt, policy)
        case InputReceived(content=said) if said is not None:
            return told(fact, replace(said, text=_first(said.text)), salt, policy)
        case ApprovalAnswered(content=edits) if edits is not None:
            return told(fact, replace(edits, note=""), salt, policy)
        case RunForked(content=said) if said is not None:
            less = replace(said, text=_first(said.text) or said.text[:1])
            return told(fact, less, salt, policy)
        case SummaryReturned(content=summary) if summary is not None:
            return told(fact, replace(summary, text=_first(summary.text)), salt, policy)
        case ModelFailed(content=failure) if failure is not None:
            return told(fact, replace(failure, message=""), salt, policy)
        case CancelRequested(content=reason) | PolicyAmended(content=reason) if reason is not None:
            return replace(fact, content=replace(reason, reason=""))
        case DoubtResolved(content=note) if note is not None:
            return replace(fact, content=replace(note, note=""))
        case _:
            return fact


def _message(message: Message) -> Message:
    return msgspec.structs.replace(message, text=_first(message.text), reasoning="", provider_data="")


def _first(text: str) -> str:
    """One character that is no white space; nothing of a text that has none: an empty answer stays one."""
    return text.strip()[:1]
