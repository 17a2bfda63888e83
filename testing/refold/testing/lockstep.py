"""The lockstep of a replay: each event and request beside the recorded one, up to the first difference."""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

import anyio
import msgspec

from refold.engine.models.protocol import ModelRequest
from refold.engine.playback import Recording
from refold.engine.score import Watcher
from refold.reducers import events as ev
from refold.testing.differences import (
    Difference,
    changed_tools,
    compare_guards,
    compare_manifests,
    compare_policies,
    compare_requests,
    compare_starts,
    compare_texts,
    describe_result,
)
from refold.testing.matchers import Matchers

PATIENCE = 60.0
"""Seconds without an event after which a replay fails."""

_PREDICTED = frozenset({"deadline", "until", "view"})
"""Fields about the future: if they matter, a later event differs, too. `view` is a digest of the prompt and
of the tools' code: the request itself is compared."""

_MEASURED = frozenset(
    {
        "size",
        "input_tokens",
        "digest",
        "tokens",
        "tokens_before",
        "tokens_after",
        "before",
        "instructions",
        "cuts",
        "used",
        "exceeded_by",
    }
)
"""Fields that depend on the length of texts, which ignored parts change."""


_AMOUNT = re.compile(r"\d[\d,.]*")

_FREE = frozenset({"text", "texts", "note", "reason", "values"})
"""Fields with free text. Only there do matchers for texts apply: not to states, codes and names."""

_DERIVED = frozenset({"size", "measured", "text", "version"})
"""Fields that follow from others, shown only if nothing else differs."""

_SHOWN = 2
"""Fields of an event that are shown with both values."""


class Parted(Exception):
    """The first difference of a replay. Raised through the engine, which it stops."""

    def __init__(self, seq: int, event: ev.Event | None, differences: Sequence[Difference]) -> None:
        super().__init__(seq, event, differences)
        self.seq, self.event, self.differences = seq, event, differences


class Lockstep(Watcher):
    """Compares a replay with its recording, event by event and request by request."""

    def __init__(self, recording: Recording, matchers: Matchers) -> None:
        self.events: list[ev.Event] = []
        self.causes: list[Difference] = []
        self.drifts: list[Difference] = []
        self.changed_code: list[str] = []
        self.scope = anyio.CancelScope()
        self._known, self._matchers = recording.events, matchers
        self._requests = recording.requests()

    def recorded(self, seq: int, event: ev.Event) -> None:
        """Compare an event. Raises `Parted`."""
        if self.scope.deadline < math.inf:
            self.scope.deadline = anyio.current_time() + PATIENCE
        known = self._known[seq - 1] if seq <= len(self._known) else None
        if isinstance(event, ev.RunStarted) and isinstance(known, ev.RunStarted):
            found = [*compare_starts(known, event, self._matchers), *compare_manifests(known, event)]
            policies = compare_policies(known.policy, event.policy)
            hidden = [each for each in policies if self._is_hidden(each)]
            found += hidden
            self.causes += [each for each in policies if each not in hidden]
            self.causes += compare_guards(known, event)
            self.changed_code = changed_tools(known, event)
        else:
            found = list(self._compare(known, event))
        if found:
            raise Parted(seq, event, found)
        self.events.append(event)

    def _is_hidden(self, difference: Difference) -> bool:
        """Return whether a policy key changes results that a replay takes from the recording, as they are.

        These are the cap of outputs, redaction, and the texts of failed calls.
        """
        results = [event for event in self._known if isinstance(event, ev.ToolReturned)]
        key = difference.where
        if key.startswith("tool_output"):
            most = int(difference.actual) if difference.actual.isdecimal() else 0
            return any(event.cut or event.output_bytes > most for event in results)
        if key.startswith("texts."):
            return any(
                event.error is not None and key.startswith(f"texts.{event.error}") for event in results
            )
        return key.startswith("redact")

    def requested(self, request: ModelRequest) -> None:
        """Compare a request with the recorded one. Raises `Parted`."""
        known, _ = next(self._requests)
        if known != request and (found := list(compare_requests(known, request, self._matchers))):
            raise Parted(len(self.events), None, found)

    def answered(self, *, given: bool) -> None:
        """Raise `Parted`: the recording does not contain what follows."""
        what = "the operator answers, and the recording ends where the run waits"
        if not given:
            what = "the operator does not answer, and an answer was recorded"
        raise Parted(len(self.events), None, [Difference(what=what)])

    def returned(self, recorded: ev.ToolReturned, live: ev.ToolReturned) -> None:
        """Compare the result of a live tool, and note a difference."""
        name = next(
            (
                call.name
                for event in self.events
                if isinstance(event, ev.ModelResponded)
                for call in event.calls
                if call.id == recorded.call
            ),
            "",
        )
        texts = [each.content.output if each.content else "" for each in (recorded, live)]
        where = f"{recorded.call} {name}"
        if recorded.error != live.error:
            errors = [str(each.error or "") for each in (recorded, live)]
            sides = [describe_result(error, text) for error, text in zip(errors, texts, strict=True)]
            self.drifts.append(compare_texts("the error of a call differs", where, *sides))
            return
        sides = [self._matchers.text(text, message="tool", name=name) for text in texts]
        if sides[0] != sides[1]:
            self.drifts.append(compare_texts("the result of a call differs", where, *sides))

    def _compare(self, known: ev.Event | None, event: ev.Event) -> Iterator[Difference]:
        if known == event or isinstance(event, ev.StateDigested):
            return
        if known is None or type(known) is not type(event):
            yield Difference(
                what="another event follows",
                recorded="the end of the recording" if known is None else ev.kind_of(known),
                actual=ev.kind_of(event),
            )
            return
        if isinstance(event, ev.ModelResponded | ev.ModelFailed | ev.ToolReturned | ev.SummaryReturned):
            return  # a recorded fact: only measurements can differ
        before, now = self._plain(known), self._plain(event)
        fields = [field for field in {**before, **now} if before.get(field) != now.get(field)]
        shown = [field for field in fields if field not in _DERIVED] or fields
        for field in shown[:_SHOWN]:
            yield Difference(
                what=f"{ev.kind_of(event)}.{field} differs",
                recorded=_text(before.get(field)),
                actual=_text(now.get(field)),
            )
        if others := [field for field in fields if field not in shown[:_SHOWN]]:
            yield Difference(what=f"fields that differ as well: {', '.join(others)}")

    def _plain(self, event: ev.Event) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(event)
        left_out = _PREDICTED | (_MEASURED if self._matchers.used else frozenset[str]())
        if isinstance(event, ev.Fact):
            left_out |= {"at", "size", "digest"}
        elif "texts" in cast("dict[str, Any]", fields.get("content") or {}):
            left_out |= {"content"}  # the policy's own texts; the prompt is compared with the next request
        return {
            key: self._without_measures(value, key) for key, value in fields.items() if key not in left_out
        }

    def _without_measures(self, value: Any, key: str) -> Any:
        if isinstance(value, str):
            if key == "arguments":
                return self._matchers.arguments(value)
            text = self._matchers.text(value) if key in _FREE else value
            return _AMOUNT.sub("<amount>", text) if key == "reason" and self._matchers.used else text
        if isinstance(value, list | tuple):
            return [self._without_measures(each, key) for each in cast("Sequence[Any]", value)]
        if isinstance(value, dict):
            entries = cast("dict[str, Any]", value).items()
            left_out = _MEASURED if self._matchers.used else ()
            return {
                name: self._without_measures(each, key if key == "arguments" else name)
                for name, each in entries
                if name not in left_out
            }
        return value


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
