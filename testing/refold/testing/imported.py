"""Comparison of today's agent with a run of another harness, imported from its transcript.

The harness decided by its own rules, so its log cannot be followed event by event. The comparison covers the
parts that its source records: the prompt, the tools, the arguments of each call, and the decisions of the
agent's policy.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import cast

import msgspec
from msgspec.structs import replace

from refold.engine.agent import Agent
from refold.engine.tools.decorator import FunctionTool
from refold.engine.tools.protocol import BadArguments, CallContext
from refold.engine.tools.signature import accepts
from refold.reducers import events as ev
from refold.reducers.codec import decode
from refold.reducers.errors import Inconclusive
from refold.reducers.messages import ToolSchema
from refold.replay import whatif
from refold.replay.kinds.table import sentence
from refold.replay.whatif.verdict import Verdict, WhatIf
from refold.testing.differences import Difference, compare_texts, compare_tools
from refold.testing.failures import BehaviourChanged, Evidence
from refold.testing.loaded_logs import LoadedLog
from refold.testing.matchers import Matchers
from refold.testing.replays import ReplayOptions
from refold.testing.results import ObservedCall, ObservedRun

_ADVICE = (
    "Turn off settings of the policy that the harness did not have, such as "
    "{'truncation': None, 'end_of_turn': 'wait', 'refusal': 'wait'}"
)


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
    unproved.append("the model and its settings")
    if len(log.runs) > 1:
        unproved.append(f"{len(log.runs) - 1} child runs")
    if not found:
        answer = await whatif(await log.store(), run.id, agent.policy, agent.registry)
        if answer.verdict is Verdict.INCONCLUSIVE:
            raise Inconclusive(
                f"run {run.id}: event {answer.seq}: inconclusive: {'; '.join(answer.unknown)}. {_ADVICE}"
            )
        if answer.verdict is not Verdict.AGREE:
            raise BehaviourChanged(_explain(answer, how))
    if not found and how.live_tools:  # never calls that today's policy would refuse
        found += [each async for each in _call_again(run, agent, how.matchers)]
    if found:
        what = "the agent does not fit the recorded run"
        evidence = replace(how.evidence, what=what, place=run.id, differences=found)
        raise BehaviourChanged(replace(evidence, more=evidence.show(run.id)))
    return unproved


def _explain(answer: WhatIf, how: ReplayOptions) -> Evidence:
    evidence = replace(
        how.evidence,
        what="the agent's policy decides otherwise",
        place=f"{answer.run}@e{answer.seq}",
        turn=answer.turn,
        events=answer.events,
        equal=max(answer.seq - 1, 0),
        recorded=_describe(answer.recorded),
        actual=_describe(answer.derived),
        reason=answer.why,
    )
    return replace(evidence, more=evidence.show(evidence.place))


def _describe(decision: str | None) -> str:
    if decision is None:
        return "no decision"
    kind: str = msgspec.json.decode(decision)["kind"]
    return f"{kind}: {sentence(decode(kind, decision.encode()))}"


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
    """Yield, for each tool, the first call that today's tool would not take. Failed calls are left out."""
    unchecked: set[str] = set()
    problems: dict[tuple[str, str], list[tuple[ObservedCall, str]]] = {}
    for call in run.calls:
        tool = agent.tools.get(call.name)
        if call.error or call.refused:
            continue
        if tool is None:
            problems.setdefault((call.name, "a called tool no longer exists"), []).append((call, ""))
        elif call.arguments is None or not isinstance(tool, FunctionTool):
            unchecked.add(call.name)
        elif problem := _misfit(cast("Callable[..., object]", tool.function), call):
            what = "the tool refuses the recorded arguments"
            problems.setdefault((call.name, what), []).append((call, problem))
    for (name, what), calls in problems.items():
        first, problem = calls[0]
        more = f", and {len(calls) - 1} more calls" if len(calls) > 1 else ""
        yield Difference(
            what=what,
            where=f"{name}: {run.id}@e{first.seq}, {first.id}{more}",
            recorded=json.dumps(first.arguments, ensure_ascii=False),
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
        if tool is None or not call.ran or call.arguments is None:
            continue
        context = CallContext(run=run.id, call=call.id, key=f"{run.id}/{call.id}")
        try:
            result = await tool.run(json.dumps(call.arguments), context)
        except Exception as error:  # as the engine would report it
            result = f"raised: {type(error).__name__}: {error}"
        actual = result if isinstance(result, str) else result.content.output if result.content else ""
        sides = [matchers.text(each, message="tool", name=call.name) for each in (call.output or "", actual)]
        if sides[0] != sides[1]:
            yield compare_texts("the result of a call differs", f"{call.id} {call.name}", *sides)
