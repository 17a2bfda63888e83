"""A guard followed through a log: its state and verdicts after each event."""

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from refold.reducers import composition
from refold.reducers.errors import PolicyError
from refold.reducers.events import Answer, Event, Manifest, ModelResponded, ToolReturned
from refold.reducers.evolution import encode_value, evolve
from refold.reducers.guards import Judgement, Place, Registry
from refold.reducers.messages import ReplyCall
from refold.reducers.parser import parse
from refold.reducers.state import NEW, RunState
from refold.reducers.vocabulary import Replay, StopReason, ToolError
from refold.testing.strategies.driver import Driver, drive


class Moment(NamedTuple):
    """An event of a log, with its number from 1 and the run's state after it."""

    seq: int
    event: Event
    state: RunState


class Seen(NamedTuple):
    """A guard's state after a moment, as JSON text, and its verdicts at each of its places."""

    own: bytes
    verdicts: tuple[tuple[Place, tuple[Judgement, ...]], ...]


def moments(log: Sequence[Event], guards: Registry) -> list[Moment]:
    """Return the moments of a log."""
    state, made = NEW, list[Moment]()
    for seq, event in enumerate(log, 1):
        state = evolve(state, event, guards)
        made.append(Moment(seq, event, state))
    return made


def watch(guard: Any, log: Sequence[Moment]) -> Iterator[Seen]:
    """Yield what a guard remembers and returns after each moment."""
    own = guard.start()
    for moment in log:
        if type(moment.event) in guard.observes:
            own = guard.observe(own, moment.event)
        yield Seen(encode_value(own), verdicts(guard, own, moment.state))


def verdicts(guard: Any, own: Any, state: RunState) -> tuple[tuple[Place, tuple[Judgement, ...]], ...]:
    """Return the verdicts of a guard with state `own` at each of its places, in a fixed order."""
    return tuple((place, tuple(guard.judge(own, state, place))) for place in sorted(guard.places))


def policy_with_guards(
    plain: Mapping[str, Any], entries: Sequence[Mapping[str, Any]], guards: Registry
) -> dict[str, Any]:
    """Return the policy with these guards alone; a policy of the guards alone if that cannot work."""
    listed = {"guards": [dict(entry) for entry in entries]}
    try:
        parse({**plain, **listed}, guards)
    except PolicyError:
        return listed
    return {**plain, **listed}


_BASES: tuple[dict[str, Any], ...] = (
    {},
    {"end_of_turn": "wait"},
    {"end_of_turn": "continue", "truncation": None, "empty": None},
)


def fixed_runs(
    entries: Sequence[Mapping[str, Any]], tools: Sequence[Manifest], guards: Registry, count: int, steps: int
) -> list[Driver]:
    """Return runs under these guards that are the same in every process."""
    made: list[Driver] = []
    for seed in range(count):
        chance = random.Random(seed)  # noqa: S311 - no secret
        policy = policy_with_guards(_BASES[seed % len(_BASES)], entries, guards)
        made.append(drive(policy, [chance.randrange(1000) for _ in range(steps)], tools=tools, guards=guards))
    return made


_MANY = tuple(Manifest(name=f"tool{number}", replay=Replay.READ_ONLY) for number in range(20))


def long_run(tools: Sequence[Manifest], rounds: int) -> list[Event]:
    """Return a log without guards: in each round three calls, with arguments and results of their own."""
    run = Driver({"limits": []}, tools=[*tools, *_MANY])
    offered = [tool.name for tool in (*tools, *_MANY)]
    for turn in range(rounds):
        asked = run.state.request
        assert asked is not None, "a run without limits and guards does not end while the model makes calls"
        calls = [
            ReplyCall(name=offered[(turn + place) % len(offered)], arguments=f'{{"n":{turn + 1000}}}')
            for place in range(3)
        ]
        fact = ModelResponded(at=run.at, request=asked.seq, stop=StopReason.TOOL_USE)
        run.feed(composition.responded(run.state, fact, Answer(), calls, run.salt))
        made = [call.id for call in run.state.batch.calls] if run.state.batch else []
        for call in made:
            error = ToolError.RAISED if turn % 2 else None
            back = ToolReturned(at=run.at, call=call, error=error)
            run.feed(composition.returned(run.state, back, f"{turn + 1000}", "", "", run.salt))
    return run.log


def digest(run: Driver) -> str:
    """Return a digest of a run's events and of what its guards remember after each fact."""
    hashed = hashlib.sha256()
    for event in run.log:
        hashed.update(encode_value(event))
    for state in run.states:
        hashed.update(msgspec.json.encode([(each.name, encode_value(each.own)) for each in state.guards]))
    return hashed.hexdigest()
