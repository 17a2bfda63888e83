"""One sample of an Inspect log as a run: its events told in order, each prompt right before the answer that it got.

The conversation is that of the agents: what a scorer asked a model, and what an agent did inside another's tool call, is
kept as a remark. Without events the sample's final messages are told instead.
"""

from collections.abc import Iterator, Sequence

from refold.reducers.messages import Message
from refold.reducers.vocabulary import Role
from refold.replay.importers.content import manifests, told
from refold.replay.importers.fields import (
    JSON,
    at,
    instant,
    json_text,
    left,
    nanoseconds,
    number,
    rows,
    table,
    text,
    without,
)
from refold.replay.importers.inspect_logs.answers import TOLD, answered, labels, settings
from refold.replay.importers.inspect_logs.messages import (
    Attachments,
    Prompts,
    beside,
    error_of,
    ours,
    result_text,
    results_of,
    said,
)
from refold.replay.importers.items import Item, Place, Returned, RunBegan, Said
from refold.replay.importers.remarks import known_or, prefixed

_BOOKKEEPING = ("span_begin", "span_end", "step")
_KINDS = frozenset({
    "anchor", "approval", "branch", "checkpoint", "compaction", "error", "info", "input", "interrupt",
    "logger", "model", "sample_init", "sample_limit", "sandbox", "score", "score_edit", "span_begin",
    "span_end", "state", "step", "store", "subtask", "tool"
})  # fmt: skip


class Sample:
    """The items of one sample. `place` is where it stands, `samples/1_epoch_1.json $` or `$.samples[0]`."""

    def __init__(self, sample: JSON, place: str) -> None:
        self.sample, self.place = sample, place
        self.events = rows(sample, "events")
        self.attachments = Attachments(table(sample, "attachments"))
        self.prompts = Prompts(sample, self.attachments)
        self.results = results_of(sample, self.prompts.pool)
        self.last: Message | None = None
        self.answered: set[str] = set()
        self.heard: set[tuple[Role, str]] = set()
        self.spans: dict[str, tuple[str, str]] = {}
        self.owners: dict[str, str] = {}
        self.scoring = 0

    def began(self, key: str, header: JSON) -> RunBegan:
        """The run's beginning: the first prompt of the agent, else the messages before the first answer."""
        messages, event = self._first()
        return RunBegan(
            position=self.place,
            at=instant(at(self.events[0], "timestamp")) if self.events else None,
            key=key,
            messages=messages,
            model=text(event, "model") or text(header, "eval", "model"),
            agent="inspect",
            tools=manifests(at(event, "tools")),
            settings=settings(at(event, "config")),
            labels=labels(self.sample, header),
            rest=without(
                self.sample, "events", "messages", "attachments", "events_data", "message_pool", "scores"
            ),
        )

    def items(self) -> Iterator[Item]:
        """What happened, in order; then what was scored, and what nothing referred to."""
        if self._talks():
            yield from self._told()
            yield from self._left()
        else:
            for index, event in enumerate(self.events):
                yield self._where(index).remarked(known_or(text(event, "event"), _KINDS), event)
            yield from self._final()
        yield from self._kept("scores", at(self.sample, "scores"))
        yield from self._kept("attachments", self.attachments.unused())
        yield from self._kept("events_data", _without_messages(at(self.sample, "events_data")))

    def _kept(self, name: str, value: JSON) -> Iterator[Item]:
        if value:
            what = "score" if name == "scores" else "unmapped"
            yield Place(f"{self.place}.{name}").remarked(what, value)

    def _first(self) -> tuple[tuple[Message, ...], JSON]:
        self._enter_all()
        for event in self.events:
            if text(event, "event") == "model" and not self._aside(event):
                prompt = self.prompts.of(event)
                if prompt is not None:
                    return prompt, event
        messages = [ours(self.attachments.put_back(message)) for message in self._leading()]
        return tuple(messages), None

    def _talks(self) -> bool:
        """Whether the events have the conversation: not where only a scorer, or a tool, asked a model."""
        self._enter_all()
        return any(
            text(event, "event") == "model" and not self._owner(text(event, "span_id"))
            for event in self.events
        )

    def _enter_all(self) -> None:
        for event in self.events:
            if text(event, "event") == "span_begin":
                self.spans[text(event, "id")] = (text(event, "type"), text(event, "parent_id"))

    def _leading(self) -> Sequence[JSON]:
        messages = rows(self.sample, "messages")
        answers = (n for n, row in enumerate(messages) if text(row, "role") in ("assistant", "tool"))
        return messages[: next(answers, len(messages))]

    def _aside(self, event: JSON) -> str:
        """Whose event it is, if not the agents': a scorer's, or a sub-agent's inside a tool."""
        if self.scoring:
            return "scorer"
        return self._owner(text(event, "span_id"))

    def _owner(self, span: str) -> str:
        """Whose a span is, by the first span around it that says so. Each is asked once, however deep it lies."""
        walked: list[str] = []
        owner = ""
        while span in self.spans and span not in self.owners:
            walked.append(span)
            self.owners[span] = ""  # spans that contain each other belong to nobody else
            kind, span = self.spans[span]
            owner = {"scorer": "scorer", "scorers": "scorer", "tool": "subagent"}.get(kind, "")
            if owner:
                break
        owner = owner or self.owners.get(span, "")
        self.owners.update(dict.fromkeys(walked, owner))
        return owner

    def _told(self) -> Iterator[Item]:
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
        """Old logs have steps instead of spans: a scorer's begins and ends."""
        if text(event, "event") == "step" and text(event, "type") == "scorer":
            self.scoring += 1 if text(event, "action") == "begin" else -1

    def _range(self, first: int, end: int) -> Item:
        where = self._where(first)
        place = where if end == first + 1 else Place(f"{self.place}.events[{first}:{end}]", where.at)
        return place.remarked("span", list(self.events[first:end]))

    def _where(self, index: int) -> Place:
        return Place(f"{self.place}.events[{index}]", instant(at(self.events[index], "timestamp")))

    def _event(self, event: JSON, place: Place, kind: str) -> Iterator[Item]:
        aside = self._aside(event) if kind in ("model", "tool") else ""
        if aside:
            yield place.remarked(aside, event)
        elif kind == "model":
            yield from self._model(event, place)
        elif kind == "tool":
            yield self._tool(event, place)
        elif kind == "sample_limit":
            yield place.remarked(prefixed("limit", text(event, "type") or "unknown"), event)
        elif kind == "interrupt":
            yield place.cancelled(by="operator", rest=json_text(event))
        else:
            yield place.remarked(known_or(kind, _KINDS), event)

    def _model(self, event: JSON, place: Place) -> Iterator[Item]:
        prompt = self.prompts.of(event)
        if prompt is not None:
            yield from self._new(prompt, f"{place.position}.input", place.at)
            yield Place(f"{place.position}.input", place.at).prompted(prompt)
            self.heard.update((message.role, message.text) for message in prompt)
        if number(event, "retries"):
            retries = {"retries": at(event, "retries")}
            yield Place(f"{place.position}.retries", place.at).remarked("retry", retries)
        message = self.attachments.put_back(at(event, "output", "choices", 0, "message"))
        done = Place(place.position, instant(at(event, "completed")) or place.at)
        if message is None and at(event, "error") is None:
            yield place.remarked("pending", event)
        elif message is None:
            problem = said(self.attachments.put_back(at(event, "error")))
            yield done.failed(problem, rest=without(event, "input", "input_refs", *TOLD))
        else:
            self.last = ours({**table(message), "role": "assistant"})
            rest = without(event, "input", "input_refs", "tools", "model", *TOLD)
            yield answered(event, message, done, rest)
            yield from done.hosted(at(message, "content"))

    def _new(
        self, prompt: tuple[Message, ...], position: str, moment: int | None
    ) -> Iterator[Said | Returned]:
        """What stands in a prompt behind the last answer, and no event told: results, and what was said."""
        if self.last is None:
            return
        place = next((n for n in range(len(prompt) - 1, -1, -1) if _same(prompt[n], self.last)), None)
        if place is None:
            return  # the harness showed something else: the prompt says what
        for index, message in enumerate(prompt[place + 1 :], place + 1):
            where = Place(f"{position}[{index}]", moment)
            if message.role is Role.TOOL and message.call not in self.answered:
                self.answered.add(message.call or "")
                yield where.returned(message.call, message.text, name=message.name)
            elif message.role in (Role.USER, Role.SYSTEM):
                yield where.said(message.text, "harness", role=message.role)

    def _tool(self, event: JSON, place: Place) -> Item:
        call = text(event, "id")
        shown = self.results.get(text(event, "message_id")) or self.results.get(call)
        if shown is None and (at(event, "pending") is True or at(event, "failed") is True):
            return place.remarked("tool_failed" if at(event, "failed") else "pending", event)
        message = self.attachments.put_back(event if shown is None else shown)
        output = result_text(message, "result" if shown is None else "content")
        self.answered.add(call)
        self.heard.add((Role.TOOL, output))
        result = self.attachments.put_back(at(event, "result"))
        # The event's own result is told if what the model was shown is all of it.
        same = ("result",) if told(result) and said(result) in ("", output) else ()
        return Place(place.position, instant(at(event, "completed")) or place.at).returned(
            call,
            output,
            name=text(event, "function"),
            error=error_of(self.attachments.put_back(at(event, "error"))),
            duration=nanoseconds(at(event, "working_time")),
            rest=without(event, "id", "function", *same, *TOLD),
        )

    def _left(self) -> Iterator[Item]:
        """Final messages that no event told: what was said behind the last answer, and any other as a remark."""
        messages = tuple(ours(self.attachments.put_back(row)) for row in rows(self.sample, "messages"))
        for item in self._new(messages, f"{self.place}.messages", None):
            self.heard.add((Role.USER, item.text) if isinstance(item, Said) else (Role.TOOL, item.output))
            yield item
        if self.last is not None:
            self.heard.add((Role.ASSISTANT, self.last.text))
        for index, message in enumerate(messages):
            if (message.role, message.text) not in self.heard:
                row = rows(self.sample, "messages")[index]
                yield Place(f"{self.place}.messages[{index}]").remarked("unmapped", row)

    def _final(self) -> Iterator[Item]:
        """The final messages, where no event tells how they came about."""
        messages = rows(self.sample, "messages")
        for index in range(len(self._leading()), len(messages)):
            message, place = (
                self.attachments.put_back(messages[index]),
                Place(f"{self.place}.messages[{index}]"),
            )
            read, rest = ours(message), without(message, *beside(message))
            if read.role is Role.ASSISTANT:
                yield answered(None, message, place, rest)
                yield from place.hosted(at(message, "content"))
            elif read.role is Role.TOOL:
                error = error_of(at(message, "error"))
                yield place.returned(read.call, read.text, name=read.name, error=error, rest=rest)
            else:
                yield place.said(read.text, "harness", role=read.role, rest=rest)


def _same(one: Message, other: Message) -> bool:
    """Whether two messages say the same, ids of calls included."""
    return one.role is other.role and one.text == other.text and one.calls == other.calls


def _without_messages(events_data: JSON) -> JSON:
    """The pool's other parts: the raw requests, as the provider was sent them."""
    return {key: value for key, value in left(events_data, "messages").items() if value}
