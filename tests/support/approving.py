"""A chain of approvers by itself: an answer with calls is shown to it, and what it says is written as
words.
"""

from typing import Any

import msgspec

from refold.reducers.approvals import Approvals, resolved
from refold.reducers.events import (
    Answer,
    ApprovalAnswer,
    ApprovalAnswered,
    Call,
    Event,
    Manifest,
    ModelResponded,
)
from refold.reducers.guards.approvals import Approval
from refold.reducers.guards.protocol import Ask, Judgement, Place, Refuse, Stop
from refold.reducers.state import Batch, CallState, RunState
from refold.reducers.vocabulary import Refusal, StopReason
from support.setups import setup_of


def chain_of(*chain: dict[str, Any], preset: str | None = None) -> Approval:
    """The guard of a policy's `approvals`, as a policy file writes them."""
    plain: dict[str, Any] = {"preset": preset} if preset else {"chain": list(chain)}
    return Approval(chain=resolved(msgspec.convert(plain, Approvals)).chain)


def responded(*calls: tuple[str, str]) -> ModelResponded:
    """An answer with these calls, (tool, arguments), called c1, c2, …"""
    made = tuple(Call(id=f"c{place}", name=name) for place, (name, _) in enumerate(calls, 1))
    content = Answer(arguments=tuple(arguments for _, arguments in calls))
    return ModelResponded(at=1, request=2, stop=StopReason.TOOL_USE, calls=made, content=content)


def state_of(event: ModelResponded, *closed: str) -> RunState:
    """A run whose open batch is that answer's; `closed` calls were begun already."""
    calls = tuple(
        CallState(id=call.id, name=call.name, position=place, dispatched=int(call.id in closed))
        for place, call in enumerate(event.calls)
    )
    tools = tuple(Manifest(name=name) for name in dict.fromkeys(call.name for call in event.calls))
    return RunState(setup=setup_of(run="r1", tools=tools), batch=Batch(seq=3, number=1, calls=calls))


def said(guard: Approval, event: ModelResponded, *then: Event) -> list[Judgement]:
    own = guard.observe(guard.start(), event)
    for each in then:
        own = guard.observe(own, each)
    return list(guard.judge(own, state_of(event), Place.ON_APPROVAL))


def shown(judgements: list[Judgement]) -> list[str]:
    """Judgements as words: `c1 rejected`, `stop`, `ask c2 c3 by chain[0]`."""
    told: list[str] = []
    for each in judgements:
        match each:
            case Refuse(call=call, code=code):
                assert (Refusal.REJECTED, "refused:rejected") == (each.why, each.text)
                told.append(f"{call} {code}")
            case Stop(code=code):
                told.append(f"stop {code}")
            case Ask(calls=calls, approver=approver):
                told.append(f"ask {' '.join(calls)} by {approver}")
            case _:
                raise AssertionError(each)
    return told


def people(answers: dict[str, str], at: int = 2) -> ApprovalAnswered:
    given = [{"call": call, "decision": word} for call, word in answers.items()]
    return ApprovalAnswered(at=at, answers=tuple(msgspec.convert(given, list[ApprovalAnswer])))
