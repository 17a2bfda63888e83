"""Comparison of an agent with recorded runs, in each of its modes."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from inspect import isawaitable

from msgspec.structs import replace

from refold.engine import arguments
from refold.engine.agent import Agent
from refold.engine.playback import Recording
from refold.reducers.errors import Inconclusive, MissingFact
from refold.reducers.messages import Message
from refold.testing.failures import BehaviourChanged, Evidence
from refold.testing.imported import compare_imported
from refold.testing.live import compare_live
from refold.testing.loaded_logs import LoadedLog
from refold.testing.matchers import Matchers
from refold.testing.replays import Replayed, ReplayOptions, replay
from refold.testing.requests import allow_requests
from refold.testing.results import ObservedRun

GivenAgent = Agent | Awaitable[Agent] | Callable[[], Agent | Awaitable[Agent]]
"""An agent, or a function that makes one, async or not."""


def make_agent(agent: GivenAgent) -> GivenAgent:
    """Return an agent, or what a function makes: an agent, or an awaitable of one."""
    return agent() if callable(agent) else agent


async def resolve_agent(made: GivenAgent) -> Agent:
    """Return an agent that may have to be awaited. Raises `WrongUse` for anything else."""
    found: object = await made if isawaitable(made) else made
    if not isinstance(found, Agent):
        raise arguments.wrong_value("agent", "an Agent, or a function that returns one", found)
    return found


async def compare(recordings: Sequence[Recording], agent: Agent, task: str, how: ReplayOptions) -> Replayed:
    """Compare an agent with a recording, in lockstep or, with a live model, by its calls."""
    __tracebackhide__ = True
    if not (how.live_model or how.live_tools):
        return await replay(recordings, agent, task, how)
    with allow_requests():
        if how.live_model:
            return await compare_live(recordings[0], agent, task, how)
        return await replay(recordings, agent, task, how)


async def compare_log(log: LoadedLog, agent: Agent, how: ReplayOptions) -> tuple[ObservedRun, Sequence[str]]:
    """Compare an agent with a run of production; return the run, and what its source does not record.

    Raises:
        BehaviourChanged: The agent does not behave as recorded.
        Inconclusive: The source of an imported run does not record enough to tell.
    """
    if log.imported:
        with allow_requests() if how.live_tools else nullcontext():
            unproved = await compare_imported(log, agent, how)
        return ObservedRun(log.recordings[0].events, log.registry), unproved
    task, earlier = _task_of(log.recordings[0], agent)
    how = replace(how, start={"messages": earlier, **how.start})
    return (await compare(log.recordings, agent, task, how)).run, ()


async def find_change(log: LoadedLog, agent: Agent) -> str:
    """Return the first difference of an agent from a run of production in one line; "" for none."""
    how = ReplayOptions(matchers=Matchers(), evidence=Evidence(what="", recording="RECORDING"))
    try:
        await compare_log(log, agent, how)
    except BehaviourChanged as error:
        found = error.evidence
        details = [f"{each.what}: {each.where}".rstrip(": ") for each in found.differences[:1]]
        return "; ".join([found.what, *(details or [found.actual])])
    except (Inconclusive, MissingFact) as error:
        return str(error)
    return ""


def _task_of(recording: Recording, agent: Agent) -> tuple[str, list[Message]]:
    """Return the recorded task, and the messages before it without the agent's own system prompt."""
    opening = recording.opening
    if opening.content is None:
        raise MissingFact(recording.run, "the payload of its first event was erased")
    messages = list(opening.content.messages)
    if agent.system is not None and messages and messages[0].role == "system":
        del messages[0]
    if not messages:
        raise MissingFact(recording.run, "its first event has no task")
    return messages[-1].text, messages[:-1]
