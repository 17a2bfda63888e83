"""What holds of every guard, of its configuration, its memory and its words."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers import codec
from refold.reducers.events import KINDS, Event
from refold.reducers.evolution import encode_value
from refold.reducers.folds import fold
from refold.reducers.guards import BUILTIN, Stop
from refold.reducers.guards.endings import PrematureEnd
from refold.reducers.parser import parse
from refold.reducers.state import NEW
from refold.reducers.text import TEXTS
from refold.reducers.vocabulary import ToolError
from refold.testing.strategies.events import events
from support.scenario import Scenario
from support.watching import Watching

LOOK, ACT = ("look", "{}"), ("act", "{}")


CONFIGURED: dict[str, dict[str, Any]] = {
    "repetition": {"repeats": 1},
    "loop": {"window": 3},
    "errors": {"rounds": 1},
    "stall": {"stop": True, "exact_failure": [1, 2], "identical": [2, 3], "stub": 1},
    "tool_cap": {"tools": ["look"], "max": 1},
    "read_only": {"batches": 1},
    "pivot": {"tool": "look", "to": "act", "failures": 1},
    "keywords": {"words": ["zqx"]},
    "stop_on_tool": {"tools": ["act"], "when": "now"},
    "handoff": {"prefixes": ["act"]},
    "one_call": {},
    "arguments": {"tool": "a*", "matches": "zqx"},
    "permissions": {"rules": [{"effect": "refuse", "tool": "a*", "matches": "zqx"}]},
}
VARIANTS: list[dict[str, Any]] = [
    {"guard": "arguments", "command": ["zqx"], "when": {"mode": ["plan"], "server": ["*"]}, "path": ["zqx"]},
    {
        "guard": "permissions",
        "rules": [{"effect": "refuse", "tool": "a*", "after": {"tool": "look"}, "when": {"subagent": False}}],
    },
]
WITHOUT_ENTRY = PrematureEnd(marks=("zqx",))
"""A guard that has a key of its own, not an entry in `guards`."""

GUARDS: list[Any] = [
    *(msgspec.convert({"guard": kind, **config}, BUILTIN[kind]) for kind, config in CONFIGURED.items()),
    WITHOUT_ENTRY,
    *(msgspec.convert(config, BUILTIN[config["guard"]]) for config in VARIANTS),
]
each_guard = pytest.mark.parametrize("guard", GUARDS, ids=[guard.kind for guard in GUARDS])


def test_every_guard_is_looked_at() -> None:
    """The laws below are asked of each guard that the registry has."""
    assert set(BUILTIN) == set(CONFIGURED)


@given(seen=st.lists(st.sampled_from(sorted(KINDS)).flatmap(events), max_size=6))
def test_a_guard_is_total(seen: list[Event]) -> None:
    """Whatever events it is shown, even out of place, it folds them and says what it says without an error.

    `GuardConformance` has this law for the guards of the registry.
    """
    own = WITHOUT_ENTRY.start()
    for event in seen:
        if type(event) in WITHOUT_ENTRY.observes:
            own = WITHOUT_ENTRY.observe(own, event)
            assert encode_value(own)
    for place in WITHOUT_ENTRY.places:
        assert isinstance(list(WITHOUT_ENTRY.judge(own, NEW, place)), list)


@each_guard
@given(rounds=st.lists(st.lists(st.integers(0, 5), max_size=4), max_size=8), seed=st.randoms())
def test_the_order_of_arrival_does_not_matter(guard: Any, rounds: list[list[int]], seed: Any) -> None:
    """After each batch it remembers and says the same, in whatever order the results came."""
    ordered, shuffled = Watching(guard), Watching(guard)
    for ends in rounds:
        said = ["zqx" if 1 in ends else "", *[("look", "{}") if end % 2 else ("act", "{}") for end in ends]]
        ordered.answer(*said)  # type: ignore[arg-type]
        results = list(zip(shuffled.answer(*said), ends, strict=True))  # type: ignore[arg-type]
        for watching in (ordered, shuffled):
            for call, end in results:
                if end == 5:
                    watching.refuse(call)
                elif end < 5:
                    error = ToolError.RAISED if end > 2 else None
                    watching.result(call, "not found zqx" if end == 3 else "x" * 9, error)
            seed.shuffle(results)
        assert ordered.own == shuffled.own
        for place in guard.places:
            assert ordered.says(place) == shuffled.says(place)


@each_guard
def test_no_words_of_a_model_or_tool_are_said(guard: Any) -> None:
    """Nothing that a model or a tool said stands in a judgement: only numbers and names."""
    watching = Watching(guard)
    for _ in range(3):
        watching.round(
            ("look", '{"q":"zqx"}'),
            ("act", "zqx"),
            output="zqx not found",
            error=ToolError.RAISED,
            text="zqx",
        )
        watching.round(("look", '{"q":"zqx"}'), output="zqx", text="zqx")
        for place in guard.places:
            assert b"zqx" not in encode_value([msgspec.to_builtins(said) for said in watching.says(place)])


def test_what_it_remembers_is_bounded() -> None:
    """A run twice as long makes it remember no more, however many calls and tools there are.

    `GuardConformance` has this law for the guards of the registry.
    """
    sizes = []
    watching = Watching(WITHOUT_ENTRY)
    for turn in range(400):
        calls = [(f"tool{turn % 100 + 100}", f'{{"n":{turn + 1000}}}') for _ in range(3)]
        watching.round(*calls, error=ToolError.RAISED if turn % 2 else None, output=f"{turn + 1000}")
        if turn in (199, 399):
            sizes.append(len(encode_value(watching.own)))
    assert sizes[1] <= sizes[0] + 20  # the digits of a count, and of a call's id


SHELL_MARKS = [
    "command not found",
    "not found",
    "No such file or directory",
    "ImportError",
    "ModuleNotFoundError",
    "SyntaxError",
]
FAILURE_MARKS = ["FAIL:", "Error", "error:", "Traceback", "AssertionError", "FAILED", "Exit code:"]
STALL = {
    "stop": False,
    "pollers": [],
    "progress_tools": [],
    "tolerant_tools": [],
    "exact_failure": [2, 5],
    "same_tool": [3, 8],
    "no_progress": [2, 5],
    "identical": [3, 5],
    "cycle": 3,
    "stub": 512,
    "scope": "turn",
}


@pytest.mark.parametrize(
    ("kind", "given", "left_out"),
    [
        ("repetition", {}, {"repeats": 3, "clip": 200, "scope": "lineage"}),
        ("loop", {"window": 2}, {}),
        ("errors", {"rounds": 1}, {}),
        ("stall", {}, STALL),
        ("tool_cap", {"tools": ["a"], "max": None}, {"scope": "turn"}),
        ("read_only", {}, {"batches": 8, "tools": [], "scope": "lineage"}),
        (
            "pivot",
            {},
            {"tool": "bash", "to": "acp_terminal", "failures": 2, "marks": SHELL_MARKS, "scope": "lineage"},
        ),
        ("keywords", {"words": ["a"]}, {"case": "ignore", "when": "response"}),
        ("stop_on_tool", {"tools": ["a"]}, {"when": "after_tools"}),
        ("handoff", {}, {"prefixes": ["transfer_to_"]}),
        ("one_call", {}, {}),
        ("premature_end", {}, {"max": 2, "look_back": 10, "marks": FAILURE_MARKS, "scope": "run"}),
    ],
)
def test_what_is_left_out(kind: str, given: dict[str, Any], left_out: dict[str, Any]) -> None:
    """What a configuration leaves out has the documented value."""
    guard = msgspec.convert({"guard": kind, **given}, {**BUILTIN, "premature_end": PrematureEnd}[kind])
    complete = msgspec.json.decode(msgspec.json.encode(guard))
    assert {"guard": kind, "name": "", **given, **left_out} == complete


@pytest.mark.parametrize(
    ("kind", "least"),
    [
        ("repetition", {"repeats": 0, "clip": 1}),
        ("loop", {"window": 0}),
        ("errors", {"rounds": 1}),
        ("stall", {"cycle": 2, "stub": 1}),
        *[("stall", {part: [1, 1]}) for part in ("exact_failure", "same_tool", "no_progress", "identical")],
        ("tool_cap", {"tools": ["a"], "max": 0}),
        ("read_only", {"batches": 1}),
        ("pivot", {"failures": 1, "marks": ["a"]}),
        ("keywords", {"words": ["a"]}),
        ("stop_on_tool", {"tools": ["a"]}),
        ("handoff", {"prefixes": ["a"]}),
        ("premature_end", {"max": 0, "look_back": 1, "marks": ["a"]}),
    ],
)
def test_the_least_that_can_work(kind: str, least: dict[str, Any]) -> None:
    """The smallest number that can work is taken, one less is refused."""
    guard = {**BUILTIN, "premature_end": PrematureEnd}[kind]
    assert msgspec.convert({"guard": kind, **least}, guard)
    for key, value in least.items():
        for less in [value - 1] if isinstance(value, int) else [[0, 1], [0, 0]] if value == [1, 1] else []:
            with pytest.raises(msgspec.ValidationError):
                msgspec.convert({"guard": kind, **least, key: less}, guard)


def test_which_guards_read_what_was_said() -> None:
    """Only those that need it ask for content: the others go on where it was erased."""
    assert {"repetition", "stall", "pivot", "keywords", "arguments", "permissions", "premature_end"} == {
        guard.kind for guard in GUARDS if guard.reads_content
    }


@each_guard
def test_nothing_is_said_before_anything_was_seen(guard: Any) -> None:
    """A guard that remembers nothing says nothing, whatever is asked; but one that says which calls may run
    lets none by.
    """
    watching = Watching(guard)
    watching.answer("", LOOK, ACT)
    watching.own = guard.start()
    closed = getattr(guard, "guards_calls", False)
    assert guard.fresh is None or closed == any(map(watching.speaks, guard.places))


@each_guard
def test_it_is_a_value(guard: Any) -> None:
    """A configuration and what a guard remembers cannot be changed, and a field is only given by its name."""
    assert type(guard).__struct_config__.frozen
    assert getattr(type(guard.start()), "__struct_config__", type(guard).__struct_config__).frozen
    with pytest.raises(TypeError):
        type(guard)("a name")


def test_versions() -> None:
    """Each guard has the version that logs were recorded with: a new rule is a new version, on purpose."""
    assert {1} == {guard.version for guard in GUARDS}


def test_texts() -> None:
    """Every text that a guard brings is the harness's, or a refusal with its class; none stands elsewhere
    too.
    """
    brought: dict[str, str] = {}
    for guard in {type(guard): guard for guard in GUARDS}.values():
        for key, text in getattr(guard, "texts", {}).items():
            assert key not in brought
            brought[key] = text
            start = "skipped: " if key.startswith("refused:") else "[harness] "
            assert text.startswith(start), key
    assert set(brought) >= {
        "read_only",
        "pivot",
        "premature_end",
        "refused:handoff",
        "refused:one_call",
    }


def test_a_policy_with_every_guard_is_canonical() -> None:
    """Each configuration is complete, has a name, and reads back equal."""
    policy = parse({"guards": [{"guard": kind, **config} for kind, config in CONFIGURED.items()]})
    assert list(CONFIGURED) == [guard["name"] for guard in policy.guards]
    assert policy == parse(msgspec.json.decode(msgspec.json.encode(policy)))


def test_a_run_with_every_guard_folds_again() -> None:
    """Decoding a log and folding it gives the same guards with the same memory."""
    guards = [{"guard": kind, **config} for kind, config in CONFIGURED.items() if kind != "keywords"]
    scenario = Scenario({"guards": guards})
    scenario.answer("", LOOK, ACT)
    for call in ("c1", "c2"):
        if scenario.state.batch and any(
            each.id == call and each.dispatched for each in scenario.state.batch.calls
        ):
            scenario.result(call, "not found", error=ToolError.RAISED)
    log: list[Event] = [
        codec.decode(one.kind, one.body, one.content) for one in map(codec.encode, scenario.log)
    ]
    assert scenario.state == fold(log)


def test_a_stop_of_each_guard_can_be_carried_out() -> None:
    """Where a guard stops, its end is a way to end, and its words are known."""
    known = set(TEXTS).union(*(getattr(guard, "texts", {}) for guard in GUARDS))
    for guard in GUARDS:
        watching = Watching(guard)
        for _ in range(4):
            watching.round(LOOK, LOOK, text="zqx", error=ToolError.RAISED)
            for place in guard.places:
                assert all(said.text in known for said in watching.says(place) if isinstance(said, Stop))
