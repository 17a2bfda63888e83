"""OpenHands runs: V0 events as a list, or one run per row with its `history` (`output.jsonl`), and V1 events.

V1 writes one file per event, and a file `base_state.json`; the importer reads them as JSON lines, or as a
list. If V1 events have no usage, that of each response is looked up in the state by its id. Times have no
zone and are read as UTC. A condensation names the events that later prompts omit, and the text that replaces
them.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from refold.importers.content import take_tools
from refold.importers.documents import ANY, Document, decode_beginning, decode_truncated, document
from refold.importers.fields import (
    JSON,
    Times,
    at,
    join_rests,
    json_text,
    number,
    rest,
    rows,
    table,
    take,
    take_rows,
    text,
)
from refold.importers.formats.openhands import v0, v1
from refold.importers.formats.openhands.v0 import events_of, is_resolved, issue_of
from refold.importers.formats.openhands.v1 import EventConversation
from refold.importers.items import Answered, Item, Place, RunBegan, Tokens, Unread
from refold.importers.registry import FormatMatch
from refold.importers.source import BadTranscript, Source, decode_json
from refold.importers.usage import UsageNames, plus
from refold.reducers.messages import Usage

_STATE_TOKENS = UsageNames(
    input=("prompt_tokens",),
    output=("completion_tokens",),
    cache_read=("cache_read_tokens",),
    cache_write=("cache_write_tokens",),
    reasoning=("reasoning_tokens",),
)


def is_state(row: JSON) -> bool:
    """Return whether a row is the content of `base_state.json`, not an event."""
    return {"execution_status", "stats"} <= table(row).keys() and "kind" not in table(row)


class BaseState(msgspec.Struct, frozen=True):
    """Data of `base_state.json`; `usages` by response id. All fields are empty if there is no state."""

    key: str = ""
    model: str = ""
    usages: dict[str, Usage] = {}

    def count(self, item: Item) -> Item:
        """Return the item; a response without usage gets that of the state."""
        if not isinstance(item, Answered) or item.quality or item.response_id not in self.usages:
            return item
        return msgspec.structs.replace(item, usage=self.usages[item.response_id], quality="reported")


def read_state(listed: Sequence[JSON]) -> BaseState:
    """Return the data of the last of these states."""
    if not listed:
        return BaseState()
    state, usages = listed[-1], dict[str, Usage]()
    for metrics in table(state, "stats", "usage_to_metrics").values():
        for used in rows(metrics, "token_usages"):
            response, usage = text(used, "response_id"), _STATE_TOKENS.of(used)
            if response and usage is not None:
                usages[response] = plus(usages[response], usage) if response in usages else usage
    return BaseState(text(state, "id"), text(state, "agent", "llm", "model"), usages)


STATES = {
    "finished": "finished",
    "awaiting_user_input": "finished",
    "idle": "finished",
    "stopped": "cancelled",
    "paused": "cancelled",
    "error": "error",
    "rejected": "error",
    "stuck": "guardrail",
}
"""Ends by the last state of the agent (V0) or execution (V1). In any other state, the run is open."""

_LIMITS = (
    ("maximum iteration", "limit:steps"),
    ("maximum budget", "limit:cost"),
    ("budget", "limit:cost"),
    ("stuck in a loop", "guardrail"),
    ("AgentStuckInLoop", "guardrail"),
)
"""Error texts of V0 for limits, which it does not record otherwise."""

_TOKENS = ("prompt_tokens", "cache_read_tokens", "cache_write_tokens", "completion_tokens")


def v0_used(metrics: JSON) -> Tokens:
    """Return the total tokens of a V0 run from its metrics."""
    sent, read, written, got = (number(metrics, "accumulated_token_usage", key) for key in _TOKENS)
    return sent, read, written, got


def times_of(events: Sequence[JSON]) -> tuple[str, str] | None:
    """Return the first and the last time, without trailing zeros of their fractions."""
    times = Times(at(event, "timestamp") for event in events).edges()
    return times and (_plain(times[0]), _plain(times[1]))


def v0_end(events: Sequence[JSON], error: JSON) -> tuple[str, str]:
    """Return how a V0 run ended, by its error, else its last action, else the agent's last state."""
    if isinstance(error, str) and error:
        limit = next((limit for words, limit in _LIMITS if words in error), "error")
        return limit, f"error: {error[:60]}"
    turns = [event for event in events if text(event, "action") not in v0.NO_TURNS]
    if turns and text(turns[-1], "action") == "finish":
        return "finished", "action finish"
    states = [
        state
        for event in events
        if text(event, "observation") == "agent_state_changed"
        and (state := text(event, "extras", "agent_state"))
    ]
    if states:
        return STATES.get(states[-1], "open"), f"agent_state {states[-1]}"
    last = next((event for event in reversed(events) if not _is_silent(event)), None)
    said = text(last, "action") == "message" and not v0.is_user(last)
    return ("finished", "last action message") if said else ("open", "no finish")


def v1_end(events: Sequence[JSON]) -> tuple[str, str]:
    """Return how a V1 run ended, by the last state of its execution, else its last turn."""
    states = [state for event in events if (state := _execution(event))]
    if states:
        return STATES.get(states[-1], "open"), f"last execution_status={states[-1]}"
    turns = [event for event in events if v1.is_answer(event) or text(event, "kind") in v1.RESULTS]
    last = turns[-1] if turns else None
    if text(last, "kind") == "MessageEvent" or text(last, "tool_name") == "finish":
        return "finished", f"last {text(last, 'kind')}"
    return "open", f"last {text(last, 'kind') or 'event'}"


def _is_silent(event: JSON) -> bool:
    return text(event, "observation") in ("null", "agent_state_changed") or text(
        event, "action"
    ) in v0.NO_TURNS - {""}


def _execution(event: JSON) -> str:
    key, value = text(event, "key"), at(event, "value")
    if is_state(event):
        return text(event, "execution_status")
    if key in ("execution_status", "agent_status"):
        return value if isinstance(value, str) else ""
    return text(value, "execution_status") if key == "full_state" else ""


def v1_used(events: Iterable[JSON]) -> Tokens:
    """Return the total tokens of the last update of `stats`."""
    found: Tokens = (None, None, None, None)
    for event in events:
        value = at(event, "value")
        stats = value if text(event, "key") == "stats" else at(value, "stats") or at(event, "stats")
        if uses := table(stats, "usage_to_metrics") or table(stats, "service_to_metrics"):
            sums = [at(use, "accumulated_token_usage") for use in uses.values()]
            sent, read, written, got = (sum(number(use, key) or 0 for use in sums) for key in _TOKENS)
            found = (sent, read, written, got)
    return found


def _plain(written: str) -> str:
    whole, dot, fraction = written.partition(".")
    kept = fraction.rstrip("0") if fraction.isdecimal() else fraction
    return f"{whole}.{kept}" if dot and kept else whole


_KINDS = frozenset(
    ("ActionEvent", "ObservationEvent", "MessageEvent", "SystemPromptEvent", "ConversationStateUpdateEvent")
)


class OpenHands(msgspec.Struct, frozen=True):
    """The importer for OpenHands V0 and V1."""

    name: str = "openhands"

    def match(self, source: Source) -> FormatMatch | None:
        """Match V0 events with an action or an observation, or events of V1's kinds."""
        found = decode_beginning(source)
        if text(found, "kind").endswith("Event") and {"id", "source"} <= table(found).keys():
            return FormatMatch(90, f"events of OpenHands V1 ({text(found, 'kind')[:40]})")
        if any(text(row, "kind") in _KINDS for row in rows(found)):
            return FormatMatch(90, "a list of OpenHands V1 events")
        row = at(found, 0) if isinstance(found, list) else found
        if any(map(_is_v0, rows(row, "history"))):
            return FormatMatch(95, "rows with a history of actions and observations")
        if is_resolved(row):
            return FormatMatch(90, "rows of resolved issues with their history")
        if "instance_id" in table(row) and "agent_class" in table(row, "metadata"):
            # Their history may be after the searched bytes.
            return FormatMatch(90, "rows with instance_id and metadata.agent_class")
        if any(map(_is_v0, (*rows(found), *rows(found, "trajectory"), found))):
            return FormatMatch(90, "actions and observations of OpenHands V0")
        return None

    def items(self, source: Source) -> Iterator[Item]:
        """Yield the runs of the file."""
        if _by_line(source):
            yield from _lines(source)
            return
        found = document(source, (), ("history",), ("trajectory",), (ANY, "history"))
        yield from _document(found)
        yield from found.cut()


OPENHANDS = OpenHands()


def _is_v0(row: JSON) -> bool:
    keys = table(row).keys()
    return {"action", "args"} <= keys or {"observation", "extras"} <= keys or {"observation", "cause"} <= keys


def _by_line(source: Source) -> bool:
    """Return whether the source is JSON lines: the first line is a complete object."""
    for line in source.lines():
        if line.text.strip():
            try:
                return isinstance(decode_json(line.text), dict)
            except ValueError:
                return False
    return False


def _document(found: Document) -> Iterator[Item]:
    """Yield the runs of one document: a list of events, a list of rows, or one run."""
    doc = found.value
    if any("history" in table(row) for row in rows(doc)):
        yield from _rows(rows(doc))
        return
    name = next((name for name in ("history", "trajectory") if rows(doc, name)), "")
    events = take_rows(doc, name) if name else rows(doc)
    place = f"$.{name}" if name else "$"
    if any(text(event, "kind") in _KINDS for event in events):
        yield from _v1(events, [f"{place}[{index}]" for index in range(len(events))], around=table(doc))
    else:
        yield from _v0(doc, events, place, "trajectory")


def _rows(listed: Sequence[JSON]) -> Iterator[Item]:
    """Yield one run per row."""
    for index, row in enumerate(listed):
        if "history" in table(row):
            yield from _v0(row, take_rows(row, "history"), f"$[{index}].history", f"row-{index + 1}")
        else:
            yield Place(f"$[{index}]").problem("no_run", "no history", row)


def _lines(source: Source) -> Iterator[Item]:
    """Yield one run per row with a history, and one run of all events."""
    events: list[JSON] = []
    places: list[str] = []
    seen: dict[str, JSON] = {}
    unread: list[Unread] = []
    runs = 0
    for line in source.lines():
        place = f"line {line.number}"
        if not line.text.strip():
            continue
        row, problem = _row(line.text)
        if line.left_out or problem:
            problem = problem or f"{line.left_out} bytes at the end of the line were not read"
            unread.append(Place(place).problem("cut", problem))
        if "history" in table(row):
            runs += 1
            yield from _v0(row, take_rows(row, "history"), f"{place} $.history", f"row-{line.number}")
        elif row is not None and text(row, "id") and seen.get(text(row, "id")) == row:
            unread.append(Place(place).problem("repeated", "an earlier event is equal", row))
        elif row is not None:
            if text(row, "id") in seen and text(row, "id"):
                problem = "its id is already used by an earlier event with other content; both are imported"
                unread.append(Place(place).oddity("id_repeated", problem))
            seen[text(row, "id")] = row
            events.append(row)
            places.append(place)
    if any("kind" in table(event) for event in events):
        yield from _v1(events, places, unread)
    elif any(map(_is_v0, events)):
        yield from _v0(None, events, "line", "trajectory", unread)
    elif runs or events:
        yield from unread
        for event, place in zip(events, places, strict=True):
            yield Place(place).problem("no_run", "no history", event)
    else:
        raise BadTranscript(source.name, "", "no readable events or runs of OpenHands")


def _row(line: bytes) -> tuple[JSON, str]:
    """Return a line's value, or the beginning of it, and why it was not read completely."""
    try:
        return decode_json(line), ""
    except ValueError as error:
        found = decode_truncated(line, ("history",))
        if found is not None and "history" in table(found.value):
            return found.value, f"the row {found.problem}"
        return None, f"not JSON: {error}"


def _v1(
    events: Sequence[JSON], places: Sequence[str], unread: Sequence[Unread] = (), around: JSON = None
) -> Iterator[Item]:
    end, times, used = v1_end(events), times_of(events), v1_used(events)
    placed = list(zip(events, places, strict=True))
    states = [(event, place) for event, place in placed if is_state(event)]
    state = read_state([event for event, _ in states])
    events, places = zip(*((event, place) for event, place in placed if not is_state(event)), strict=True)
    system, first = text(events[0], "kind") == "SystemPromptEvent", events[0]
    tools = take_tools(first, "tools") if system else ()
    conversation = EventConversation(found := v1.read(events, places))
    yield RunBegan(
        position=places[0],
        at=found[0].item.at if system else None,
        key=state.key or "conversation",
        messages=conversation.begin() if system else (),
        model=state.model,
        tools=tools,
        agent="openhands",
        cuts=None,
        rest=join_rests(rest(around), found[0].item.rest if system else ""),
    )
    yield from map(state.count, conversation.items(int(system)))
    yield from unread
    yield from (Place(place).remark("state", event) for event, place in states)
    yield Place(states[-1][1] if states else places[-1]).end(end, times, used)


def _v0(
    row: JSON, history: Sequence[JSON], place: str, key: str, unread: Sequence[Unread] = ()
) -> Iterator[Item]:
    metrics, error = take(row, "metrics"), take(row, "error")
    events, places = events_of(history, place)
    first = events[0] if events else None
    system = text(first, "action") == "system"
    end, times = v0_end(events, error), times_of(events)
    tools = take_tools(first, "args", "tools") if system else ()
    conversation = EventConversation(found := v0.read(events, places, metrics))
    yield RunBegan(
        position=f"{place}[0]" if system else place,
        at=found[0].item.at if system else None,
        key=text(row, "instance_id") or issue_of(row) or key,
        messages=conversation.begin() if system else (),
        model=text(row, "metadata", "llm_config", "model"),
        tools=tools,
        agent="openhands",
        cuts=None,
        rest=join_rests(rest(table(row)), found[0].item.rest if system else ""),
    )
    yield from conversation.items(int(system))
    yield from unread
    around = place.removesuffix("history")
    if metrics is not None:
        yield Place(f"{around}metrics").remark("metrics", metrics)
    failed = json_text({"error": error}) if error is not None else ""
    last = Place(f"{around}error" if failed else place)
    yield last.end(end, times, v0_used(metrics), rest=failed)
