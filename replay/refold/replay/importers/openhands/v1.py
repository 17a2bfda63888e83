"""Events of OpenHands V1: one object an event, told apart by `kind`.

Each `ActionEvent` is one call; those of one answer share `llm_response_id`. A `Condensation` names the events that it
forgets, and puts its summary at a place of what is left: the next prompt is made from that.

Counted: responses = distinct `llm_response_id`; calls and results by `tool_call_id`; errors = `is_error`, an exit code that
is not zero, and `AgentErrorEvent`; tokens = the last `stats` update, over all of its uses.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from refold.reducers.messages import Message, MessageCall
from refold.reducers.vocabulary import FailureClass, Role, ToolError
from refold.replay.importers.chat_parts import arguments, tools_of, words
from refold.replay.importers.fields import JSON, at, instant, json_text, rows, table, text, without
from refold.replay.importers.items import (
    Answered,
    Asked,
    Cancelled,
    Item,
    Prompted,
    Remarked,
    RequestFailed,
    Returned,
    RunBegan,
    Said,
)
from refold.replay.importers.openhands.view import View

RESULTS = ("ObservationEvent", "AgentErrorEvent", "UserRejectObservation")
"""Kinds that answer a call."""

REMARKS = {
    "ConversationStateUpdateEvent": "state",
    "CondensationRequest": "condensation_request",
    "PauseEvent": "pause",
    "HookExecutionEvent": "hook",
}
"""Kinds that are no turns, and what they are called among the remarks; any other is `unmapped`."""


def is_answer(event: JSON) -> bool:
    """Whether the model said it: a call, or a message of the agent."""
    kind = text(event, "kind")
    return kind == "ActionEvent" or (kind == "MessageEvent" and not is_user(event))


def is_user(event: JSON) -> bool:
    """Whether a message is on the user's side."""
    return text(event, "llm_message", "role") == "user" or text(event, "source") in (
        "user",
        "environment",
        "hook",
    )


def is_error(event: JSON) -> bool:
    """Whether a result says that it failed."""
    seen = at(event, "observation")
    codes = (at(seen, "exit_code"), at(seen, "metadata", "exit_code"))
    code = next((code for code in codes if isinstance(code, int) and not isinstance(code, bool)), 0)
    return text(event, "kind") == "AgentErrorEvent" or at(seen, "is_error") is True or code != 0


class V1:
    """The items of one run of events. `places` has the position of each."""

    def __init__(self, events: Sequence[JSON], places: Sequence[str]) -> None:
        self.events, self.places, self.view = events, places, View()
        self.actions: defaultdict[str, list[JSON]] = defaultdict(list)
        for event in events:
            if text(event, "kind") == "ActionEvent" and text(event, "llm_response_id"):
                self.actions[text(event, "llm_response_id")].append(event)
        self.answered: set[str] = set()
        self.condensed = False

    def began(self, key: str) -> RunBegan:
        """The run's beginning, with the system prompt if the events begin with it."""
        first = self.events[0] if self.events else None
        begins = text(first, "kind") == "SystemPromptEvent"
        prompt = Message(role=Role.SYSTEM, text=text(first, "system_prompt", "text"))
        if begins:
            self.view.add(text(first, "id"), prompt)
        return RunBegan(
            position=self.places[0] if self.places else "",
            at=instant(at(first, "timestamp")) if begins else None,
            key=key,
            messages=(prompt,) if begins else (),
            tools=tools_of(rows(first, "tools")) if begins else (),
            agent="openhands",
            rest=without(first, "id", "timestamp", "kind", "system_prompt") if begins else "",
        )

    def items(self) -> Iterator[Item]:
        """What happened, in order."""
        for index, event in enumerate(self.events):
            if index or text(event, "kind") != "SystemPromptEvent":
                yield from self._items(event, self.places[index])
        if self.condensed:
            yield self._prompted(self.places[-1], None)

    def _items(self, event: JSON, position: str) -> Iterator[Item]:
        kind, moment = text(event, "kind"), instant(at(event, "timestamp"))
        if is_answer(event):
            if self.condensed:
                yield self._prompted(position, moment)
            yield self._answer(event, position, moment)
        elif kind in RESULTS:
            yield from self._result(event, position, moment)
        elif kind in ("MessageEvent", "SystemPromptEvent"):
            yield self._said(event, position, moment)
        elif kind == "Condensation":
            yield self._condensation(event, position, moment)
        elif kind == "InterruptEvent":
            yield Cancelled(position=position, at=moment, rest=json_text(event))
        elif kind == "ConversationErrorEvent":
            said = f"{text(event, 'code')}: {text(event, 'detail')}"
            yield RequestFailed(
                position=position, at=moment, failure=FailureClass.OTHER, message=said, rest=json_text(event)
            )
        else:
            what, known = REMARKS.get(kind, "unmapped"), kind in REMARKS
            yield Remarked(position=position, at=moment, what=what, rest=json_text(event), known=known)

    def _said(self, event: JSON, position: str, moment: int | None) -> Said:
        system = text(event, "kind") == "SystemPromptEvent"
        parts = [*rows(event, "llm_message", "content"), *rows(event, "extended_content")]
        said = text(event, "system_prompt", "text") if system else words(parts)
        role = Role.SYSTEM if system else Role.USER
        self.view.add(text(event, "id"), Message(role=role, text=said))
        by = "user" if text(event, "source") == "user" else "harness"
        rest = without(event, "id", "timestamp", "kind", "system_prompt", "source")
        return Said(position=position, at=moment, text=said, role=role, by=by, rest=rest)

    def _answer(self, event: JSON, position: str, moment: int | None) -> Item:
        response = text(event, "llm_response_id")
        siblings = self.actions[response] if text(event, "kind") == "ActionEvent" and response else [event]
        mine = _asked(event)
        said = words(at(event, "thought")) if mine else words(at(event, "llm_message", "content"))
        calls = tuple(MessageCall(call.id, call.name, call.arguments) for call in (mine,) if call)
        self.view.add(text(event, "id"), Message(role=Role.ASSISTANT, text=said, calls=calls), response)
        if response and response in self.answered:
            return Remarked(position=position, at=moment, what="call", rest=json_text(event))
        self.answered.add(response)
        return Answered(
            position=position,
            at=moment,
            text=said,
            reasoning=text(event, "reasoning_content") or text(event, "llm_message", "reasoning_content"),
            calls=tuple(call for sibling in siblings if (call := _asked(sibling))),
            response_id=response,
            rest=without(event, "id", "timestamp", "kind", "thought", "reasoning_content", "llm_response_id"),
        )

    def _result(self, event: JSON, position: str, moment: int | None) -> Iterator[Item]:
        kind, call, name = text(event, "kind"), text(event, "tool_call_id"), text(event, "tool_name")
        output = _output(event)
        self.view.add(text(event, "id"), Message(role=Role.TOOL, text=output, call=call, name=name))
        rejected = kind == "UserRejectObservation"
        yield Returned(
            position=position,
            at=moment,
            id=call,
            name=name,
            output=output,
            error=ToolError.CANCELLED if rejected else ToolError.RAISED if is_error(event) else None,
            rest=without(event, "id", "timestamp", "kind", "tool_call_id", "tool_name"),
        )
        if rejected:
            yield Remarked(position=position, at=moment, what="approval", rest=json_text(event))

    def _condensation(self, event: JSON, position: str, moment: int | None) -> Remarked:
        offset = at(event, "summary_offset")
        forgotten = {str(found) for found in rows(event, "forgotten_event_ids")}
        self.view.condense(forgotten, text(event, "summary"), offset if isinstance(offset, int) else None)
        self.condensed = True
        return Remarked(position=position, at=moment, what="condensation", rest=json_text(event))

    def _prompted(self, position: str, moment: int | None) -> Prompted:
        self.condensed = False
        return Prompted(position=position, at=moment, messages=self.view.messages(), why="condensation")


def _asked(event: JSON) -> Asked | None:
    """The call that an action is: the model's own text of the arguments, else the action's fields."""
    if text(event, "kind") != "ActionEvent":
        return None
    given = at(event, "tool_call", "arguments")
    if given is None:
        given = at(event, "tool_call", "function", "arguments")
    if given is None:
        given = {key: value for key, value in table(event, "action").items() if key != "kind"}
    name = text(event, "tool_name") or text(event, "tool_call", "name")
    return Asked(id=text(event, "tool_call_id"), name=name, arguments=arguments(given))


def _output(event: JSON) -> str:
    kind = text(event, "kind")
    if kind == "AgentErrorEvent":
        return text(event, "error")
    if kind == "UserRejectObservation":
        return text(event, "rejection_reason")
    seen = at(event, "observation")
    content = at(seen, "content")
    return words(content) if content is not None else words(at(seen, "output")) or without(seen, "kind")
