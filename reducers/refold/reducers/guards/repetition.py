"""The same batch of calls again and again.

Source: the `guardrails` loop (aar, "Agent Loop & Guardrails"), by its published rule: batches count as equal
by the names and arguments of their calls, in any order.
"""

import hashlib
from collections.abc import Iterable
from typing import Annotated, ClassVar

from msgspec import Meta

from refold.reducers.arguments import batch_signature
from refold.reducers.events import Event, InputReceived, ModelResponded, RunForked
from refold.reducers.guards.common import Config, Own, begins
from refold.reducers.guards.protocol import Judgement, Place, Stop
from refold.reducers.limits import Scope
from refold.reducers.state import RunState


class Repeats(Own, frozen=True):
    """The digest of the last batch, and how often in a row it came again."""

    mark: str = ""
    count: int = 0


class Repetition(Config, frozen=True, kw_only=True, tag="repetition"):
    """Stop before the (`repeats` + 1)-th identical batch in a row; with 0, before the first.

    A value of an argument counts up to its first `clip` characters. Answers without calls neither count nor
    reset. `scope: turn` starts anew with each message of a person, `run` with a fork, `lineage` never.
    """

    repeats: Annotated[int, Meta(ge=0)] = 3
    clip: Annotated[int, Meta(ge=1)] = 200
    scope: Scope = "lineage"

    kind: ClassVar[str] = "repetition"
    places: ClassVar[frozenset[Place]] = frozenset({Place.ON_REPETITION})
    observes: ClassVar[frozenset[type[Event]]] = frozenset({ModelResponded, InputReceived, RunForked})
    reads_content: ClassVar[bool] = True
    fresh: ClassVar[Repeats] = Repeats()

    def observe(self, own: Repeats, event: Event) -> Repeats:
        """Count a batch that is equal to the last one; start anew where the scope does."""
        match event:
            case ModelResponded(calls=calls, content=content) if calls and content is not None:
                names = [call.name for call in calls]
                said = batch_signature(list(zip(names, content.arguments, strict=True)), self.clip)
                mark = hashlib.sha256(said.encode()).hexdigest()
                return Repeats(mark, own.count + 1 if mark == own.mark else 0)
            case _:
                return Repeats() if begins(self.scope, event) else own

    def judge(self, own: Repeats, state: RunState, place: Place) -> Iterable[Judgement]:  # noqa: ARG002
        """Stop at the count, before the batch runs."""
        if state.answer is None or not state.answer.event.calls or own.count < self.repeats:
            return
        yield Stop(
            code="repetition",
            reason=f"the same batch of calls came {own.count + 1} times in a row",
            saw={"repeats": own.count, "allowed": self.repeats},
            text="refused:repetition",
        )
