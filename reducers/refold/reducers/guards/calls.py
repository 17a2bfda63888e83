"""Guards over single calls.

Source: the exclusive handoff of inspect_agents; here a guard ahead of every approval, which approves nothing.

Source: the switch of inspect_agents that turns parallel tools off.

Source: Hermes Agent, which caps searches and children a turn.

Source: the stop condition `stop_on_tool` of tirea 0.5, and `submit` of PaperBench's later solver.

Source: the `guardrails` loop (aar), which tells a model that only reads to state what it found and to begin.
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
)
from refold.reducers.limits import Scope
from refold.reducers.machine import Trigger
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Cause


class Handoff(Config, frozen=True, kw_only=True, tag="handoff"):
    """If a call's name begins with one of `prefixes`, only the first such call of the answer goes on."""

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
        """Refuse every other call. The keys of `metadata` are promised: others may be added, none renamed."""
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
    """Of more than one call only the first goes on. A batch with a handoff is left to the guard `handoff`."""

    kind: ClassVar[str] = "one_call"
    places: ClassVar[frozenset[Place]] = frozenset({Place.ON_BATCH})
    texts: ClassVar[Mapping[str, str]] = {
        "refused:one_call": "skipped: one call at a time; only the first of this answer was run."
    }

    def judge(self, own: None, state: RunState, place: Place) -> Iterable[Judgement]:  # noqa: ARG002
        """Refuse all but the first. The keys of `metadata` are promised: others may be added, none
        renamed.
        """
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
    """Stop before the (`max` + 1)-th call of any of `tools` in the scope; None: no cap.

    Each call made counts.
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
        """Stop a batch that goes beyond the cap."""
        if self.max is None or own <= self.max:
            return
        if any(call.name in self.tools for call in open_calls(state)):
            yield Stop(
                code="stalled",
                reason=f"{own} calls of capped tools, and {self.max} are allowed",
                saw={"calls": own, "allowed": self.max},
                text="refused:tool_cap",
            )


class StopOnTool(Config, frozen=True, kw_only=True, tag="stop_on_tool"):
    """Complete the run when a batch with a call of one of `tools` is done; a call that failed counts.

    A call that was refused does not: it was not run. `when: now`: the first such call and those before it
    run, those after it are refused.
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
        """The calls of these tools in the latest answer, without those that were refused."""
        match event:
            case ev.ModelResponded(calls=calls):
                return tuple(call.id for call in calls if call.name in self.tools and not call.refused)
            case ev.CallRefused(call=call) if call in own:
                return tuple(other for other in own if other != call)
            case _:
                return own

    def judge(self, own: tuple[str, ...], state: RunState, place: Place) -> Iterable[Judgement]:
        """Refuse what comes after the call, where that is configured; complete the run when the batch is
        done.
        """
        if not own:
            return
        if place == Place.AFTER_TOOLS:
            reason = "a tool was called that ends the run"
            yield Stop(code="stop_tool", reason=reason, saw={"calls": len(own)}, trigger=Trigger.COMPLETE)
        elif self.when == "now":
            for call in list(dropwhile(lambda call: call.id != own[0], open_calls(state)))[1:]:
                yield Refuse(code="stop_tool", call=call.id, text="refused:stop_tool")


class Called(Own, frozen=True):
    """The names that each of the last batches called, and whether the model was told in this scope."""

    batches: tuple[tuple[str, ...], ...] = ()
    told: bool = False


class ReadOnly(Config, frozen=True, kw_only=True, tag="read_only"):
    """Say so, once in the scope, when `batches` batches in a row only read. Answers without calls are no
    batch.

    Reading are the calls of `tools`, or, if none are listed, of the tools whose replay class is `read_only`.
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
        """Remember the names of the last batches: what each tool may do is not in the event."""
        match event:
            case ev.ModelResponded(calls=calls) if calls:
                names = tuple(sorted({call.name for call in calls}))
                return replace(own, batches=(*own.batches, names)[-self.batches :])
            case ev.MessageInjected(cause=Cause.GUARD, name=self.called):
                return replace(own, told=True)
            case _:
                return Called() if begins(self.scope, event) else own

    def judge(self, own: Called, state: RunState, place: Place) -> Iterable[Judgement]:  # noqa: ARG002
        """Speak when as many batches as that are remembered, and each of them only read."""
        if own.told or len(own.batches) < self.batches:
            return
        if frozenset().union(*own.batches) <= (frozenset(self.tools) or read_only(state)):
            count: dict[str, str | int] = {"count": self.batches}
            yield Inject(code="read_only", text="read_only", saw=count, values=count)
