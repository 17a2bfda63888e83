"""One sample of an Inspect log as a run: its events in order, each prompt directly before its response.

The conversation is that of the agents. Model requests of scorers, and of subagents inside tool calls, become
remarks. Without model events, the sample's final messages are used instead.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy

import msgspec

from refold.importers.content import take_tools
from refold.importers.fields import (
    JSON,
    add_prefix,
    at,
    instant,
    join_rests,
    json_text,
    known_or,
    number,
    rest,
    rows,
    table,
    take,
    take_if,
    take_rows,
    take_text,
    take_time,
    take_words,
    text,
)
from refold.importers.formats.inspect_logs.messages import (
    THOUGHTS,
    Attachments,
    Requests,
    SampleMessages,
    count_nested,
    count_subagent,
    error_of,
    labels,
    read_response,
    read_text,
    result_text,
    results_of,
    settings,
    take_duration,
    take_message,
)
from refold.importers.items import (
    UNCOUNTED,
    Item,
    Place,
    Returned,
    RunBegan,
    Said,
    message_of,
)
from refold.importers.session_rows import diagnose_apart
from refold.reducers.messages import Message
from refold.reducers.source_marks import CALL_UNREAD
from refold.reducers.vocabulary import Role

_BOOKKEEPING = ("span_begin", "span_end", "step")
_KINDS = frozenset({
    "anchor", "approval", "branch", "checkpoint", "compaction", "error", "info", "input", "interrupt",
    "logger", "model", "sample_init", "sample_limit", "sandbox", "score", "score_edit", "span_begin",
    "span_end", "state", "step", "store", "subtask", "tool"
})  # fmt: skip


class Sample:
    """A reader of one sample at position `place`: `samples/1_epoch_1.json $` or `$.samples[0]`."""

    def __init__(self, sample: JSON, place: str) -> None:
        self.sample, self.place = sample, place
        self.events, self.final = take_rows(sample, "events"), take_rows(sample, "messages")
        texts = take(sample, "attachments") if table(sample, "attachments") else None
        self.attachments = Attachments(table(texts))
        # `events_data.messages` since about 0.3.200, before that `message_pool`.
        pool = take_rows(sample, "events_data", "messages") or take_rows(sample, "message_pool")
        self.data, self.scores = take(sample, "events_data"), take(sample, "scores")
        put_back, look_up = self.attachments.put_back, self.attachments.look_up
        self.requests = Requests(self.events, rows(self.data, "calls"), put_back, look_up)
        self.messages = SampleMessages(pool, self.attachments, self.requests)
        self.results = results_of((*pool, *self.final))
        self.model = ""
        self.tools: JSON = None
        self.last: Message | None = None
        self.answered: set[str] = set()
        self.seen: set[Message] = set()
        self.spans: dict[str, tuple[str, str]] = {}
        self.owners: dict[str, str] = {}
        self.scoring = 0

    def begin(self, key: str, header: JSON) -> RunBegan:
        """Return the run's start: the agent's first prompt, else the messages before the first response."""
        self.requests.model = text(header, "eval", "model")
        messages, event = self._first()
        self.model, self.tools = text(event, "model") or text(header, "eval", "model"), at(event, "tools")
        own: dict[str, JSON] = {"tools": deepcopy(self.tools)}
        tools = take_tools(own, "tools")
        return RunBegan(
            position=self.place,
            at=instant(at(self.events[0], "timestamp")) if self.events else None,
            key=key,
            messages=messages,
            model=self.model,
            agent="inspect",
            tools=tools,
            settings=settings(at(event, "config")),
            labels=labels(self.sample, header),
            rest=join_rests(rest(self.sample), rest(own), self.messages.take_rest()),
        )

    def items(self) -> Iterator[Item]:
        """Yield the events in order, then scores, unused attachments, and unread pool messages."""
        if self._has_conversation():
            yield from self._read_events()
            yield from self._read_remaining_messages()
        else:
            yield from self._read_other_events()
            yield from self._read_final_messages()
        yield from self._remark_on("scores", self.scores)
        yield from self._remark_on("attachments", {**self.attachments.list_unused()})
        # The other pools: raw requests as sent to the provider.
        yield from self._remark_on(
            "events_data", {key: value for key, value in table(self.data).items() if value}
        )
        yield from self._remark_on("events_data.messages", self.messages.list_unread())

    def _remark_on(self, name: str, value: JSON) -> Iterator[Item]:
        if value:
            what = "score" if name == "scores" else "unmapped"
            yield Place(f"{self.place}.{name}").remark(what, value)

    def _first(self) -> tuple[tuple[Message, ...], JSON]:
        self._enter_all()
        for event in self.events:
            if text(event, "event") == "model" and not self._find_owner(event):
                prompt = self.messages.of(event)
                if prompt is not None:
                    return prompt, event
        return tuple(map(self.messages.read, self._list_leading())), None

    def _has_conversation(self) -> bool:
        """Return whether the events have the conversation, not only requests of scorers and tools."""
        self._enter_all()
        return any(
            text(event, "event") == "model" and not self._find_span_owner(text(event, "span_id"))
            for event in self.events
        )

    def _enter_all(self) -> None:
        for event in self.events:
            if text(event, "event") == "span_begin":
                self.spans[text(event, "id")] = (text(event, "type"), text(event, "parent_id"))

    def _list_leading(self) -> Sequence[JSON]:
        answers = (n for n, row in enumerate(self.final) if text(row, "role") in ("assistant", "tool"))
        return self.final[: next(answers, len(self.final))]

    def _find_owner(self, event: JSON) -> str:
        """Return `scorer` or `subagent` for an event that is not the agents' own, else ""."""
        if self.scoring:
            return "scorer"
        return self._find_span_owner(text(event, "span_id"))

    def _find_span_owner(self, span: str) -> str:
        """Return the owner of a span by the innermost enclosing span of a scorer or tool.

        Each span is looked up once, whatever its depth.
        """
        walked: list[str] = []
        owner = ""
        while span in self.spans and span not in self.owners:
            walked.append(span)
            self.owners[span] = ""  # ends a cycle of spans
            kind, span = self.spans[span]
            owner = {"scorer": "scorer", "scorers": "scorer", "tool": "subagent"}.get(kind, "")
            if owner:
                break
        owner = owner or self.owners.get(span, "")
        self.owners.update(dict.fromkeys(walked, owner))
        return owner

    def _read_events(self) -> Iterator[Item]:
        index = 0
        while index < len(self.events):
            event = self.events[index]
            kind = text(event, "event")
            if kind in _BOOKKEEPING:
                first = index
                while index < len(self.events) and text(self.events[index], "event") in _BOOKKEEPING:
                    self._step(self.events[index])
                    index += 1
                yield self._range(first, index)
                continue
            yield from self._event(event, self._where(index), kind)
            index += 1

    def _step(self, event: JSON) -> None:
        """Track the begin and end of scorer steps, which old logs have instead of spans."""
        if text(event, "event") == "step" and text(event, "type") == "scorer":
            self.scoring += 1 if text(event, "action") == "begin" else -1

    def _range(self, first: int, end: int) -> Item:
        where = self._where(first)
        place = where if end == first + 1 else Place(f"{self.place}.events[{first}:{end}]", where.at)
        return place.remark("span", list(self.events[first:end]))

    def _where(self, index: int) -> Place:
        return Place(f"{self.place}.events[{index}]", instant(at(self.events[index], "timestamp")))

    def _event(self, event: JSON, place: Place, kind: str) -> Iterator[Item]:
        aside = self._find_owner(event) if kind in ("model", "tool") else ""
        if aside:
            apart = count_subagent(event) if aside == "subagent" else UNCOUNTED
            yield place.remark(aside, event)
            yield from diagnose_apart(place, aside, apart)
        elif kind == "model":
            yield from self._model(event, place)
        elif kind == "tool":
            apart = count_nested(event)
            yield self._tool(event, place)
            yield from diagnose_apart(place, "subagent", apart)
        elif kind == "sample_limit":
            yield place.remark(add_prefix("limit", text(event, "type") or "unknown"), event)
        elif kind == "interrupt":
            yield place.cancellation(by="operator", rest=json_text(event))
        else:
            called = self.last is None or bool(self.last.calls)
            yield from self._beside(event, place, kind, called=called)

    def _beside(self, event: JSON, place: Place, kind: str, *, called: bool) -> Iterator[Item]:
        """Yield an event without a message.

        `called`: the agent may have called a tool, so an action of the sandbox may belong to that call.
        """
        yield place.remark(known_or(kind, _KINDS), event, known=kind in _KINDS)
        yield from diagnose_apart(place, "subagent", count_nested(event))
        ran = kind == "sandbox" and text(event, "action") == "exec"
        if ran and not called and not self._find_owner(event):
            problem = "a command ran in the sandbox after a response without a recorded call"
            yield place.oddity(CALL_UNREAD, problem)

    def _read_other_events(self) -> Iterator[Item]:
        """Yield events that do not have the conversation, with a warning for calls in no final message."""
        asked = {text(call, "id") for message in self.final for call in rows(message, "tool_calls")}
        called = bool(asked) or not any(text(message, "role") == "assistant" for message in self.final)
        for index, event in enumerate(self.events):
            place, kind = self._where(index), text(event, "event")
            self._step(event)
            yield from self._beside(event, place, kind, called=called)
            if kind == "tool" and not self._find_owner(event) and text(event, "id") not in asked:
                yield place.oddity(CALL_UNREAD, "a tool ran, but no message has its call")
            elif self._find_owner(event) == "subagent":
                yield from diagnose_apart(place, "subagent", count_subagent(event))

    def _model(self, event: JSON, place: Place) -> Iterator[Item]:
        prompt = self.messages.of(event)
        if prompt is not None:
            yield from self._new(prompt, f"{place.position}.input", place.at)
            left = self.messages.take_rest()
            yield Place(f"{place.position}.input", place.at).prompt(prompt, rest=left)
            self.seen.update(map(_key, prompt))
        if number(event, "retries"):
            retries = {"retries": at(event, "retries")}
            yield Place(f"{place.position}.retries", place.at).remark("retry", retries)
        message = at(event, "output", "choices", 0, "message")
        if message is None and at(event, "error") is None:
            yield place.remark("pending", event)
            return
        if prompt is not None:
            if not take_rows(event, "input"):
                take_rows(event, "input_refs")
            take_time(event, "timestamp")
        done = Place(place.position, _take_end(event) or place.at)
        if message is None:
            problem = read_text(self.attachments.put_back(at(event, "error")))
            yield done.failure(problem, rest=rest(event))
            return
        # The offered tools are recorded only when they change.
        take_if(event, "tools", self.tools)
        take_if(event, "model", self.model)
        self.tools = at(event, "tools") or self.tools
        self.last = self.messages.read({**table(message), "role": "assistant"}, kept_elsewhere=True)
        self.seen.add(_key(self.last))
        yield read_response(event, message, self.last, done)
        yield from done.hosted_calls(at(message, "content"))

    def _new(
        self, prompt: tuple[Message, ...], position: str, moment: int | None
    ) -> Iterator[Said | Returned]:
        """Yield the results and messages after the last response in a prompt that no event recorded."""
        if self.last is None:
            return
        place = next((n for n in range(len(prompt) - 1, -1, -1) if _is_same(prompt[n], self.last)), None)
        if place is None:
            return  # the harness changed the prompt, which is recorded itself
        for index, message in enumerate(prompt[place + 1 :], place + 1):
            where = Place(f"{position}[{index}]", moment)
            if message.role is Role.TOOL and message.call not in self.answered:
                self.answered.add(message.call or "")
                # The harness did not run it: it writes an event for each call that it runs.
                error = error_of(at(self.results.get(message.call or ""), "error"))
                yield where.result(message.call, message.text, name=message.name, failed=error)
            elif message.role in (Role.USER, Role.SYSTEM):
                yield where.message(message.text, "harness", role=message.role)

    def _tool(self, event: JSON, place: Place) -> Item:
        call = text(event, "id")
        recorded = self.results.get(text(event, "message_id")) or self.results.get(call)
        if recorded is None and (at(event, "pending") is True or at(event, "failed") is True):
            return place.remark("tool_failed" if at(event, "failed") else "pending", event)
        if recorded is None:
            output = result_text(self.attachments.put_back(event), self.requests, call, "result")
        else:
            output = self.messages.read(recorded).text
            take_if(event, "message_id", at(recorded, "id"))
        self.answered.add(call)
        self.seen.add(_key(Message(role=Role.TOOL, text=output)))
        # Drop the event's own result if the text for the model is all of it.
        result = {"result": self.attachments.put_back(at(event, "result"))}
        if isinstance(event, dict) and take_words(result, "result", beside=THOUGHTS) in ("", output):
            event["result"] = result.get("result", {})
        failed = error_of(self.attachments.put_back(at(event, "error"))) or _find_crash(event)
        where = Place(place.position, _take_end(event) or place.at)
        name, duration = take_text(event, "function"), take_duration(event)
        take_text(event, "id")
        left = join_rests(rest(event), self.messages.take_rest())
        return where.result(call, output, name=name, failed=failed, duration=duration, rest=left)

    def _read_remaining_messages(self) -> Iterator[Item]:
        """Yield final messages without an event: those after the last response, and others as remarks."""
        messages = tuple(map(self.messages.read, self.final))
        for item in self._new(messages, f"{self.place}.messages", None):
            self.seen.add(_key(message_of(item)))
            yield item
        for index, message in enumerate(messages):
            if _key(message) not in self.seen:
                known = text(self.final[index], "role") in {*Role}
                place = Place(f"{self.place}.messages[{index}]")
                yield place.remark("unmapped", self.final[index], known=known)

    def _read_final_messages(self) -> Iterator[Item]:
        """Yield the final messages of a sample whose events do not have the conversation."""
        for index in range(len(self._list_leading()), len(self.final)):
            message = self.attachments.put_back(self.final[index])
            place, error = Place(f"{self.place}.messages[{index}]"), error_of(at(message, "error"))
            if text(message, "role") not in {*Role}:
                yield from place.unknown_calls(message)
            content, read = at(message, "content"), take_message(message, self.requests)
            if read.role is Role.ASSISTANT:
                yield read_response(None, message, read, place)
                yield from place.hosted_calls(content)
            elif read.role is Role.TOOL:
                yield place.result(
                    read.call, read.text, name=read.name, failed=error or False, rest=rest(message)
                )
            else:
                yield place.message(read.text, "harness", role=read.role, rest=rest(message))


def _find_crash(event: JSON) -> bool | None:
    """Return whether a call without an error failed its sample; None if it was still running."""
    if at(event, "failed") is True:
        return True
    return None if at(event, "pending") is True else False


def _is_same(one: Message, other: Message) -> bool:
    """Return whether two messages are equal, including call ids, except for surrounding white space."""
    same = one.role is other.role and one.calls == other.calls
    return same and one.text.strip() == other.text.strip()


def _key(message: Message) -> Message:
    """Return a message without its name, call id and surrounding white space, for comparison."""
    return msgspec.structs.replace(message, text=message.text.strip(), name=None, call=None)


def _take_end(event: JSON) -> int | None:
    """Take the completion time of an event, else its timestamp. Its type follows from the item."""
    take_if(event, "event", "model", "tool")
    return take_time(event, "completed") or take_time(event, "timestamp")
