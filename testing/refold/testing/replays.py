"""Replays: today's agent driven by the facts of a recording, until its first difference."""

from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import msgspec
from msgspec.structs import replace

from refold.engine.agent import Agent
from refold.engine.children import AgentTool
from refold.engine.playback import Recording
from refold.engine.run import Run
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
    suggest_matcher,
)
from refold.testing.failures import BehaviourChanged, Evidence
from refold.testing.lockstep import PATIENCE, Lockstep, Parted
from refold.testing.matchers import Matchers
from refold.testing.recorder import Filter, Operator, filtered, prepare
from refold.testing.results import ObservedRun


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
    run = prepare(changed, task, first.run, {**how.start, "seed": first.opening.seed})
    replayed = await _compare(first, run, changed, how)
    known = {first.run: (first, agent)}
    waiting = list(children)
    while waiting:  # a run comes after the one that started it, in any order of ids
        ready = [each for each in waiting if each.opening.parent and each.opening.parent.run in known]
        if not ready:
            names = ", ".join(each.run for each in waiting)
            raise BehaviourChanged(
                replace(how.evidence, what=f"child runs without a recorded parent: {names}")
            )
        for child in ready:
            assert child.opening.parent is not None
            parent, owner = known[child.opening.parent.run]
            found = await _compare_child(child, parent, owner, replace(how, live_tools=False, operator=None))
            known[child.run] = child, found
        waiting = [each for each in waiting if each not in ready]
    return replayed


async def _compare(recording: Recording, run: Run, agent: Agent, how: ReplayOptions) -> Replayed:
    watcher = Lockstep(recording, how.matchers)
    parted: Parted | None = None
    try:
        with anyio.fail_after(None if how.live_tools else PATIENCE) as watcher.scope:
            await recording.replay(
                run,
                open_memory(),
                watcher,
                tools=agent.tools,
                live_tools=how.live_tools,
                operator=how.operator,
            )
    except Parted as error:
        parted = error
    except MissingFact as error:
        if len(watcher.events) < len(recording.events):
            parted = Parted(len(watcher.events), None, [Difference(what=str(error))])
    except TimeoutError:
        what = f"the replay made no progress for {PATIENCE:g} s"
        parted = Parted(len(watcher.events), None, [Difference(what=what)])
    if parted is not None:
        raise BehaviourChanged(_explain(recording, watcher, parted, how.evidence))
    if watcher.drifts:
        found = replace(
            how.evidence,
            what="the tools do not return what was recorded",
            differences=watcher.drifts,
            changed_code=watcher.changed_code,
            more=how.evidence.show(f"{recording.run}"),
        )
        raise BehaviourChanged(found)
    return Replayed(run=ObservedRun(watcher.events, agent.registry), changed_code=watcher.changed_code)


async def _compare_child(child: Recording, parent: Recording, owner: Agent, how: ReplayOptions) -> Agent:
    """Compare the agent that a call of the parent starts, and return it. Raises `BehaviourChanged`."""
    opening = child.opening
    call = opening.parent.call if opening.parent else ""
    named = next(
        (each.name for each in ObservedRun(parent.events, owner.registry).calls if each.id == call), ""
    )
    tool = owner.tools.get(named)
    if not isinstance(tool, AgentTool):
        what = f"the agent {opening.agent!r} of child run {child.run} no longer exists"
        raise BehaviourChanged(replace(how.evidence, what=what))
    agent: Agent = tool.owner
    task = next((each.text for each in reversed(opening.content.messages)), "") if opening.content else ""
    state = _state_at_call(parent, call, owner)
    run = prepare(filtered(agent, how.before_record), task, child.run, {"seed": opening.seed}).with_runtime(
        lambda runtime: runtime,
        lambda fact: replace(fact, policy=limit_child_policy(agent.policy, state)),
    )
    await _compare(child, run, agent, how)
    return agent


def _state_at_call(parent: Recording, call: str, agent: Agent) -> RunState:
    state: RunState = NEW
    for event in parent.events:
        state = evolve(state, event, agent.registry)
        if isinstance(event, ev.ToolsDispatched) and call in event.calls:
            break
    return state


def _explain(recording: Recording, watcher: Lockstep, parted: Parted, evidence: Evidence) -> Evidence:
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
        causes=watcher.causes if kinds else (),
        hint=suggest_matcher(parted.differences),
        changed_code=watcher.changed_code,
        more=evidence.show(f"{recording.run}@e{seq}"),
    )


def _shown(parted: Parted) -> Sequence[Difference]:
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
