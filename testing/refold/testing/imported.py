"""Comparison of today's agent with a run of another harness, imported from its transcript.

The harness decided by its own rules, so its log cannot be followed event by event. The comparison covers the
parts that its source records: the prompt, the tools, the arguments of each call, and the decisions of the
agent's policy.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import cast

from msgspec.structs import replace

from refold.engine.agent import Agent
from refold.engine.tools.decorator import FunctionTool
from refold.engine.tools.protocol import BadArguments, CallContext
from refold.engine.tools.signature import accepts
from refold.reducers import events as ev
from refold.reducers.errors import Inconclusive
from refold.reducers.messages import ToolSchema
from refold.replay import whatif
from refold.replay.whatif.verdict import Verdict, WhatIf
from refold.testing.differences import Difference, compare_policies, compare_texts, compare_tools
from refold.testing.failures import BehaviourChanged, Evidence
from refold.testing.loaded_logs import LoadedLog
from refold.testing.matchers import Matchers
from refold.testing.replays import ReplayOptions
from refold.testing.results import ObservedCall, ObservedRun


async def compare_imported(log: LoadedLog, agent: Agent, how: ReplayOptions) -> list[str]:
    """Compare an agent with an imported run; return what its source does not record.

    With `live_tools`, each recorded call that ran is made again, and its result compared.

    Raises:
        BehaviourChanged: The prompt, a tool, the fit of a call's arguments or a decision of the policy
            differs.
        Inconclusive: The log does not tell what the policy would have decided.
    """
    recording = log.recordings[0]
    opening, run = recording.opening, ObservedRun(recording.events, log.registry)
    unproved: list[str] = []
    found = [
        *_compare_prompt(opening, agent, how.matchers, unproved),
        *_compare_tools(opening, agent, how.matchers, unproved),
        *_compare_calls(run, agent, unproved),
    ]
    if how.live_tools:
        found += [each async for each in _call_again(run, agent, how.matchers)]
    if found:
        what = "the agent does not fit the recorded run"
        more = f"refold show {run.id} --store STORE, after refold import {how.evidence.recording}"
        raise BehaviourChanged(replace(how.evidence, what=what, place=run.id, differences=found, more=more))
    answer = await whatif(await log.store(), run.id, agent.policy, agent.registry)
    if answer.verdict is Verdict.INCONCLUSIVE:
        raise Inconclusive(f"run {run.id}: event {answer.seq}: inconclusive: {'; '.join(answer.unknown)}")
    if answer.verdict is not Verdict.AGREE:
        raise BehaviourChanged(_explain(answer, opening, agent, how))
    return unproved


def _explain(answer: WhatIf, opening: ev.RunStarted, agent: Agent, how: ReplayOptions) -> Evidence:
    return replace(
        how.evidence,
        what="the agent's policy decides otherwise",
        place=f"{answer.run}@e{answer.seq}",
        turn=answer.turn,
        events=answer.events,
        equal=max(answer.seq - 1, 0),
        recorded=answer.recorded or "no decision",
        actual=answer.derived or "no decision",
        reason=answer.why,
        causes=compare_policies(opening.policy, agent.policy),
        more=f"refold whatif --policy FILE, after refold import {how.evidence.recording}",
    )


def _compare_prompt(
    opening: ev.RunStarted, agent: Agent, matchers: Matchers, unproved: list[str]
) -> Iterator[Difference]:
    messages = opening.content.messages if opening.content else ()
    recorded = next((each.text for each in messages if each.role == "system"), None)
    if recorded is None:
        if agent.system is not None:
            unproved.append("the system prompt")
        return
    sides = [matchers.text(text, message="system") for text in (recorded, agent.system or "")]
    if sides[0] != sides[1]:
        yield compare_texts("the system prompt differs", "message 1 (system)", *sides)


def _compare_tools(
    opening: ev.RunStarted, agent: Agent, matchers: Matchers, unproved: list[str]
) -> Iterator[Difference]:
    if not opening.tools:
        unproved.append("the tools that were offered")
        return
    recorded = [
        ToolSchema(name=each.name, description=each.description, schema=each.schema) for each in opening.tools
    ]
    actual = [
        ToolSchema(name=each.name, description=each.manifest.description, schema=each.manifest.schema)
        for each in agent.tools.values()
    ]
    yield from compare_tools(recorded, actual, matchers)


def _compare_calls(run: ObservedRun, agent: Agent, unproved: list[str]) -> Iterator[Difference]:
    unchecked: set[str] = set()
    for call in run.calls:
        tool = agent.tools.get(call.name)
        where = f"{run.id}@e{call.seq}, {call.id} {call.name}"
        if tool is None:
            yield Difference(what="a called tool no longer exists", where=where, recorded=str(call))
        elif call.arguments is None or not isinstance(tool, FunctionTool):
            unchecked.add(call.name)
        elif problem := _misfit(cast("Callable[..., object]", tool.function), call):
            yield Difference(
                what="the tool refuses the recorded arguments",
                where=where,
                recorded=json.dumps(call.arguments, ensure_ascii=False),
                actual=problem,
            )
    if unchecked:
        unproved.append(f"the arguments of {', '.join(sorted(unchecked))}")


def _misfit(function: Callable[..., object], call: ObservedCall) -> str:
    """Return why the tool refuses the arguments of a call; "" if it takes them."""
    takes = accepts(function, call.name, {})
    try:
        takes.bind(json.dumps(call.arguments), CallContext(run="", call=call.id, key=""))
    except BadArguments as error:
        return str(error)
    return ""


async def _call_again(run: ObservedRun, agent: Agent, matchers: Matchers) -> AsyncIterator[Difference]:
    for call in run.calls:
        tool = agent.tools.get(call.name)
        if tool is None or call.output is None or call.refused or call.arguments is None:
            continue
        context = CallContext(run=run.id, call=call.id, key=f"{run.id}/{call.id}")
        try:
            result = await tool.run(json.dumps(call.arguments), context)
        except Exception as error:  # as the engine would report it
            result = f"raised: {type(error).__name__}: {error}"
        actual = result if isinstance(result, str) else result.content.output if result.content else ""
        sides = [matchers.text(each, message="tool", name=call.name) for each in (call.output, actual)]
        if sides[0] != sides[1]:
            yield compare_texts("the result of a call differs", f"{call.id} {call.name}", *sides)
