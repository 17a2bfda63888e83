"""Look before you act: a guard by a third party, as a package of its own would have it."""

from collections.abc import Iterable, Mapping
from typing import ClassVar

import msgspec

from refold.reducers import Event, RunState
from refold.reducers.events import ModelResponded, ToolReturned
from refold.reducers.guards import Judgement, Place, Refuse


class Looked(msgspec.Struct, frozen=True, gc=False):
    """The calls under way that look, and whether one of them has returned well."""

    calls: tuple[str, ...] = ()
    done: bool = False


class LookFirst(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="guard", tag="look_first"
):
    """Refuse calls of `acting` until a call of `looking` has returned without an error."""

    looking: tuple[str, ...]
    acting: tuple[str, ...]
    name: str = ""

    kind: ClassVar[str] = "look_first"
    version: ClassVar[int] = 1
    places: ClassVar[frozenset[Place]] = frozenset({Place.ON_CALLS})
    observes: ClassVar[frozenset[type[Event]]] = frozenset({ModelResponded, ToolReturned})
    reads_content: ClassVar[bool] = False
    texts: ClassVar[Mapping[str, str]] = {
        "refused:look_first": "skipped: look at what is there before you change it."
    }

    def start(self) -> Looked:
        """Nothing was looked at."""
        return Looked()

    def observe(self, own: Looked, event: Event) -> Looked:
        """Follow the calls that look, until one has returned well."""
        match event:
            case ModelResponded(calls=calls) if not own.done:
                looking = tuple(call.id for call in calls if call.name in self.looking)
                return own if looking == own.calls else Looked(looking)
            case ToolReturned(call=call, error=None) if call in own.calls:
                return Looked(done=True)
            case _:
                return own

    def judge(self, own: Looked, state: RunState, place: Place) -> Iterable[Judgement]:
        """Refuse what acts too early."""
        if own.done or state.batch is None:
            return
        for call in state.batch.calls:
            if call.name in self.acting:
                yield Refuse(code="look_first", call=call.id, text="refused:look_first")
