r"""`blame`: find the last events that changed a field of the state.

A field is a field name of queries, or a path into the state as `changes` writes them: `window.ranges`,
`guards.repetition.own`, `spent.tally.a\.b`. An index selects a list entry, too. Values are compared as JSON
text.
"""

from collections import deque
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, cast

import msgspec
import msgspec.inspect as shapes

from refold.reducers.evolution import encode_value
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.state import NEW, RunState
from refold.replay.queries.conditions import BadQuestion, describe_unknown
from refold.replay.queries.rows import FLAGS, NUMBERS, STATE_FIELDS, TEXTS, StateField
from refold.replay.reader import NO_GUARDS, Follower, Step, run_follower
from refold.replay.why import key_of, members, steps
from refold.store.protocol import Store

MOST = 20
"""Maximum number of changes kept: the last ones."""

# Maximum number and length of names in an error: a log may have thousands of them.
_NAMED, _NAME = 40, 60


class Look(msgspec.Struct, frozen=True):
    """Reads a field of a state: `pick` returns its value, `text` formats it as JSON, "" if there is none."""

    pick: Callable[[RunState], object]
    text: Callable[[Any], str]

    def __call__(self, state: RunState) -> str:
        """Return the value as JSON text."""
        return self.text(self.pick(state))


class FieldChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a field by event `seq` at time `at`, with the values before and after as JSON text.

    "" means no value.
    """

    seq: int
    kind: str
    at: int
    turn: int
    before: str
    after: str


class Blame(msgspec.Struct, frozen=True, kw_only=True):
    """Value of a field after event `events`, and the last events that changed it, newest first.

    `count` counts all changes. The first event of a log changes every field that differs from the empty
    state.
    """

    run: str
    field: str
    events: int
    value: str
    count: int
    changes: tuple[FieldChange, ...]


async def blame(
    store: Store,
    run: str,
    field: str,
    upto: int | None = None,
    registry: Registry = BUILTIN,
    most: int = MOST,
) -> Blame:
    """Find the events that changed the field, up to event `upto`.

    Raises `BadQuestion`, `UnknownRun`, `DamagedLog`, `NewerLog`.
    """
    # Only the `guards` fields of the state need guards.
    guards = registry if field.startswith("guards") else NO_GUARDS
    return await run_follower(Blamer(run, field, make_look(field), most), store, run, upto, guards)


class Blamer(Follower[Blame]):
    """Follower that collects the changes of a field."""

    folds = True

    def __init__(self, run: str, field: str, look: Look, most: int = MOST) -> None:
        self._run, self._field, self._look = run, field, look
        self._state, self._picked, self._value = NEW, look.pick(NEW), look(NEW)
        self._count = 0
        self._changes: deque[FieldChange] = deque(maxlen=most)

    def take(self, step: Step) -> None:
        """Take one event. Raises as `Step.after`."""
        stored, self._state = step.stored, step.after
        picked = self._look.pick(self._state)
        # An unchanged value is the same object. Formatting is skipped, as a window may be as long as the run.
        if picked is self._picked:
            return
        self._picked, value = picked, self._look.text(picked)
        if value == self._value:
            return
        change = FieldChange(
            seq=stored.seq,
            kind=stored.kind,
            at=stored.at,
            turn=self._state.spent.steps,
            before=self._value,
            after=value,
        )
        self._count += 1
        self._changes.append(change)
        self._value = value

    def result(self) -> Blame:
        """Return the result. Raises `BadQuestion` for a list entry that never existed."""
        if not self._count and self._field not in STATE_FIELDS:
            _refuse_unknown(self._state, self._field)
        return Blame(
            run=self._run,
            field=self._field,
            events=self._state.seq,
            value=self._value,
            count=self._count,
            changes=tuple(reversed(self._changes)),
        )


def make_look(field: str) -> Look:
    """Return a reader for the field. Raises `BadQuestion` for a name that no state can have."""
    if field in NUMBERS:
        return _number(NUMBERS[field])
    named = TEXTS.get(field) or FLAGS.get(field)
    if named is not None:
        return Look(named.of, _format_json)
    path = steps(field)
    if path[0] not in RunState.__struct_fields__:
        raise BadQuestion(
            field, 1, describe_unknown("field", path[0], {*STATE_FIELDS, *RunState.__struct_fields__})
        )
    _refuse_impossible(field, path)
    return Look(lambda state: _at(state, path), _format_json)


def _number(field: StateField[int]) -> Look:
    digits = field.digits

    def text(value: int) -> str:
        if not digits:
            return str(value)
        whole = f"{abs(value):0{digits + 1}}"
        told = f"{whole[:-digits]}.{whole[-digits:]}".rstrip("0").rstrip(".")
        return f"-{told}" if value < 0 else told

    return Look(field.of, text)


def _format_json(value: object) -> str:
    return "" if value is None else encode_value(value).decode()


def _at(value: object, path: list[str]) -> object:
    for step in path:
        value = _parts(value, step).get(step)
    return value


def _parts(value: object, step: str) -> Mapping[str, object]:
    """Return the parts of a value by path step, at least the given one."""
    match value:
        case msgspec.Struct():
            return {name: getattr(value, name) for name in value.__struct_fields__}
        case Mapping():
            entries = cast("Mapping[str, object]", value)
            return {step: entries[key_of(step)]} if key_of(step) in entries else {}
        case tuple() | list():
            listed = tuple(cast("tuple[object, ...]", value))
            named = members(listed)
            place = int(step) if step.isdecimal() and len(step) < 9 else len(listed)
            return {step: listed[place], **named} if place < len(listed) else named
        case _:
            return {}


def _refuse_impossible(field: str, path: list[str]) -> None:
    """Check a path against the types of the state. Raises `BadQuestion`."""
    kinds, at = [_state_shape()], 1
    for place, step in enumerate(path):
        parts = [part for kind in kinds for part in _shape(kind, step)]
        if not parts:
            structs = [kind for kind in kinds if isinstance(kind, shapes.StructType)]
            names = {each.name for kind in structs for each in kind.fields}
            nothing = f"{'.'.join(path[:place])} has no parts; a dot within a key is written \\."
            raise BadQuestion(field, at, describe_unknown("field", step, names) if names else nothing)
        kinds, at = _alternatives(parts), at + len(step) + 1


@cache
def _state_shape() -> shapes.Type:
    return shapes.type_info(RunState)  # takes milliseconds, and never changes


def _alternatives(kinds: list[shapes.Type]) -> list[shapes.Type]:
    return [
        each for kind in kinds for each in (kind.types if isinstance(kind, shapes.UnionType) else (kind,))
    ]


def _shape(kind: shapes.Type, step: str) -> list[shapes.Type]:
    """Return the possible types of a part of a value of this type."""
    match kind:
        case shapes.StructType():
            return [each.type for each in kind.fields if each.name == step]
        case shapes.DictType():
            return [kind.value_type]
        case shapes.VarTupleType() | shapes.ListType():
            return [kind.item_type]
        case shapes.TupleType():
            return list(kind.item_types)
        case shapes.AnyType():
            return [kind]
        case _:
            return []


def _refuse_unknown(state: RunState, field: str) -> None:
    """Reject a name that a run never had, if it has similar ones, such as another guard.

    Raises `BadQuestion`.
    """
    value, at = cast("object", state), 1
    for step in steps(field):
        parts = _parts(value, step)
        if step not in parts:
            # Keys of a map appear over time: a key that never did is not an error.
            if parts and not isinstance(value, Mapping):
                names = sorted(name[:_NAME] for name in parts)
                near = get_close_matches(step, names, _NAMED) or names
                raise BadQuestion(
                    field,
                    at,
                    describe_unknown("part", step, (names if len(names) <= _NAMED else near)[:_NAMED]),
                )
            return
        value, at = parts[step], at + len(step) + 1
