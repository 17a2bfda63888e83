"""What is derived once for both runs is what is derived for each of them: result, state and numbers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest import mock

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from refold.importers.registry import detect_format, importer
from refold.importers.source import Source
from refold.importers.transcript import Transcript
from refold.reducers.events import Event, PolicyAmended, RunForked
from refold.reducers.parser import parse
from refold.reducers.policy import Policy
from refold.replay.whatif.comparison import Comparison
from refold.replay.whatif.facts import Change
from refold.replay.whatif.pair import RunPair
from refold.replay.whatif.rule_subset import add_guards, replace_keys
from refold.replay.whatif.tables import Contexts
from refold.testing.strategies.driver import Driver
from refold.testing.strategies.logs import runs
from refold.testing.strategies.policies import policies
from support import golden
from support.blotting import Blots, Blotted
from support.following import shown
from support.shown_only import Life
from support.soundness import CASES, Case, others, tempers
from support.strategies import scaled
from support.transcripts import FILES, WRITTEN, path_of, salts

_RULES: Sequence[dict[str, Any]] = (
    {"effect": "refuse", "tool": ["Bash", "shell", "exec_command", "act", "l*"], "command": "git push *"},
    {"effect": "refuse", "tool": "*", "command": "rm -rf *"},
    {"effect": "ask", "tool": "*", "path": ["/etc/**", "**/.env"]},
    {"effect": "ask", "tool": "*", "host": ["*.example.com"]},
    {"effect": "permit", "tool": "*", "matches": "ls|cat"},
)


def _permissions(*rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"guard": "permissions", "rules": list(rules), **more}


ADDED: dict[str, Sequence[dict[str, Any]]] = {
    "rules that rarely apply": [_permissions(*_RULES)],
    "a rule that refuses all": [_permissions({"effect": "refuse"})],
    "a rule that asks about all": [_permissions({"effect": "ask"}, timeout=3)],
    "rules that permit some": [_permissions(*_RULES, **{"else": "refuse"})],
    "a rule after another call": [_permissions({"effect": "refuse", "after": {"matches": "a"}})],
    "arguments that are refused": [{"guard": "arguments", "matches": "git|o"}],
    "arguments that are asked about": [{"guard": "arguments", "matches": "e", "then": "ask"}],
    "arguments that end the run": [{"guard": "arguments", "matches": "test|2", "then": "stop"}],
    "a guard that only warns, and one that refuses": [
        {"guard": "stall", "same_tool": [1, 9]},
        _permissions({"effect": "refuse", "matches": "3"}),
    ],
    "a guard that sends a text": [{"guard": "pivot", "tool": "look", "to": "x", "failures": 1}],
    "a cap": [{"guard": "tool_cap", "tools": ["act", "Bash", "shell"], "max": 2}],
    "a guard that is not installed": [{"guard": "nobody"}],
}
"""Guards that are added to the recorded policy, by what they do."""


def added(name: str) -> Change:
    """The change that adds them. One of a name that the policy has already gets another name."""
    new = ADDED[name]
    if name == "a guard that is not installed":
        return lambda policy: replace(policy, guards=(*policy.guards, *new))
    return add_guards(parse({"guards": [{**guard, "name": f"added-{n}"} for n, guard in enumerate(new)]}))


def _key(**keys: Any) -> Change:
    return replace_keys(keys, parse(keys))


CHANGED: dict[str, Change] = {
    "outputs are cut": _key(tool_output={"max": 20}),
    "secrets are hidden": _key(redact=["e"]),
    "errors have another text": _key(texts={"raised": "zqx {problem}", "timeout": "zqx", "in_doubt": "zqx"}),
    "unknown outcomes go to a user": _key(doubt="ask"),
    "other failures are overflows": _key(overflow={"patterns": ["e"], "do": []}),
    "texts weigh more": _key(estimator="bytes4"),
    "a time limit": _key(limits=[{"type": "time", "value": 2}]),
    "a limit of steps": _key(limits=[{"type": "step", "value": 3}]),
    "no limit": _key(limits=[]),
    "a limit has a fallback": _key(fallback="zqx"),
    "every call is approved": _key(approvals={"chain": [{"approver": "approve"}]}),
    "results are previewed": _key(history=[{"do": "preview_results", "tokens": 5, "chars": 5, "lines": 1}]),
}
"""Keys that replace those of the recorded policy, by what they do."""
CHANGES = {**{name: added(name) for name in ADDED}, **CHANGED}


@contextmanager
def apart() -> Iterator[None]:
    """Have both runs of every pair derived."""
    with mock.patch.object(RunPair, "apart", new=True):
        yield


def told(log: Sequence[Event], change: Policy | Change, contexts: Contexts | None, shared: int) -> Any:
    """All that a comparison finds in a log, or the problem."""
    comparison = Comparison("r1", change, shared=shared, contexts=contexts)
    try:
        found = shown(comparison, log)
    except Exception as problem:
        return type(problem), str(problem)
    near = comparison._near
    origins, changes = comparison.origins, comparison.changes
    return found, near.derived.state, near.found, origins, changes, near.shared, near.before, near.fired


def hold(
    log: Sequence[Event], change: Policy | Change, contexts: Contexts | None = None, shared: int = 0
) -> None:
    """Hold what is found in lockstep against what is found apart."""
    with apart():
        expected = told(log, change, contexts, shared)
    assert expected == told(log, change, contexts, shared)


_CHANGES = st.sampled_from(sorted(CHANGES)).map(CHANGES.__getitem__)
_SHARED = st.sampled_from([0, 0, 3, 11])


@settings(max_examples=scaled(60))
@given(case=CASES, change=_CHANGES, shared=_SHARED)
def test_generated_lives(case: Case, change: Change, shared: int) -> None:
    """Agents under any policy, asked about another one, and about added guards."""
    policy, other = parse(case.policy), parse(case.other)
    for temper, facts in tempers(case.seed):
        life = Life(policy, temper, facts)
        hold(life.log, other, shared=shared)
        hold(life.log, change, shared=shared)


@settings(max_examples=scaled(60))
@given(driver=runs(), change=_CHANGES, other=policies())
def test_generated_logs(driver: Driver, change: Change, other: dict[str, Any]) -> None:
    """Logs of any facts, forked and amended."""
    event(f"amended or forked: {any(isinstance(each, PolicyAmended | RunForked) for each in driver.log)}")
    hold(driver.log, change)
    hold(driver.log, parse(other))
    hold(driver.log, lambda policy: policy)


OBSERVED: dict[str, Any] = {"preset": "observed"}
_SHARE = st.sampled_from([0.0, 0.0, 0.2, 1.0])
_NAMES = ("tools", "tokens", "prices", "times", "context", "errors", "results", "stops")
_BLOTS = st.builds(Blots, st.integers(0, 2**32), **dict.fromkeys(_NAMES, _SHARE))


@settings(max_examples=scaled(60))
@given(change=_CHANGES, other=others(OBSERVED), blots=_BLOTS, seed=st.integers(0, 2**32))
@example(change=added("a rule that refuses all"), other=OBSERVED, blots=Blots(0, tools=1.0), seed=0)
def test_blotted_lives(change: Change, other: dict[str, Any], blots: Blots, seed: int) -> None:
    """Records that lack tools, tokens, prices, times, statuses, results or reasons of ends."""
    temper, facts = next(tempers(seed))
    life = Life(parse(OBSERVED), temper._replace(down_after=None), facts)
    log = Blotted(life.log, blots).log
    hold(log, change)
    hold(log, parse(other))


@cache
def _logs(file: str) -> list[list[Event]]:
    with path_of(file).open("rb") as opened:
        source = Source.opened(file, opened)
        reading = Transcript(source, importer(detect_format(source).format))
        return [[each.event for group in run.derive(salts) for each in group] for run in reading.runs()]


@pytest.mark.slow
@pytest.mark.parametrize("file", [*FILES, *WRITTEN])
def test_transcripts(file: str) -> None:
    """Every transcript, with each of the changes."""
    for log in _logs(file):
        for change in CHANGES.values():
            hold(log, change)


@pytest.mark.parametrize("name", golden.names())
def test_golden_logs(name: str) -> None:
    """Every golden log, with each of the changes, and without the payload of each event in turn."""
    log = golden.events(name)
    for change in CHANGES.values():
        hold(log, change)
    for place, each in enumerate(log[:60]):
        if getattr(each, "content", None) is not None:
            hold(
                [*log[:place], replace(each, content=None), *log[place + 1 :]],
                added("rules that rarely apply"),
            )


def _edits(log: Sequence[Event]) -> Iterator[list[Event]]:
    """Logs that no engine wrote: without one decision, and with one twice."""
    for place in range(1, len(log)):
        yield [*log[:place], *log[place + 1 :]]
        yield [*log[:place], log[place - 1], *log[place:]]


@pytest.mark.parametrize("name", golden.names()[:6])
def test_edited_logs(name: str) -> None:
    """Logs that do not follow from their facts, or are no logs at all."""
    change = added("rules that rarely apply")
    for log in _edits(golden.events(name)[:40]):
        hold(log, change)


def test_facts_are_derived_once() -> None:
    """With rules that do not apply, no fact but the first, which sets the policy, is derived for each run."""
    log = golden.events("a_digest_after_256_events")
    with mock.patch.object(RunPair, "_take_apart", autospec=True, side_effect=RunPair._take_apart) as taken:
        shown(Comparison("r1", added("rules that rarely apply")), log)
    assert [1] == [call.args[1] for call in taken.call_args_list]
