"""Replays: today's agent driven by the facts of a recording, until its first difference."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import anyio
import msgspec
from msgspec.structs import replace

from refold.engine.agent import Agent
from refold.engine.children import reachable
from refold.engine.models.protocol import ModelRequest
from refold.engine.playback import Recording
from refold.engine.run import Run
from refold.engine.score import Watcher
from refold.reducers import events as ev
from refold.reducers.errors import MissingFact
from refold.reducers.evolution import evolve
from refold.reducers.meters import limit_child_policy
from refold.reducers.state import NEW, RunState
from refold.replay.kinds.table import sentence
from refold.replay.whatif.verdict import LatestCalls
from refold.store import open_memory
from refold.testing.differences import (
    Difference,
    changed_tools,
    compare_manifests,
    compare_policies,
    compare_requests,
    compare_starts,
    compare_texts,
)
from refold.testing.failures import BehaviourChanged, Evidence
from refold.testing.matchers import Matchers
from refold.testing.recorder import Filter, Operator, filtered, prepare
from refold.testing.results import ObservedRun

PATIENCE = 60.0
"""Seconds after which a replay that makes no progress fails."""

_PREDICTED = frozenset({"deadline", "until", "view"})
"""Fields about the future: if they matter, a later event differs, too. `view` is a digest of the prompt and
of the tools' code: the request itself is compared."""

_MEASURED = frozenset(
    {
        "size",
        "input_tokens",
        "digest",
        "tokens",
        "tokens_before",
        "tokens_after",
        "before",
        "instructions",
    }
)
"""Fields that depend on the length of texts, which ignored parts change."""


_DERIVED = frozenset({"size", "measured", "text", "version"})
"""Fields that follow from others, shown only if nothing else differs."""

_SHOWN = 2
"""Fields of an event that are shown with both values."""


class ReplayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a recording is compared with today's agent.

    `live_model`, `live_tools`: what runs for real. `operator` answers when the run waits, in place of the
    recorded answers. `before_record` are filters as for `record`, `start` further arguments of `Agent.start`.
    `evidence` names the test and the recording, for the message.
    """

    matchers: Matchers
    evidence: Evidence
    live_model: bool = False
    live_tools: bool = False
    operator: Operator | None = None
    before_record: Sequence[Filter] = ()
    start: Mapping[str, Any] = {}


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """A replay without a difference: the run, and the tools whose code was edited since the recording."""

    run: ObservedRun
    changed_code: Sequence[str]


class _Parted(Exception):
    """The first difference. Raised through the engine, which it stops."""

    def __init__(self, seq: int, event: ev.Event | None, differences: Sequence[Difference]) -> None:
        super().__init__(seq, event, differences)
        self.seq, self.event, self.differences = seq, event, differences


class Lockstep(Watcher):
    """Compares a replay with its recording, event by event and request by request."""

    def __init__(self, recording: Recording, matchers: Matchers) -> None:
        self.events: list[ev.Event] = []
        self.causes: list[Difference] = []
        self.drifts: list[Difference] = []
        self.changed_code: list[str] = []
        self._known, self._matchers = recording.events, matchers
        self._requests = recording.requests()

    def recorded(self, seq: int, event: ev.Event) -> None:
        """Compare an event. Raises `_Parted`."""
        known = self._known[seq - 1] if seq <= len(self._known) else None
        if isinstance(event, ev.RunStarted) and isinstance(known, ev.RunStarted):
            found = compare_starts(known, event, self._matchers)
            self.causes += compare_policies(known.policy, event.policy)
            self.causes += compare_manifests(known, event)
            self.changed_code = changed_tools(known, event)
        else:
            found = list(self._compare(known, event))
        if found:
            raise _Parted(seq, event, found)
        self.events.append(event)

    def requested(self, request: ModelRequest) -> None:
        """Compare a request with the recorded one. Raises `_Parted`."""
        known, _ = next(self._requests)
        if known != request and (found := list(compare_requests(known, request, self._matchers))):
            raise _Parted(len(self.events), None, found)

    def answered(self, *, given: bool) -> None:
        """Raise `_Parted`: the recording does not contain what follows."""
        what = "the operator answers, and the recording ends where the run waits"
        if not given:
            what = "the operator does not answer, and an answer was recorded"
        raise _Parted(len(self.events), None, [Difference(what=what)])

    def returned(self, recorded: ev.ToolReturned, live: ev.ToolReturned) -> None:
        """Compare the result of a live tool, and note a difference."""
        name = next(
            (
                call.name
                for event in self.events
                if isinstance(event, ev.ModelResponded)
                for call in event.calls
                if call.id == recorded.call
            ),
            "",
        )
        before, now = (
            self._matchers.text(each.content.output if each.content else "", message="tool", name=name)
            for each in (recorded, live)
        )
        where = f"{recorded.call} {name}"
        if recorded.error != live.error:
            one, other = (str(each.error or "no error") for each in (recorded, live))
            self.drifts.append(
                Difference(what="the error of a call differs", where=where, recorded=one, actual=other)
            )
        elif before != now:
            self.drifts.append(compare_texts("the result of a call differs", where, before, now))

    def _compare(self, known: ev.Event | None, event: ev.Event) -> Iterator[Difference]:
        if known == event or isinstance(event, ev.StateDigested):
            return
        if known is None or type(known) is not type(event):
            yield Difference(
                what="another event follows",
                recorded="the end of the recording" if known is None else ev.kind_of(known),
                actual=ev.kind_of(event),
            )
            return
        if isinstance(event, ev.ModelResponded | ev.ModelFailed | ev.ToolReturned | ev.SummaryReturned):
            return  # a recorded fact: only measurements can differ
        before, now = self._plain(known), self._plain(event)
        fields = [field for field in {**before, **now} if before.get(field) != now.get(field)]
        shown = [field for field in fields if field not in _DERIVED] or fields
        for field in shown[:_SHOWN]:
            yield Difference(
                what=f"{ev.kind_of(event)}.{field} differs",
                recorded=_text(before.get(field)),
                actual=_text(now.get(field)),
            )
        if others := [field for field in fields if field not in shown[:_SHOWN]]:
            yield Difference(what=f"fields that differ as well: {', '.join(others)}")

    def _plain(self, event: ev.Event) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(event)
        left_out = _PREDICTED | (_MEASURED if self._matchers.used else frozenset[str]())
        if isinstance(event, ev.Fact):
            left_out |= {"at", "size", "digest"}
        elif "texts" in cast("dict[str, Any]", fields.get("content") or {}):
            left_out |= {"content"}  # the policy's own texts; the prompt is compared with the next request
        return {
            key: self._without_measures(value, key) for key, value in fields.items() if key not in left_out
        }

    def _without_measures(self, value: Any, key: str) -> Any:
        if isinstance(value, str):
            return self._matchers.arguments(value) if key == "arguments" else self._matchers.text(value)
        if isinstance(value, list | tuple):
            return [self._without_measures(each, key) for each in cast("Sequence[Any]", value)]
        if isinstance(value, dict):
            entries = cast("dict[str, Any]", value).items()
            left_out = _MEASURED if self._matchers.used else ()
            return {
                name: self._without_measures(each, key if key == "arguments" else name)
                for name, each in entries
                if name not in left_out
            }
        return value


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


async def replay(recordings: Sequence[Recording], agent: Agent, task: str, how: ReplayOptions) -> Replayed:
    """Drive today's agent by a recording, and then the agents of its child runs by theirs.

    Neither the model nor, without `live_tools`, the tools are called. A live tool's result is compared, and
    the run continues with the recorded one.

    Args:
        recordings: The run, then its child runs.
        agent: Today's agent.
        task: The task.
        how: The options.

    Raises:
        BehaviourChanged: At the first difference; with `live_tools`, also after the last event if results
            differ.
    """
    first, *children = recordings
    changed = filtered(agent, how.before_record)
    run = prepare(changed, task, first.run, how.before_record, {**how.start, "seed": first.opening.seed})
    replayed = await _compare(first, run, changed, how)
    agents = {each.name: each for each in reachable(agent)}
    for child in children:
        await _compare_child(child, first, agents, replace(how, live_tools=False, operator=None))
    return replayed


async def _compare(recording: Recording, run: Run, agent: Agent, how: ReplayOptions) -> Replayed:
    watcher = Lockstep(recording, how.matchers)
    parted: _Parted | None = None
    try:
        with anyio.fail_after(None if how.live_tools else PATIENCE):
            await recording.replay(
                run,
                open_memory(),
                watcher,
                tools=agent.tools,
                live_tools=how.live_tools,
                operator=how.operator,
            )
    except _Parted as error:
        parted = error
    except MissingFact as error:
        if len(watcher.events) < len(recording.events):
            parted = _Parted(len(watcher.events), None, [Difference(what=str(error))])
    except TimeoutError:
        what = f"the replay made no progress for {PATIENCE:g} s"
        parted = _Parted(len(watcher.events), None, [Difference(what=what)])
    if parted is not None:
        raise BehaviourChanged(_explain(recording, watcher, parted, how.evidence))
    if watcher.drifts:
        found = replace(
            how.evidence,
            what="the tools do not return what was recorded",
            differences=watcher.drifts,
            changed_code=watcher.changed_code,
            more=f"refold show {recording.run} --store {how.evidence.recording}",
        )
        raise BehaviourChanged(found)
    return Replayed(run=ObservedRun(watcher.events, agent.registry), changed_code=watcher.changed_code)


async def _compare_child(
    child: Recording, parent: Recording, agents: Mapping[str, Agent], how: ReplayOptions
) -> None:
    opening = child.opening
    agent = agents.get(opening.agent)
    if agent is None:
        what = f"the agent {opening.agent!r} of child run {child.run} no longer exists"
        raise BehaviourChanged(replace(how.evidence, what=what))
    task = next((each.text for each in reversed(opening.content.messages)), "") if opening.content else ""
    state = _state_at_call(parent, opening.parent.call if opening.parent else "", agent)
    run = prepare(agent, task, child.run, (), {"seed": opening.seed}).with_runtime(
        lambda runtime: runtime,
        lambda fact: replace(fact, policy=limit_child_policy(agent.policy, state)),
    )
    await _compare(child, run, agent, how)


def _state_at_call(parent: Recording, call: str, agent: Agent) -> RunState:
    state: RunState = NEW
    for event in parent.events:
        state = evolve(state, event, agent.registry)
        if isinstance(event, ev.ToolsDispatched) and call in event.calls:
            break
    return state


def _explain(recording: Recording, watcher: Lockstep, parted: _Parted, evidence: Evidence) -> Evidence:
    seq = max(parted.seq, 1)
    known = recording.events[seq - 1] if seq <= len(recording.events) else None
    kinds = parted.event is not None and not isinstance(parted.event, ev.RunStarted)
    return replace(
        evidence,
        what="the agent does not behave as recorded",
        place=f"{recording.run}@e{seq}",
        turn=_turn(recording.events[:seq]),
        events=len(recording.events),
        equal=len(watcher.events),
        recorded=_describe(known) if kinds else "",
        actual=_describe(parted.event) if kinds else "",
        reason=_reason(watcher, parted.event),
        differences=_shown(parted),
        causes=watcher.causes,
        changed_code=watcher.changed_code,
        more=f"refold show {recording.run}@e{seq} --store {evidence.recording}",
    )


def _shown(parted: _Parted) -> Sequence[Difference]:
    """Leave out that another event follows: both events are described."""
    return [each for each in parted.differences if not each.what.startswith("another event")]


def _turn(events: Sequence[ev.Event]) -> int:
    return next((each.step for each in reversed(events) if isinstance(each, ev.ModelRequested)), 0)


def _describe(event: ev.Event | None) -> str:
    return "the end of the recording" if event is None else f"{ev.kind_of(event)}: {sentence(event)}"


def _reason(watcher: Lockstep, event: ev.Event | None) -> str:
    """Name the call and the rule behind a refusal or a request for approval; "" for other events."""
    started = watcher.events[0] if watcher.events else None
    if not isinstance(event, ev.Decision) or not isinstance(started, ev.RunStarted):
        return ""
    latest = LatestCalls()
    for each in watcher.events:
        if isinstance(each, ev.Fact):
            latest.take(each)
    subject = latest.subject(started.policy, [event])
    return "" if subject is None else f"{subject.call} {subject}, by {subject.found_by}"
