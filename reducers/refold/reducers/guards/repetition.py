"""The same batch of calls again and again.

Source: the `guardrails` loop (aar, "Agent Loop & Guardrails"), by its published rule: batches count as equal
by the names and arguments of their calls, in any order.
"""

import hashlib
from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from refold.reducers.arguments import batch_signature
from refold.reducers.events import Event, InputReceived, ModelResponded, RunForked
from refold.reducers.guards.protocol import Judgement, Place, Stop
from refold.reducers.state import RunState


class Repeats(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """The digest of the last batch, and how often in a row it came again."""

    mark: str = ""
    count: int = 0


class Repetition(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="guard", tag="repetition"
):
    """Stop before the (`repeats` + 1)-th identical batch in a row; with 0, before the first.

    A value of an argument counts up to its first `clip` characters. Answers without calls neither count nor
    reset. `scope: turn` starts anew with each message of a person, `run` with a fork, `lineage` never.
    """

    name: str = ""
    repeats: Annotated[int, Meta(ge=0)] = 3
    clip: Annotated[int, Meta(ge=1)] = 200
    scope: Literal["turn", "run", "lineage"] = "lineage"

    kind: ClassVar[str] = "repetition"
    version: ClassVar[int] = 1
    places: ClassVar[frozenset[Place]] = frozenset({Place.ON_REPETITION})
    observes: ClassVar[frozenset[type[Event]]] = frozenset({ModelResponded, InputReceived, RunForked})
    reads_content: ClassVar[bool] = True

    def start(self) -> Repeats:
        """Nothing seen yet."""
        return Repeats()

    def observe(self, own: Repeats, event: Event) -> Repeats:
        """Count a batch that is equal to the last one; start anew where the scope does."""
        match event:
            case ModelResponded(calls=calls, content=content) if calls and content is not None:
                names = [call.name for call in calls]
                said = batch_signature(list(zip(names, content.arguments, strict=True)), self.clip)
                mark = hashlib.sha256(said.encode()).hexdigest()
                return Repeats(mark, own.count + 1 if mark == own.mark else 0)
            case InputReceived(approvals=()) if self.scope == "turn":
                return Repeats()
            case RunForked() if self.scope != "lineage":
                return Repeats()
            case _:
                return own

    def judge(self, own: Repeats, state: RunState, place: Place) -> Iterable[Judgement]:  # noqa: ARG002
        """Stop at the count, before the batch runs."""
        if state.answer is None or not state.answer.calls or own.count < self.repeats:
            return
        yield Stop(
            code="repetition",
            reason=f"the same batch of calls came {own.count + 1} times in a row",
            saw={"repeats": own.count, "allowed": self.repeats},
            text="refused:repetition",
        )
