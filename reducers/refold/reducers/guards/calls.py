"""Guards over single calls.

Source: the exclusive handoff of inspect_agents; here a guard that runs before every approval and approves
nothing.

Source: the switch of inspect_agents that turns off parallel tools.

Source: Hermes Agent, which limits searches and children per turn.

Source: the stop condition `stop_on_tool` of tirea 0.5, and `submit` of PaperBench's later solver.

Source: the `guardrails` loop (aar), which asks a model that only reads to state its findings and begin.
"""

from collections.abc import Iterable, Mapping
from itertools import dropwhile
from typing import Annotated, ClassVar, Literal

from msgspec import Meta
from msgspec.structs import replace

from refold.reducers import events as ev
from refold.reducers.guards.protocol import (
    Config,
    Inject,
    Judgement,
    Own,
    Place,
    Reading,
    Refuse,
    Stop,
    begins,
    known,
    open_calls,
    read_only,
    same_if_equal,
)
from refold.reducers.limits import Scope
from refold.reducers.machine import Trigger
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Cause


class Handoff(Config, frozen=True, kw_only=True, tag="handoff"):
    """Allows only the first call of a response whose name begins with one of `prefixes`."""

    prefixes: Annotated[tuple[Annotated[str, Meta(min_length=1)], ...], Meta(min_length=1)] = (
        "transfer_to_",
    )

    kind: ClassVar[str] = "handoff"
    places: ClassVar[frozenset[Place]] = frozenset({Place.ON_BATCH})
    texts: ClassVar[Mapping[str, str]] = {
        "refused:handoff": (
            "skipped: another agent takes over by an earlier call of this answer, so this one was not run."
        )
    }

    def judge(self, own: None, state: RunState, place: Place) -> Iterable[Judgement]:  # noqa: ARG002
        """Refuse every other call. Keys of `metadata` are stable: keys may be added, none renamed."""
        calls = open_calls(state)
        chosen = next((call for call in calls if call.name.startswith(self.prefixes)), None)
        for call in calls if chosen else ():
            if chosen and call.id != chosen.id:
                yield Refuse(
                    code="skipped",
                    call=call.id,
                    text="refused:handoff",
                    metadata={
                        "selected_handoff_id": chosen.id,
                        "skipped_function": known(call.name, state),
                        "source": "policy/handoff_exclusive",
                        "pending": False,
                    },
                )


class OneCall(Config, frozen=True, kw_only=True, tag="one_call"):
    """Allows only the first of several calls. Leaves a batch with a handoff to the guard `handoff`."""

    kind: ClassVar[str] = "one_call"
    places: ClassVar[frozenset[Place]] = frozenset({Place.ON_BATCH})
    texts: ClassVar[Mapping[str, str]] = {
        "refused:one_call": "skipped: one call at a time; only the first of this answer was run."
    }

    def judge(self, own: None, state: RunState, place: Place) -> Iterable[Judgement]:  # noqa: ARG002
        """Refuse all but the first. Keys of `metadata` are stable: keys may be added, none renamed."""
        first, *rest = open_calls(state) or (None,)
        if first is None or any(call.name.startswith(_prefixes(state)) for call in (first, *rest)):
            return
        for call in rest:
            yield Refuse(
                code="skipped",
                call=call.id,
                text="refused:one_call",
                metadata={
                    "selected_call_id": first.id,
                    "skipped_function": known(call.name, state),
                    "source": "policy/one_call",
                    "pending": False,
                },
            )


def _prefixes(state: RunState) -> tuple[str, ...]:
    handoffs = [watch.guard for watch in state.guards if isinstance(watch.guard, Handoff)]
    return tuple(prefix for guard in handoffs or [Handoff()] for prefix in guard.prefixes)


class ToolCap(Config, frozen=True, kw_only=True, tag="tool_cap"):
    """Stops before the (`max` + 1)-th call of any of `tools` in the scope; null: no maximum.

    Every requested call counts.
    """

    tools: Annotated[tuple[str, ...], Meta(min_length=1)]
    max: Annotated[int, Meta(ge=0)] | None
    scope: Scope = "turn"

    kind: ClassVar[str] = "tool_cap"
    places: ClassVar[frozenset[Place]] = frozenset({Place.ON_CALLS})
    observes: ClassVar[frozenset[type[ev.Event]]] = frozenset(
        {ev.ModelResponded, ev.InputReceived, ev.RunForked}
    )
    reading: ClassVar[Reading] = Reading(tools={"tools": "name"})
    fresh: ClassVar[int] = 0
    texts: ClassVar[Mapping[str, str]] = {
        "refused:tool_cap": "skipped: this tool was called as often as it may be, so the call was not run."
    }

    def observe(self, own: int, event: ev.Event) -> int:
        """Count the calls of these tools."""
        if isinstance(event, ev.ModelResponded):
            return own + sum(call.name in self.tools for call in event.calls)
        return 0 if begins(self.scope, event) else own

    def judge(self, own: int, state: RunState, place: Place) -> Iterable[Judgement]:  # noqa: ARG002
        """Stop a batch that exceeds the maximum."""
        if self.max is None or own <= self.max:
            return
        if any(call.name in self.tools for call in open_calls(state)):
            yield Stop(
                code="stalled",
                reason=f"{own} calls of capped tools, and {self.max} are allowed",
                measured={"calls": own, "allowed": self.max},
                text="refused:tool_cap",
            )


class StopOnTool(Config, frozen=True, kw_only=True, tag="stop_on_tool"):
    """Completes the run when a batch with a call of one of `tools` is done.

    A failed call counts, a refused one does not. `when: now`: the first such call and those before it run,
    those after it are refused.
    """

    tools: Annotated[tuple[str, ...], Meta(min_length=1)]
    when: Literal["after_tools", "now"] = "after_tools"

    kind: ClassVar[str] = "stop_on_tool"
    places: ClassVar[frozenset[Place]] = frozenset({Place.ON_CALLS, Place.AFTER_TOOLS})
    observes: ClassVar[frozenset[type[ev.Event]]] = frozenset({ev.ModelResponded, ev.CallRefused})
    reading: ClassVar[Reading] = Reading(tools={"tools": "name"})
    fresh: ClassVar[tuple[str, ...]] = ()
    texts: ClassVar[Mapping[str, str]] = {
        "refused:stop_tool": "skipped: a call before this one ends the run, so this call was not run."
    }

    def observe(self, own: tuple[str, ...], event: ev.Event) -> tuple[str, ...]:
        """Collect the calls of these tools in the latest response, without refused ones."""
        match event:
            case ev.ModelResponded(calls=calls):
                return tuple(call.id for call in calls if call.name in self.tools and not call.refused)
            case ev.CallRefused(call=call) if call in own:
                return tuple(other for other in own if other != call)
            case _:
                return own

    def judge(self, own: tuple[str, ...], state: RunState, place: Place) -> Iterable[Judgement]:
        """Refuse later calls, if configured, and complete the run when the batch is done."""
        if not own:
            return
        if place == Place.AFTER_TOOLS:
            reason = "a tool was called that ends the run"
            yield Stop(
                code="stop_tool", reason=reason, measured={"calls": len(own)}, trigger=Trigger.COMPLETE
            )
        elif self.when == "now":
            for call in list(dropwhile(lambda call: call.id != own[0], open_calls(state)))[1:]:
                yield Refuse(code="stop_tool", call=call.id, text="refused:stop_tool")


class Called(Own, frozen=True):
    """The names called by each of the last batches, and whether the model was reminded in this scope."""

    batches: tuple[tuple[str, ...], ...] = ()
    told: bool = False


class ReadOnly(Config, frozen=True, kw_only=True, tag="read_only"):
    """Reminds the model, once per scope, when `batches` batches in a row only read.

    Reading calls are those of `tools`, or, if that is empty, of tools with the replay class `read_only`.
    Responses without calls are ignored.
    """

    batches: Annotated[int, Meta(ge=1)] = 8
    tools: tuple[str, ...] = ()
    scope: Scope = "lineage"

    kind: ClassVar[str] = "read_only"
    places: ClassVar[frozenset[Place]] = frozenset({Place.ON_NUDGE})
    observes: ClassVar[frozenset[type[ev.Event]]] = frozenset(
        {ev.ModelResponded, ev.MessageInjected, ev.InputReceived, ev.RunForked}
    )
    fresh: ClassVar[Called] = Called()
    texts: ClassVar[Mapping[str, str]] = {
        "read_only": (
            "[harness] You have only read for {count} rounds of calls. Say what you have found and what "
            "you plan to do, then begin with it."
        )
    }

    def observe(self, own: Called, event: ev.Event) -> Called:
        """Remember the names of the last batches; the event lacks the tools' replay classes."""
        return same_if_equal(own, self._after(own, event))

    def _after(self, own: Called, event: ev.Event) -> Called:
        match event:
            case ev.ModelResponded(calls=calls) if calls:
                names = tuple(sorted({call.name for call in calls}))
                return replace(own, batches=(*own.batches, names)[-self.batches :])
            case ev.MessageInjected(cause=Cause.GUARD, name=self.called):
                return replace(own, told=True)
            case _:
                return Called() if begins(self.scope, event) else own

    def judge(self, own: Called, state: RunState, place: Place) -> Iterable[Judgement]:  # noqa: ARG002
        """Remind once enough batches are remembered and all of them only read."""
        if own.told or len(own.batches) < self.batches:
            return
        if frozenset().union(*own.batches) <= (frozenset(self.tools) or read_only(state)):
            count: dict[str, str | int] = {"count": self.batches}
            yield Inject(code="read_only", text="read_only", measured=count, values=count)
