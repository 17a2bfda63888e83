"""A state as bytes: it comes back as it was, at every event of every run, or nobody takes it for a state."""

import subprocess
import sys
from contextlib import suppress
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refold.reducers import folds
from refold.reducers.events import Event, ModelResponded, RunStarted
from refold.reducers.evolution import evolve
from refold.reducers.folds import UnreadableSnapshot, decode_snapshot, encode_snapshot, fold
from refold.reducers.guards import BUILTIN, Place, Registry
from refold.reducers.guards.duty import FAILED, NOT_INSTALLED
from refold.reducers.guards.protocol import Config
from refold.reducers.state import NEW, RunState, Watch
from refold.testing.strategies.driver import START, Driver, drive
from refold.testing.strategies.logs import runs
from support import golden

ANSWER = ModelResponded(at=START, request=2, stop="end_turn")  # type: ignore[arg-type]


def kept(state: RunState) -> bytes:
    """The bytes of a state that has some."""
    data = encode_snapshot(state)
    assert data is not None
    return data


@pytest.mark.parametrize("name", golden.names())
def test_a_golden_log_goes_on_from_a_snapshot_at_every_event(name: str) -> None:
    """A state decoded at any event of a recorded log is the state there, and leads to the same end."""
    state, taken_up = NEW, NEW
    for event in golden.events(name):
        state, taken_up = evolve(state, event), evolve(decode_snapshot(kept(taken_up)), event)
        assert state == taken_up
    assert kept(state) == kept(taken_up)


@given(run=runs())
def test_a_snapshot_is_the_state(run: Driver) -> None:
    """At every event of any run, under any policy: decoding gives an equal state, and folding goes on from
    it.
    """
    state, taken_up = NEW, NEW
    for event in run.log:
        state, taken_up = evolve(state, event), evolve(decode_snapshot(kept(taken_up)), event)
        assert state == taken_up == decode_snapshot(kept(state))


@given(run=runs())
def test_the_same_log_has_the_same_bytes(run: Driver) -> None:
    """Folding twice gives one text, and so does what was read from it."""
    data = kept(fold(run.log))
    assert data == kept(fold(run.log)) == kept(decode_snapshot(data))


# What the state of one guard of each kind looks like when there is much to remember.
@pytest.mark.parametrize("kind", sorted(BUILTIN))
def test_every_guard_that_comes_with_refold_is_kept(kind: str) -> None:
    """No guard of ours keeps a run from having snapshots, and each remembers what it knew."""
    needed: dict[str, dict[str, Any]] = {
        "loop": {"window": 3},
        "errors": {"rounds": 9},
        "tool_cap": {"tools": ["look", "act", "set"], "max": 99},
        "pivot": {"tool": "act", "to": "look", "failures": 9},
        "keywords": {"words": ["nothing"]},
        "stop_on_tool": {"tools": ["missing"]},
        "arguments": {"matches": "nothing"},
        "permissions": {"rules": [{"effect": "refuse", "tool": "x"}]},
        "repetition": {"repeats": 9},
    }
    policy = {"guards": [{"guard": kind, **needed.get(kind, {})}], "end_of_turn": "continue"}
    run = drive(policy, [7, 35, 60, 115, 165, 1, 11, 61, 111, 161])
    (before,) = run.state.guards
    (after,) = decode_snapshot(kept(run.state)).guards
    assert (before.guard, before.own, type(before.own)) == (after.guard, after.own, type(after.own))


class Watcher(Config, frozen=True, kw_only=True, tag="watcher"):
    """Remembers, of any answer, what it is told to by the test."""

    more: int = 0
    kind: ClassVar[str] = "watcher"
    places: ClassVar[frozenset[Place]] = frozenset()
    observes: ClassVar[frozenset[type[Event]]] = frozenset({ModelResponded})


def remembering(*values: Any) -> type[Watcher]:
    """A guard that starts with the first of these values and knows the last one after an answer."""

    class Remembers(Watcher, frozen=True, kw_only=True, tag="watcher"):
        def start(self) -> Any:
            return values[0]

        def observe(self, own: Any, event: Event) -> Any:
            return values[-1]

    return Remembers


def watched(registry: Registry, **config: Any) -> RunState:
    """The state of a run under one guard, after it saw an answer."""
    opening = drive({"guards": [{"guard": "one_call"}]}, []).log[0]
    assert isinstance(opening, RunStarted)
    guards = ({"guard": "watcher", **config},)
    policy = msgspec.structs.replace(opening.policy, guards=guards)
    state = evolve(NEW, msgspec.structs.replace(opening, policy=policy), registry)
    (watch,) = state.guards
    own = watch.guard.observe(watch.own, ANSWER) if watch.guard is not None else None
    return msgspec.structs.replace(state, guards=(msgspec.structs.replace(watch, own=own),))


class Pair(msgspec.Struct, frozen=True):
    """Something typed."""

    names: tuple[str, ...] = ()
    counts: dict[str, int] = {}


@pytest.mark.parametrize(
    ("values", "writable"),
    [
        pytest.param((0, 3), True, id="a number"),
        pytest.param((0, 2**70), True, id="a large number"),
        pytest.param((Pair(), Pair(("a",), {"b": 1})), True, id="a struct"),
        pytest.param(((), ("a", "b")), True, id="a tuple of texts"),
        pytest.param((frozenset[str](), frozenset({"a", "b"})), True, id="a set"),
        pytest.param(((), (("a", 1),)), False, id="a tuple in an untyped tuple would come back as a list"),
        pytest.param((None, 3), False, id="of another type than at the start"),
        pytest.param((0, float("nan")), False, id="a number that is not equal to itself"),
        pytest.param((b"", object()), False, id="what has no bytes"),
        pytest.param(("", "\ud800"), False, id="half a character"),
    ],
)
def test_what_a_guard_remembers(values: tuple[Any, ...], writable: bool) -> None:
    """What would come back as anything else is not written at all."""
    registry = {"watcher": remembering(*values)}
    state = watched(registry)
    data = encode_snapshot(state)
    assert writable == (data is not None)
    if data is not None:
        assert state == decode_snapshot(data, registry)


class Newer(Watcher, frozen=True, kw_only=True, tag="watcher"):
    """The same guard under a later rule."""

    version: ClassVar[int] = 2


class Wider(Watcher, frozen=True, kw_only=True, tag="watcher"):
    """The same guard with another key in its configuration."""

    width: int = 1


@pytest.mark.parametrize(
    ("written", "read"),
    [
        pytest.param({"watcher": Watcher}, {}, id="gone"),
        pytest.param({}, {"watcher": Watcher}, id="installed since"),
        pytest.param({"watcher": Watcher}, {"watcher": Newer}, id="another version"),
        pytest.param({"watcher": Watcher}, {"watcher": Wider}, id="another configuration"),
        pytest.param({"watcher": remembering(0)}, {"watcher": remembering(())}, id="another memory"),
    ],
)
def test_a_guard_that_is_installed_otherwise(written: Registry, read: Registry) -> None:
    """The log is folded then, for the guard would have seen something else."""
    data = kept(watched(written))
    decode_snapshot(data, written)
    with pytest.raises(UnreadableSnapshot, match=r"watcher|Expected"):
        decode_snapshot(data, read)


@pytest.mark.parametrize("blind", ["content erased or not read", FAILED])
def test_a_blind_guard_stays_blind(blind: str) -> None:
    """What a guard could not see it cannot see after a snapshot either; what it saw before, it still
    knows.
    """
    registry = {"watcher": remembering(0, 3)}
    state = watched(registry)
    watch = msgspec.structs.replace(state.guards[0], blind=blind)
    state = msgspec.structs.replace(state, guards=(watch,))
    assert state == decode_snapshot(kept(state), registry)


def test_a_guard_that_is_not_installed_stays_so() -> None:
    """A run whose guard is missing has snapshots all the same."""
    state = watched({})
    assert (Watch(name="watcher", kind="watcher", blind=NOT_INSTALLED),) == state.guards
    assert state == decode_snapshot(kept(state), {})


SOME = kept(drive({"guards": [{"guard": "stall"}, {"guard": "errors", "rounds": 3}]}, [7, 35, 60, 115]).state)


@given(data=st.binary(max_size=60))
@example(data=b"")
@example(data=b'{"state":{},"guards":[]}x')
@example(data=b'{"state":{"setup":{"policy":{"guards":[{"guard":"stall"}]}}},"guards":[]}')
@example(data=b'{"state":{"window":{"chunks":[[' + b'{"sources":[' * 100_000)
def test_any_bytes_are_a_state_or_refused(data: bytes) -> None:
    """No bytes raise anything but the one error that says to fold the log."""
    with suppress(UnreadableSnapshot):
        assert isinstance(decode_snapshot(data), RunState)


@given(place=st.integers(0, len(SOME) - 1), cut=st.integers(0, 9), put=st.binary(max_size=9))
def test_a_changed_snapshot_is_a_state_or_refused(place: int, cut: int, put: bytes) -> None:
    """A snapshot with a damaged stretch raises nothing but the one error either."""
    with suppress(UnreadableSnapshot):
        decode_snapshot(SOME[:place] + put + SOME[place + cut :])


def test_the_refusal_says_what_to_do() -> None:
    """Whoever reads the error knows that nothing is lost."""
    with pytest.raises(UnreadableSnapshot, match=r"truncated; fold the log instead$"):
        decode_snapshot(SOME[:-1])


def test_the_version_is_that_of_the_state() -> None:
    """Every process of one version says the same version, and another version of refold another."""
    code = "from refold.reducers.folds import snapshot_version; print(snapshot_version('1'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == folds.snapshot_version("1") != folds.snapshot_version("2")
