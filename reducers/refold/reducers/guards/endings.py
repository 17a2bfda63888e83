"""Guards over failures and ends.

Source: the `guardrails` loop (aar), which sends a model that ended with a blank text back to failing tests.

Source: the `guardrails` loop (aar), which points a model from its shell to the terminal of its editor.

Source: the stop condition `consecutive_errors` of tirea 0.5, judged on results, as documented there.

Source: the completion words of inspect_agents, and the stop condition `content_match` of tirea 0.5.
"""

from collections.abc import Iterable, Mapping
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
    Stop,
    begins,
    same_if_equal,
)
from refold.reducers.limits import Scope
from refold.reducers.machine import Trigger
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Cause, Role, StopReason, Unknown

_BAD = "!"


class Recent(Own, frozen=True):
    """The last messages, oldest first: `!` for a failure, a call's id until its result, "" for any other.

    `count`: how often the model was sent back in this scope.
    """

    messages: tuple[str, ...] = ()
    count: int = 0


class PrematureEnd(Config, frozen=True, kw_only=True, tag="premature_end"):
    """Sends the model back, at most `max` times per scope, when it ends its turn early with a blank text.

    It is early if one of the last `look_back` messages is a result that failed or contains one of `marks`. A
    refusal is not a failure.
    """

    max: Annotated[int, Meta(ge=0)] = 2
    look_back: Annotated[int, Meta(ge=1)] = 10
    marks: tuple[Annotated[str, Meta(min_length=1)], ...] = (
        "FAIL:",
        "Error",
        "error:",
        "Traceback",
        "AssertionError",
        "FAILED",
        "Exit code:",
    )
    scope: Scope = "run"

    kind: ClassVar[str] = "premature_end"
    places: ClassVar[frozenset[Place]] = frozenset({Place.ON_FINISHED})
    observes: ClassVar[frozenset[type[ev.Event]]] = frozenset({
        ev.RunStarted, ev.RunForked, ev.ModelResponded, ev.RetryScheduled, ev.ToolReturned, ev.CallRefused, ev.InputReceived, ev.MessageInjected
    })  # fmt: skip
    reads_content: ClassVar[bool] = True
    reading: ClassVar[Reading] = Reading(calls=False, monotone=frozenset({Unknown.ERRORS}), warns=False)
    fresh: ClassVar[Recent] = Recent()
    texts: ClassVar[Mapping[str, str]] = {
        "premature_end": (
            "[harness] You stopped without a word, but recent results still show failures. Read them again "
            "and try something else, or say why it cannot be done."
        )
    }

    def observe(self, own: Recent, event: ev.Event) -> Recent:
        """Remember the last messages in the order of the run; a result takes its call's position."""
        match event:
            case ev.RunStarted(content=opening) if opening is not None:
                bad = [each.role is Role.TOOL and self._has_mark(each.text) for each in opening.messages]
                return self._append(own, *(_BAD if each else "" for each in bad))
            case ev.ModelResponded(calls=calls) if calls or not event.blank:
                return self._append(own, "", *(call.id for call in calls))
            case ev.ToolReturned(call=call, error=error, content=content):
                failed = error is not None or self._has_mark(content.output if content else "")
                return _settle(own, call, failed)
            case ev.CallRefused(call=call):
                return _settle(own, call, bad=False)
            case ev.MessageInjected(gap=None, cause=cause, name=name):
                mine = cause is Cause.GUARD and name == self.called
                return self._append(replace(own, count=own.count + mine), "")
            case ev.RetryScheduled(keeps=True):
                return self._append(own, "")
            case ev.InputReceived():
                return self._append(Recent(own.messages) if begins(self.scope, event) else own, "")
            case _:
                return Recent(own.messages) if begins(self.scope, event) else own

    def _has_mark(self, text: str) -> bool:
        return any(mark in text for mark in self.marks)

    def _append(self, own: Recent, *messages: str) -> Recent:
        return replace(own, messages=(*own.messages, *messages)[-self.look_back :])

    def judge(self, own: Recent, state: RunState, place: Place) -> Iterable[Judgement]:  # noqa: ARG002
        """Send the model back while a failure is remembered and `max` is not reached."""
        answer = state.answer
        if (
            answer is None
            or answer.event.calls
            or not answer.blank
            or answer.event.stop is not StopReason.END_TURN
        ):
            return
        if own.count < self.max and _BAD in own.messages:
            measured: dict[str, str | int] = {"failures": own.messages.count(_BAD), "before": own.count}
            yield Inject(code="premature_end", text="premature_end", measured=measured)


def _without(calls: tuple[str, ...], ended: str) -> tuple[str, ...]:
    return tuple(call for call in calls if call != ended)


def _settle(own: Recent, call: str, bad: bool) -> Recent:  # noqa: FBT001
    if call not in own.messages:
        return own
    messages = tuple((_BAD if bad else "") if each == call else each for each in own.messages)
    return replace(own, messages=messages)


class Lacking(Own, frozen=True):
    """Count of batches in a row that lacked something; the tool's open calls, and whether one of them did."""

    count: int = 0
    open: tuple[str, ...] = ()
    lacks: bool = False
    told: bool = False


class Pivot(Config, frozen=True, kw_only=True, tag="pivot"):
    """Points the model from `tool` to `to`, once per scope, after `failures` batches in a row that lacked
    something.

    A batch did if a call of `tool` in it failed with one of `marks` in its output. Batches without `tool` do
    not count. If the run has no tool `to`, nothing is sent.
    """

    tool: str = "bash"
    to: str = "acp_terminal"
    failures: Annotated[int, Meta(ge=1)] = 2
    marks: tuple[Annotated[str, Meta(min_length=1)], ...] = (
        "command not found",
        "not found",
        "No such file or directory",
        "ImportError",
        "ModuleNotFoundError",
        "SyntaxError",
    )
    scope: Scope = "lineage"

    kind: ClassVar[str] = "pivot"
    places: ClassVar[frozenset[Place]] = frozenset({Place.ON_NUDGE})
    observes: ClassVar[frozenset[type[ev.Event]]] = frozenset(
        {
            ev.ModelResponded,
            ev.ToolReturned,
            ev.CallRefused,
            ev.MessageInjected,
            ev.InputReceived,
            ev.RunForked,
        }
    )
    reads_content: ClassVar[bool] = True
    reading: ClassVar[Reading] = Reading(monotone=frozenset({Unknown.ERRORS}), warns=False, target="to")
    fresh: ClassVar[Lacking] = Lacking()
    texts: ClassVar[Mapping[str, str]] = {
        "pivot": "[harness] {tool} lacks what this needs. Use {to} for it instead."
    }

    def observe(self, own: Lacking, event: ev.Event) -> Lacking:
        """Count a batch when its last call of the tool has a result."""
        return same_if_equal(own, self._after(own, event))

    def _after(self, own: Lacking, event: ev.Event) -> Lacking:
        match event:
            case ev.ModelResponded(calls=calls):
                made = tuple(call.id for call in calls if call.name == self.tool)
                return replace(own, open=made, lacks=False)
            case ev.ToolReturned(call=call) | ev.CallRefused(call=call) if call in own.open:
                lacks = own.lacks or self._lacks(event)
                rest = _without(own.open, call)
                ended = own.count + 1 if lacks else 0
                return replace(own, open=rest, lacks=lacks, count=own.count if rest else ended)
            case ev.MessageInjected(cause=Cause.GUARD, name=self.called):
                return replace(own, told=True)
            case _:
                return Lacking(open=own.open, lacks=own.lacks) if begins(self.scope, event) else own

    def _lacks(self, event: ev.Event) -> bool:
        if not isinstance(event, ev.ToolReturned) or event.error is None or event.content is None:
            return False
        return any(mark in event.content.output for mark in self.marks)

    def judge(self, own: Lacking, state: RunState, place: Place) -> Iterable[Judgement]:  # noqa: ARG002
        """Remind at the count, if the run has the other tool."""
        if own.told or own.count < self.failures:
            return
        if any(tool.name == self.to for tool in state.setup.tools):
            measured: dict[str, str | int] = {"batches": own.count, "allowed": self.failures}
            yield Inject(
                code="pivot", text="pivot", measured=measured, values={"tool": self.tool, "to": self.to}
            )


class Failing(Own, frozen=True):
    """Failed batches in a row; the open batch's calls without a result, and whether one did not fail."""

    count: int = 0
    open: tuple[str, ...] = ()
    good: bool = False


class Errors(Config, frozen=True, kw_only=True, tag="errors"):
    """Stops once every call failed in `rounds` batches in a row.

    Any other batch, and a response without calls, resets the count. A refusal is not a failure.
    """

    rounds: Annotated[int, Meta(ge=1)]

    kind: ClassVar[str] = "errors"
    places: ClassVar[frozenset[Place]] = frozenset({Place.ON_RESULTS})
    observes: ClassVar[frozenset[type[ev.Event]]] = frozenset(
        {ev.ModelResponded, ev.ToolReturned, ev.CallRefused}
    )
    reading: ClassVar[Reading] = Reading(calls=False, monotone=frozenset({Unknown.ERRORS}), warns=False)
    fresh: ClassVar[Failing] = Failing()

    def observe(self, own: Failing, event: ev.Event) -> Failing:
        """Count a batch when its last result has arrived."""
        return same_if_equal(own, self._after(own, event))

    def _after(self, own: Failing, event: ev.Event) -> Failing:
        match event:
            case ev.ModelResponded(calls=calls):
                return Failing(own.count if calls else 0, tuple(call.id for call in calls))
            case ev.ToolReturned(call=call) | ev.CallRefused(call=call) if call in own.open:
                good = own.good or not (isinstance(event, ev.ToolReturned) and event.error)
                rest = _without(own.open, call)
                if rest:
                    return Failing(own.count, rest, good)
                return Failing(0 if good else own.count + 1)
            case _:
                return own

    def judge(self, own: Failing, state: RunState, place: Place) -> Iterable[Judgement]:  # noqa: ARG002
        """Stop at `rounds`."""
        if own.count >= self.rounds:
            yield Stop(
                code="consecutive_errors",
                reason=f"every call failed in {own.count} batches in a row",
                measured={"batches": own.count, "allowed": self.rounds},
            )


class Keywords(Config, frozen=True, kw_only=True, tag="keywords"):
    """Completes the run when a response's text contains one of `words`: at once, its calls refused, or after
    its tools.

    `case: ignore` folds the case of both; `exact` is case-sensitive. Reasoning is ignored.
    """

    words: Annotated[tuple[Annotated[str, Meta(min_length=1)], ...], Meta(min_length=1)]
    case: Literal["ignore", "exact"] = "ignore"
    when: Literal["response", "after_tools"] = "response"

    kind: ClassVar[str] = "keywords"
    places: ClassVar[frozenset[Place]] = frozenset({Place.ON_RESPONSE, Place.AFTER_TOOLS})
    observes: ClassVar[frozenset[type[ev.Event]]] = frozenset({ev.ModelResponded})
    reads_content: ClassVar[bool] = True
    reading: ClassVar[Reading] = Reading(calls=False)
    fresh: ClassVar[int] = 0

    def observe(self, own: int, event: ev.Event) -> int:
        """Return the number, from 1, of the first word in the latest response; 0 if there is none."""
        if not isinstance(event, ev.ModelResponded):
            return own
        text = self._fold(event.content.text if event.content else "")
        return next((place for place, word in enumerate(self.words, 1) if self._fold(word) in text), 0)

    def _fold(self, text: str) -> str:
        return text.casefold() if self.case == "ignore" else text

    def judge(self, own: int, state: RunState, place: Place) -> Iterable[Judgement]:  # noqa: ARG002
        """Complete the run at the configured place."""
        here = Place.ON_RESPONSE if self.when == "response" else Place.AFTER_TOOLS
        if own and place == here:
            yield Stop(
                code="keyword",
                reason="the answer holds a word that ends the run",
                measured={"word": own},
                trigger=Trigger.COMPLETE,
                text="refused:stopped",
            )
