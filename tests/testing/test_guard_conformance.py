"""`GuardConformance`: the built-in guards and the example pass it; each fault fails its own test."""

import importlib
import itertools
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from refold.reducers import Event, RunState
from refold.reducers.errors import PolicyError
from refold.reducers.events import CallRefused, ModelResponded, ToolReturned, kind_of
from refold.reducers.guards import BUILTIN, Judgement, Place, Refuse, Stop, Warn
from refold.reducers.machine import Trigger
from refold.testing import GuardConformance
from refold.testing.audits import audit_events
from support.scenario import Scenario

PACKAGE = Path(__file__).resolve().parents[1] / "example_guard_package"

ENTRIES: dict[str, list[dict[str, Any]]] = {
    "repetition": [{"repeats": 1}],
    "loop": [{"window": 3}],
    "errors": [{"rounds": 1}],
    "stall": [{"stop": True, "exact_failure": [1, 2], "identical": [2, 3], "stub": 1}],
    "tool_cap": [{"tools": ["look"], "max": 1}],
    "read_only": [{"batches": 1}],
    "pivot": [{"tool": "look", "to": "act", "failures": 1}],
    "keywords": [{"words": ["more"]}],
    "stop_on_tool": [{"tools": ["act"], "when": "now"}],
    "handoff": [{"prefixes": ["act"]}],
    "one_call": [{}],
    "arguments": [
        {"tool": "a*", "matches": "n"},
        {"command": ["zqx"], "when": {"mode": ["plan"], "server": ["*"]}, "path": ["zqx"]},
    ],
    "permissions": [
        {"rules": [{"effect": "refuse", "tool": "a*", "matches": "n"}]},
        {
            "rules": [
                {"effect": "refuse", "tool": "a*", "after": {"tool": "look"}, "when": {"subagent": False}}
            ]
        },
    ],
}
"""Configurations of each built-in guard with which short runs reach its rule."""


def test_every_built_in_guard_is_tested() -> None:
    """The conformance tests run for each guard of the registry."""
    assert set(BUILTIN) == set(ENTRIES)


@pytest.mark.parametrize("kind", sorted(ENTRIES))
class TestBuiltIn(GuardConformance):
    """Each built-in guard."""

    kind = ""

    @pytest.fixture(autouse=True)
    def _chosen(self, kind: str) -> None:
        self.kind = kind

    def guard(self) -> type[Any]:
        return BUILTIN[self.kind]

    def entries(self) -> Sequence[Mapping[str, Any]]:
        return [{"guard": self.kind, **entry} for entry in ENTRIES[self.kind]]


class TestLookFirst(GuardConformance):
    """The guard of the example package."""

    def guard(self) -> type[Any]:
        return _example()

    def entries(self) -> Sequence[Mapping[str, Any]]:
        return [{"guard": "look_first", "looking": ["look"], "acting": ["act"]}]

    def examples(self) -> Iterable[Sequence[Event]]:
        run = Scenario({"guards": self.entries()}, registry=self.installed)
        run.step("act")
        run.step("look")
        run.step("act")
        refusals = run.events(CallRefused)
        assert ["look_first"] == [event.code for event in refusals]
        yield run.log


def _example() -> type[Any]:
    sys.path.insert(0, str(PACKAGE))
    try:
        found: type[Any] = importlib.import_module("refold_look_first").LookFirst
    finally:
        sys.path.remove(str(PACKAGE))
    return found


class Faultless(msgspec.Struct, frozen=True, kw_only=True, tag_field="guard", tag="planted"):
    """A guard without a fault, which warns after three results. The faulty ones differ in one point."""

    name: str = ""

    kind: ClassVar[str] = "planted"
    version: ClassVar[int] = 1
    places: ClassVar[frozenset[Place]] = frozenset({Place.ON_RESULTS, Place.ON_CALLS})
    observes: ClassVar[frozenset[type[Event]]] = frozenset({ModelResponded, ToolReturned})
    reads_content: ClassVar[bool] = False

    def start(self) -> tuple[int, ...]:
        return ()

    def observe(self, own: tuple[int, ...], event: Event) -> tuple[int, ...]:
        return (*own, 1) if isinstance(event, ToolReturned) and len(own) < 3 else own

    def judge(self, own: tuple[int, ...], state: RunState, place: Place) -> Iterable[Judgement]:
        if len(own) == 3 and place is Place.ON_RESULTS:
            yield Warn(code="planted")


class NoVersion(Faultless, frozen=True, tag_field="guard", tag="planted"):
    version: ClassVar[int] = 0


class Raises(Faultless, frozen=True, tag_field="guard", tag="planted"):
    def judge(self, own: tuple[int, ...], state: RunState, place: Place) -> Iterable[Judgement]:
        raise KeyError("batch")


class OutOfOrder(Faultless, frozen=True, tag_field="guard", tag="planted"):
    def observe(self, own: Any, event: Event) -> Any:
        if isinstance(event, ModelResponded):
            return (len(event.calls),)
        return (own[0], 1)


class UnknownText(Faultless, frozen=True, tag_field="guard", tag="planted"):
    def judge(self, own: tuple[int, ...], state: RunState, place: Place) -> Iterable[Judgement]:
        for call in state.batch.calls if state.batch and place is Place.ON_CALLS else ():
            yield Refuse(code="planted", call=call.id, text="refused:unheard_of")


class NoVerdict(Faultless, frozen=True, tag_field="guard", tag="planted"):
    def judge(self, own: tuple[int, ...], state: RunState, place: Place) -> Iterable[Any]:
        return ["stop"] if len(own) == 3 else []


COUNTER = itertools.count()


class Impure(Faultless, frozen=True, tag_field="guard", tag="planted"):
    def observe(self, own: tuple[int, ...], event: Event) -> tuple[int, ...]:
        return (next(COUNTER),)


class Changes(Faultless, frozen=True, tag_field="guard", tag="planted"):
    def start(self) -> Any:
        return []

    def observe(self, own: Any, event: Event) -> Any:
        if len(own) < 3:
            own.append(1)
        return own


class HashOrder(Faultless, frozen=True, tag_field="guard", tag="planted"):
    def observe(self, own: Any, event: Event) -> Any:
        return (*{"look", "act", "set", "book", kind_of(event)},)


class Copies(Faultless, frozen=True, tag_field="guard", tag="planted"):
    def start(self) -> Any:
        return {"calls": 0}

    def observe(self, own: Any, event: Event) -> Any:
        return {"calls": min(3, own["calls"] + isinstance(event, ToolReturned))}

    def judge(self, own: Any, state: RunState, place: Place) -> Iterable[Judgement]:
        return ()


class Opaque(msgspec.Struct, frozen=True):
    """A state whose field is encoded as a list and decoded as anything but a set."""

    names: Any = None


class Unstorable(Copies, frozen=True, tag_field="guard", tag="planted"):
    def start(self) -> Any:
        return Opaque()

    def observe(self, own: Any, event: Event) -> Any:
        return Opaque(frozenset[str]({"a"})) if own == Opaque() else own


class Grows(Copies, frozen=True, tag_field="guard", tag="planted"):
    def start(self) -> Any:
        return ()

    def observe(self, own: Any, event: Event) -> Any:
        return (*own, event.call) if isinstance(event, ToolReturned) else own


class ReadsText(Copies, frozen=True, tag_field="guard", tag="planted"):
    def start(self) -> Any:
        return 0

    def observe(self, own: Any, event: Event) -> Any:
        if isinstance(event, ModelResponded) and event.content is not None:
            return len(event.content.text)
        return own


class Repeats(Faultless, frozen=True, tag_field="guard", tag="planted"):
    reads_content: ClassVar[bool] = True

    def start(self) -> Any:
        return ""

    def observe(self, own: Any, event: Event) -> Any:
        said = event.content.text if isinstance(event, ModelResponded) and event.content else ""
        return said or own

    def judge(self, own: Any, state: RunState, place: Place) -> Iterable[Judgement]:
        if own:
            yield Warn(code="planted", measured={"text": own})


class StopsAtOnce(Faultless, frozen=True, tag_field="guard", tag="planted"):
    def judge(self, own: tuple[int, ...], state: RunState, place: Place) -> Iterable[Judgement]:
        if len(own) == 3:
            yield Stop(code="planted", reason="three results", trigger=Trigger.ANSWERED)


class StopsInAudits(Faultless, frozen=True, tag_field="guard", tag="planted"):
    """It reads more than its arguments. Chance would do, too, but such a failure does not come again."""

    def judge(self, own: tuple[int, ...], state: RunState, place: Place) -> Iterable[Judgement]:
        if any(frame.f_code is audit_events.__code__ for frame, _ in traceback.walk_stack(None)):
            yield Stop(code="planted", reason="in an audit")


FAULTS: list[tuple[type[Any], str, str]] = [
    (NoVersion, "test_declarations", "version: expected 1 or more, got 0"),
    (Raises, "test_it_never_raises", r"event 1 \(run_started\): judge raised KeyError"),
    (OutOfOrder, "test_events_out_of_order_do_not_raise", "observe raised IndexError"),
    (NoVerdict, "test_it_never_raises", r"judge at on_\w+ returned \['stop'\], not verdicts"),
    (UnknownText, "test_its_verdicts_can_be_applied", "with an unknown `text`"),
    (StopsAtOnce, "test_its_verdicts_can_be_applied", "`trigger` that has no move"),
    (Impure, "test_it_is_pure", "two guards differ after equal events"),
    (Changes, "test_it_is_pure", "observe changed its argument `own`"),
    (HashOrder, "test_processes_agree", "differ between processes with other hash seeds"),
    (Copies, "test_unchanged_state_is_the_same_object", "observe returned an equal copy of `own`"),
    (Unstorable, "test_its_state_survives_a_snapshot", r"the type of `start\(\)` does not encode"),
    (Grows, "test_its_state_is_bounded", "keep the latest events only, or counts"),
    (ReadsText, "test_payload_that_is_not_declared_is_not_read", "the guard depends on an erased payload"),
    (Repeats, "test_no_payload_is_recorded", "has text of a payload"),
    (StopsInAudits, "test_its_runs_audit_clean", "the audit found"),
]


def _suite(guard: type[Any]) -> GuardConformance:
    suite = GuardConformance()
    suite.guard = lambda: guard  # type: ignore[method-assign]
    return suite


@pytest.mark.parametrize(
    ("guard", "test", "problem"), FAULTS, ids=lambda each: getattr(each, "__name__", "-")
)
def test_each_fault_is_found(
    guard: type[Any], test: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guard with one fault fails the test of that fault, which names it."""
    monkeypatch.setattr(sys.modules[__name__], "COUNTER", itertools.count())
    with pytest.raises(AssertionError, match=problem):
        getattr(_suite(guard), test)()


TESTS = sorted(name for name in vars(GuardConformance) if name.startswith("test_"))


def test_every_test_has_a_fault() -> None:
    """No test is without a planted guard that fails it, but for the one of the entries below."""
    assert {*TESTS} - {"test_configurations"} == {test for _, test, _ in FAULTS}


@pytest.mark.parametrize("test", TESTS)
def test_the_faultless_guard_passes(test: str) -> None:
    """The guard from which the faulty ones are made passes every test."""
    getattr(_suite(Faultless), test)()


def test_an_entry_that_the_policy_refuses() -> None:
    """An entry with an unknown option fails, and names the option."""
    suite = _suite(BUILTIN["tool_cap"])
    suite.entries = lambda: [{"guard": "tool_cap", "tools": ["look"], "most": 1}]  # type: ignore[method-assign]
    with pytest.raises(PolicyError, match=r"guards\[0\].most"):
        suite.test_configurations()


def test_a_guard_in_a_function() -> None:
    """A class that another process cannot import is refused with what to do."""

    class Local(Faultless, frozen=True, tag_field="guard", tag="planted"):
        pass

    with pytest.raises(AssertionError, match="move it to the top of its module"):
        _suite(Local).test_processes_agree()


def test_a_suite_without_a_guard() -> None:
    """A subclass that forgets `guard` is told what to define."""
    with pytest.raises(NotImplementedError, match=r"GuardConformance\.guard: return the class of your guard"):
        GuardConformance().test_declarations()
