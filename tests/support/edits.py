"""Logs edited at random by somebody who can write the store: what they say is another thing, and the chain
holds again.

An edit is one or several changes of what stands in a log, in bodies, contents and headers, and of the order
of its events. The chain is computed anew over it, as that takes no key.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold.reducers import codec
from refold.reducers.effects import CallModel, Effect, Reconcile, RunTool, next_effects
from refold.reducers.errors import RefoldError
from refold.reducers.events import Annotation, Event, Fact
from refold.reducers.evolution import evolve
from refold.reducers.guards import BUILTIN
from refold.reducers.state import NEW, RunState
from refold.reducers.views import arguments_of, summary_view, view
from refold.replay.audit import Auditor
from refold.replay.reader import event_of
from refold.replay.verification import Verifier
from refold.store.chain import START, extend
from refold.store.protocol import Record, Stored
from support.following import looked_at
from support.forging import recorded

RUN = "r1"
SALT = b"salt"
Path = tuple[str | int, ...]


class Edit(Struct, frozen=True):
    """One change: of which part of which kind of event (`body`, `content`, `at`, `kind`, or of the order),
    and where in it.
    """

    kind: str
    part: str
    path: str = ""


class Edited(Struct, frozen=True):
    """A log with edits in it."""

    edits: tuple[Edit, ...]
    records: tuple[Record, ...]

    def stored(self) -> list[Stored]:
        """It as it lies on disk, with its chain; where a fork goes on from is mended with it, unless that was
        edited.
        """
        return chained(self.records, forks=all(edit.path != "parent_hash" for edit in self.edits))


def log_of(events: Sequence[Event]) -> list[Record]:
    """A log as it lies on disk: only what the world said is salted."""
    at, records = 0, list[Record]()
    for event in events:
        at = event.at if isinstance(event, Fact | Annotation) else at
        salted = isinstance(event, Fact | Annotation) and getattr(event, "content", None) is not None
        records.append(recorded(event, at, SALT if salted else b""))
    return records


def chained(records: Sequence[Record], *, forks: bool = True) -> list[Stored]:
    """The records with a chain over them; a fork has a run of its own, and with `forks` the hash that it goes
    on from.
    """
    run, head, made = RUN, START, list[Stored]()
    for each in records:
        record = each
        if record.kind == "run_forked":
            body = json.loads(record.body)
            if forks:
                record = replace(record, body=_encoded(body | {"parent_hash": head.hash.hex()}))
            run = str(body.get("run"))
        made += (stored := extend(run, head, [record]))
        head = stored[0]
    return made


def told(stored: Sequence[Stored]) -> str:
    """What `verify` or `audit` says is wrong with this log; "" if nothing is, and both exit with 0."""
    last = stored[-1].run if stored else RUN
    try:
        found = looked_at(Verifier(last), stored, BUILTIN)
        if not found.whole or found.erased:
            return f"verify: {found.problem.problem if found.problem else 'erased'}"
        judged = looked_at(Auditor(last), stored)
    except RefoldError as error:
        return f"audit: {error}"
    return "" if judged.clean else f"audit: {judged.findings or judged.unreplayable}"


class Going(Struct, frozen=True):
    """What an engine that takes the run up does next: its effects, each with what the world is sent."""

    effects: tuple[tuple[Effect, Any], ...]
    offer: tuple[Any, ...]


def continues(stored: Sequence[Stored]) -> Going:
    """What an engine does next. Raises `RefoldError` where it says that it cannot go on."""
    state, contents = folded(stored)
    offer = state.setup.model, state.setup.settings, state.setup.address, state.setup.tools
    return Going(tuple((effect, _sent(state, effect, contents)) for effect in next_effects(state)), offer)


def folded(stored: Sequence[Stored]) -> tuple[RunState, dict[int, Event]]:
    state, contents = NEW, dict[int, Event]()
    for each in stored:
        contents[each.seq] = event_of(each)
        state = evolve(state, contents[each.seq])
    return state, contents


def _sent(state: RunState, effect: Effect, contents: dict[int, Event]) -> Any:
    match effect:
        case CallModel():
            return summary_view(state, contents) if state.summary is not None else view(state, contents)
        case RunTool(call=call) | Reconcile(call=call):
            return arguments_of(state, call, contents)
        case _:
            return None


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Where something stands in a JSON value."""
    if path:
        yield path
    items: Any = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, inner in items:
        yield from places(inner, (*path, key))


def at(value: Any, path: Path) -> Any:
    """What stands there."""
    for step in path:
        value = value[step]
    return value


def named(path: Path) -> str:
    """A place as it is called, without numbers."""
    return ".".join(step for step in path if isinstance(step, str))


Fellows = Mapping[tuple[str, str, str], Sequence[Any]]
"""What stands in a place of a part of a kind of event, here or there."""


def fellows(logs: Iterable[Sequence[Record]]) -> Fellows:
    """What stands in each place of these logs."""
    found: dict[tuple[str, str, str], list[Any]] = {}
    for record in (record for log in logs for record in log):
        for part in ("body", "content"):
            value = spelt_out(record, part)
            for path in places(value):
                known = found.setdefault((record.kind, part, named(path)), [])
                if len(known) < 40 and at(value, path) not in known:
                    known.append(at(value, path))
    return found


class Editor:
    """Edits logs at random; what it puts somewhere is near what stood there, or stands in such a place of
    another log.
    """

    def __init__(self, random: Random, fellows: Fellows) -> None:
        self.random, self._fellows = random, fellows

    def edited(self, log: Sequence[Record], most: int = 3) -> Edited:
        """The log with up to so many edits."""
        records, edits = list(log), list[Edit]()
        for _ in range(self.random.choice([1, 1, 1, *range(2, most + 1)])):
            way = self.random.choice([self._value] * 12 + [self._header] + [self._order])
            edit = way(records)
            if edit is not None:
                edits.append(edit)
        return Edited(tuple(edits), tuple(records))

    def _value(self, records: list[Record]) -> Edit | None:
        place = self.random.randrange(len(records))
        record = records[place]
        part = self.random.choice(["body", "content"] if record.content is not None else ["body"])
        return self.put(records, place, part)

    def put(self, records: list[Record], place: int, part: str) -> Edit | None:
        """Another value somewhere in this part of a record."""
        record = records[place]
        try:
            value = spelt_out(record, part)
        except RefoldError:
            return None  # an edit before it left nothing that can be read
        path = self.random.choice([each for each in places(value) if each[-1] not in ("kind", "annotation")])
        within, last = at(value, path[:-1]), path[-1]
        within[last] = self._other(within[last], self._fellows[record.kind, part, named(path)])
        changed = replace(record, **{part: _encoded(value)})
        records[place] = canonical(changed)
        return Edit(record.kind, part, named(path))

    def _other(self, value: Any, fellows: Sequence[Any]) -> Any:
        # No list of other calls, or messages: they may differ in nothing but what only they say.
        whole = isinstance(value, list) and any(isinstance(each, dict) for each in value)
        choices: list[Any] = [] if whole else [each for each in fellows if each != value]
        match value:
            case bool():
                choices = [not value]
            case int():
                choices += [value + 1, max(0, value - 1), value * 2 + 1, 0]
            case str():
                choices += [f"{value}x", value[:-1], value[::-1], ""]
            case list():
                choices += [value[:-1], value[::-1], [*value, *value[:1]]]
            case dict():
                choices += [{}, dict(list(value.items())[1:])]
            case _:
                choices += ["x", 1]
        choices = [each for each in choices if each != value]
        return self.random.choice(choices) if choices else None

    def _header(self, records: list[Record]) -> Edit:
        place = self.random.randrange(len(records))
        record = records[place]
        if self.random.random() < 0.5:
            records[place] = replace(record, at=record.at + self.random.choice([-1, 1, 10**9]))
            return Edit(record.kind, "at")
        records[place] = replace(record, kind=self.random.choice(records).kind)
        return Edit(record.kind, "kind")

    def _order(self, records: list[Record]) -> Edit | None:
        place = self.random.randrange(len(records))
        kind = records[place].kind
        way = self.random.choice(["drop", "double", "swap", "move"])
        if place == len(records) - 1 and way in ("drop", "swap"):
            return None  # no chain shows that an end is missing
        if way == "drop":
            del records[place]
        elif way == "double":
            records.insert(place, records[place])
        elif way == "swap":
            records[place : place + 2] = records[place : place + 2][::-1]
        else:
            records.insert(self.random.randrange(len(records)), records.pop(place))
        return Edit(kind, way)


def spelt_out(record: Record, part: str) -> Any:
    """The JSON value of a body, or of a content, with the fields that are left out where they say nothing."""
    data = record.body if part == "body" else record.content
    if data is None:
        return None
    event = codec.decode(record.kind, record.body, record.content)
    value = event if part == "body" else getattr(event, "content", None)
    whole = _whole(value)
    if part == "body":
        whole.pop("content", None)
    return json.loads(msgspec.json.encode(whole))


def canonical(record: Record) -> Record:
    """The record as refold would have written it, if it can be read; else as it is."""
    try:
        return recorded(codec.decode(record.kind, record.body, record.content), record.at, record.salt)
    except RefoldError:
        return record


def _whole(value: Any) -> Any:
    if isinstance(value, Struct):
        config = value.__struct_config__
        tag = {} if config.tag is None else {str(config.tag_field): config.tag}
        return tag | {name: _whole(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, list | tuple):
        return [_whole(each) for each in value]
    if isinstance(value, dict):
        return {key: _whole(inner) for key, inner in value.items()}
    return value


def _encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
