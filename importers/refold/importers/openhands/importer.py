"""OpenHands runs: V0 events as a list, or one run a row with its `history` (`output.jsonl`), and V1 events.

V1 writes one file an event, and a file `base_state.json` beside them; here they come as JSON lines, or as a list. Times have no zone and are read as UTC.
A condensation says which events the next prompt goes without, and what is said in their place.
"""

from collections.abc import Iterator, Sequence

import msgspec

from refold.importers.content import take_tools
from refold.importers.documents import ANY, Document, beginning, document, leading
from refold.importers.fields import JSON, at, json_text, rows, table, text
from refold.importers.items import Item, Place, RunBegan, Unread
from refold.importers.leftovers import joined, rest, take, take_rows
from refold.importers.openhands import v0, v1
from refold.importers.openhands.ending import times_of, v0_end, v0_used, v1_end, v1_used
from refold.importers.openhands.events import Conversation
from refold.importers.openhands.resolved import events_of, is_resolved, issue_of
from refold.importers.openhands.state import is_state, read_state
from refold.importers.protocol import Match
from refold.importers.source import BadTranscript, Source, decoded

_KINDS = frozenset(
    ("ActionEvent", "ObservationEvent", "MessageEvent", "SystemPromptEvent", "ConversationStateUpdateEvent")
)


class OpenHands(msgspec.Struct, frozen=True):
    """The importer of OpenHands V0 and V1."""

    name: str = "openhands"

    def match(self, source: Source) -> Match | None:
        """Events with an action or an observation and their arguments, or events of V1's kinds."""
        found = beginning(source)
        if text(found, "kind").endswith("Event") and {"id", "source"} <= table(found).keys():
            return Match(90, f"events of OpenHands V1 ({text(found, 'kind')[:40]})")
        if any(text(row, "kind") in _KINDS for row in rows(found)):
            return Match(90, "a list of OpenHands V1 events")
        row = at(found, 0) if isinstance(found, list) else found
        if any(map(_is_v0, rows(row, "history"))):
            return Match(95, "rows with a history of actions and observations")
        if is_resolved(row):
            return Match(90, "rows of resolved issues with their history")
        if "instance_id" in table(row) and "agent_class" in table(row, "metadata"):
            return Match(90, "rows of instances with the class of their agent")  # their history comes later
        if any(map(_is_v0, (*rows(found), *rows(found, "trajectory"), found))):
            return Match(90, "actions and observations of OpenHands V0")
        return None

    def items(self, source: Source) -> Iterator[Item]:
        """Each run of the file."""
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
    """Whether it is JSON lines: the first line is an object by itself, and no list."""
    for line in source.lines():
        if line.text.strip():
            try:
                return isinstance(decoded(line.text), dict)
            except ValueError:
                return False
    return False


def _document(found: Document) -> Iterator[Item]:
    """One document: a list of events, or one run with what is known of it."""
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
    """A list of rows, each a run."""
    for index, row in enumerate(listed):
        if "history" in table(row):
            yield from _v0(row, take_rows(row, "history"), f"$[{index}].history", f"row-{index + 1}")
        else:
            yield Place(f"$[{index}]").unread("no_run", "no history in it", row)


def _lines(source: Source) -> Iterator[Item]:
    """Rows, each a run; and between them events, which are all of one run."""
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
            problem = problem or f"{line.left_out} bytes of it were left out"
            unread.append(Place(place).unread("cut", problem))
        if "history" in table(row):
            runs += 1
            yield from _v0(row, take_rows(row, "history"), f"{place} $.history", f"row-{line.number}")
        elif row is not None and text(row, "id") and seen.get(text(row, "id")) == row:
            unread.append(Place(place).unread("repeated", "this id came before", row))
        elif row is not None:
            if text(row, "id") in seen and text(row, "id"):
                problem = "an earlier event has its id and says something else: both are read"
                unread.append(Place(place).odd("id_repeated", problem))
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
            yield Place(place).unread("no_run", "no history in it", event)
    else:
        raise BadTranscript(source.name, "", "not one event or run of OpenHands could be read")


def _row(line: bytes) -> tuple[JSON, str]:
    """A line's value, or the beginning of it, and what is wrong with it."""
    try:
        return decoded(line), ""
    except ValueError as error:
        found = leading(line, ("history",))
        if found is not None and "history" in table(found.value):
            return found.value, f"the row {found.problem}"
        return None, f"no JSON: {error}"


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
    told = Conversation(found := v1.read(events, places))
    yield RunBegan(
        position=places[0],
        at=found[0].item.at if system else None,
        key=state.key or "conversation",
        messages=told.begin() if system else (),
        model=state.model,
        tools=tools,
        agent="openhands",
        cuts=None,
        rest=joined(rest(around), found[0].item.rest if system else ""),
    )
    yield from map(state.count, told.items(int(system)))
    yield from unread
    yield from (Place(place).remarked("state", event) for event, place in states)
    yield Place(states[-1][1] if states else places[-1]).ended(end, times, used)


def _v0(
    row: JSON, history: Sequence[JSON], place: str, key: str, unread: Sequence[Unread] = ()
) -> Iterator[Item]:
    metrics, error = take(row, "metrics"), take(row, "error")
    events, places = events_of(history, place)
    first = events[0] if events else None
    system = text(first, "action") == "system"
    end, times = v0_end(events, error), times_of(events)
    tools = take_tools(first, "args", "tools") if system else ()
    told = Conversation(found := v0.read(events, places, metrics))
    yield RunBegan(
        position=f"{place}[0]" if system else place,
        at=found[0].item.at if system else None,
        key=text(row, "instance_id") or issue_of(row) or key,
        messages=told.begin() if system else (),
        model=text(row, "metadata", "llm_config", "model"),
        tools=tools,
        agent="openhands",
        cuts=None,
        rest=joined(rest(table(row)), found[0].item.rest if system else ""),
    )
    yield from told.items(int(system))
    yield from unread
    around = place.removesuffix("history")
    if metrics is not None:
        yield Place(f"{around}metrics").remarked("metrics", metrics)
    failed = json_text({"error": error}) if error is not None else ""
    last = Place(f"{around}error" if failed else place)
    yield last.ended(end, times, v0_used(metrics), rest=failed)
