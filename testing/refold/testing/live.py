"""Comparison of a live model with a recording: its calls, and how the run ends."""

from collections import defaultdict, deque
from collections.abc import Sequence
from copy import copy

import msgspec
from msgspec.structs import replace

from refold.engine.agent import Agent
from refold.engine.playback import Recording
from refold.engine.tools.protocol import CallContext, Reconciled, Tool
from refold.reducers import events as ev
from refold.reducers.errors import MissingFact
from refold.reducers.vocabulary import Replay
from refold.store import open_memory
from refold.store.protocol import UnknownRun
from refold.store.recordings import recorded_run
from refold.testing.differences import Difference, compare_policies, compare_texts, describe_result
from refold.testing.failures import BehaviourChanged
from refold.testing.loaded_logs import recording_of
from refold.testing.matchers import Matchers
from refold.testing.recorder import record
from refold.testing.replays import Replayed, ReplayOptions
from refold.testing.results import ObservedCall, ObservedRun


async def compare_live(recording: Recording, agent: Agent, task: str, how: ReplayOptions) -> Replayed:
    """Ask the agent's model, and compare its calls with the recorded ones. Texts of responses are not
    compared.

    Without `live_tools`, tools return the recorded result of a call with equal arguments. Arguments as for
    `replay`.

    Raises:
        BehaviourChanged: A call is missing, extra, in another place or has other arguments, or the run ends
            differently.
    """
    used = agent if how.live_tools else _with_recorded_tools(agent, recording, how.matchers)
    before, store = ObservedRun(recording.events, agent.registry), open_memory()
    error: Exception | None = None
    try:
        await record(
            used,
            task,
            run_id=recording.run,
            operator=how.operator,
            before_record=how.before_record,
            options=how.start,
            store=store,
        )
    except Exception as failed:  # perhaps because of the first difference, which is what matters
        error = failed
    try:
        events = recording_of(await recorded_run(store, recording.run), agent.registry).events
    except UnknownRun:
        events = []
    if error is not None and not events:
        raise error
    actual = ObservedRun(events, agent.registry)
    found = compare_runs(before, actual, how.matchers, ended=error is None, results=how.live_tools)
    if found is None:
        if error is not None:
            raise error
        return Replayed(run=actual, changed_code=())
    seq, difference = found
    raise BehaviourChanged(
        replace(
            how.evidence,
            what="the live model does not act as recorded",
            place=f"{recording.run}@e{seq}",
            differences=[difference],
            causes=compare_policies(recording.opening.policy, agent.policy),
            more=how.evidence.show(f"{recording.run}@e{seq}"),
        )
    ) from error


def compare_runs(
    recorded: ObservedRun,
    actual: ObservedRun,
    matchers: Matchers,
    *,
    ended: bool = True,
    results: bool = False,
) -> tuple[int, Difference] | None:
    """Return the first difference of two runs' calls or ends, with the recorded event; None if they agree.

    Unless `ended`, the actual run broke off: what is missing at its end does not count. With `results`, the
    results of the calls are compared, too.
    """
    before, now = recorded.calls, actual.calls
    for place, (one, other) in enumerate(zip(before, now, strict=False)):
        if _signature(one, matchers) != _signature(other, matchers):
            return one.seq, _describe(place, before, now, matchers)
        if one.refused != other.refused or one.approved != other.approved:
            sides = [each.refused or each.approved or "permitted" for each in (one, other)]
            return one.seq, Difference(
                what="the permission of a call differs",
                where=f"{one.id} {one.name}",
                recorded=sides[0],
                actual=sides[1],
            )
        if results and (found := compare_results(one, other, matchers)):
            return one.seq, found
        if one.turn != other.turn:
            return one.seq, Difference(
                what="the turn of a call differs",
                where=f"{one.id} {one.name}",
                recorded=f"turn {one.turn}",
                actual=f"turn {other.turn}",
            )
    if len(before) > len(now) and ended:
        missing = before[len(now)]
        return missing.seq, Difference(what="a call is missing", recorded=str(missing))
    if len(now) > len(before):
        return len(recorded.events), Difference(what="there is an extra call", actual=str(now[len(before)]))
    if ended and (recorded.state, recorded.code) != (actual.state, actual.code):
        return len(recorded.events), Difference(
            what="the run ends differently",
            recorded=f"{recorded.state} ({recorded.code})",
            actual=f"{actual.state} ({actual.code})",
        )
    return None


def compare_results(recorded: ObservedCall, actual: ObservedCall, matchers: Matchers) -> Difference | None:
    """Return the difference of two calls' results, or None. Calls without a result are not compared."""
    if recorded.output is None or actual.output is None:
        return None
    where = f"{recorded.id} {recorded.name}"
    if recorded.error != actual.error:
        sides = [describe_result(each.error, each.output or "") for each in (recorded, actual)]
        return compare_texts("the error of a call differs", where, *sides)
    sides = [matchers.text(each.output or "", message="tool", name=each.name) for each in (recorded, actual)]
    return None if sides[0] == sides[1] else compare_texts("the result of a call differs", where, *sides)


def _describe(
    place: int, before: Sequence[ObservedCall], now: Sequence[ObservedCall], matchers: Matchers
) -> Difference:
    """Name the kind of the first difference of two lists of calls."""
    one, other = before[place], now[place]
    old, new = ([_signature(each, matchers) for each in calls[place:]] for calls in (before, now))
    where = f"call {place + 1}"
    if sorted(old) == sorted(new):
        return Difference(
            what="the order of the calls differs", where=where, recorded=str(one), actual=str(other)
        )
    if new[1:2] == old[:1]:
        return Difference(what="there is an extra call", where=where, actual=str(other))
    if old[1:2] == new[:1]:
        return Difference(what="a call is missing", where=where, recorded=str(one))
    if one.name != other.name:
        return Difference(what="another tool is called", where=where, recorded=str(one), actual=str(other))
    old_arguments, new_arguments = one.arguments or {}, other.arguments or {}
    differing = [
        key for key in {**old_arguments, **new_arguments} if old_arguments.get(key) != new_arguments.get(key)
    ]
    return compare_texts(
        f"the arguments of a call differ ({', '.join(differing)})",
        f"{one.id} {one.name}",
        old[0][1],
        new[0][1],
    )


def _signature(call: ObservedCall, matchers: Matchers) -> tuple[str, str]:
    text = msgspec.json.encode(call.arguments, order="deterministic").decode()
    return call.name, matchers.arguments(text, name=call.name)


def _with_recorded_tools(agent: Agent, recording: Recording, matchers: Matchers) -> Agent:
    results = defaultdict[tuple[str, str], deque[ev.ToolReturned]](deque)
    made = {call.id: call for call in ObservedRun(recording.events, agent.registry).calls}
    for fact in recording.facts:
        if isinstance(fact, ev.ToolReturned) and fact.call in made:
            call = made[fact.call]
            results[_signature(call, matchers)].append(fact)

    def recorded(tool: Tool) -> Tool:
        async def run(arguments: str, context: CallContext) -> ev.ToolReturned:
            text = msgspec.json.encode(msgspec.json.decode(arguments), order="deterministic").decode()
            known = results.get((tool.name, matchers.arguments(text, name=tool.name)))
            if not known:
                raise MissingFact(
                    recording.run, f"no recorded result of {tool.name} with the arguments {arguments}"
                )
            fact = known.popleft() if len(known) > 1 else known[0]
            return replace(fact, call=context.call)

        reconcile = _never if tool.manifest.replay is Replay.RECONCILABLE else None
        return Tool(manifest=tool.manifest, run=run, reconcile=reconcile)

    changed = copy(agent)
    changed.tools = {name: recorded(tool) for name, tool in agent.tools.items()}
    return changed


async def _never(arguments: str, context: CallContext) -> Reconciled:
    raise AssertionError(f"call {context.call} was reconciled, which only a crash leads to: {arguments}")
