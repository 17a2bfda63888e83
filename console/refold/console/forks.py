"""`refold fork`: go on live from a prefix of a run, differently. The run itself is not touched."""

import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from refold.console import addresses, figures, places
from refold.console.approvals import login
from refold.console.detachment import leave
from refold.console.log_lines import follow
from refold.console.places import Place
from refold.console.policies import chosen_policy
from refold.console.runs import Models, offered_tools, stay
from refold.console.screen import Screen, note
from refold.console.toolbox import chosen_tools
from refold.engine import Agent, Model, Tool
from refold.engine.compatibility import refuse_other_model
from refold.engine.guards import installed_guards
from refold.reducers.errors import WrongUse
from refold.reducers.policy import Policy
from refold.reducers.state import RunState
from refold.replay import state_at
from refold.replay.cutting import Suits, awaits, cut, cut_from, hears
from refold.replay.turns import request_of
from refold.store.protocol import Store

_LARGEST = 1 << 20  # bytes of a file with a made-up result


class ForkRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What was typed after `refold fork`. `edits` are results by call; `model` None: the run's own."""

    typed: str
    say: str = ""
    edits: dict[str, str] = {}
    by: str | None = None
    model: str | None = None
    base_url: str | None = None
    policy: Path | None = None
    root: Path | None = None
    tools: str | None = None
    labels: dict[str, str] = {}
    detach: bool = False


async def fork_command(screen: Screen, place: Place, request: ForkRequest) -> int:
    """Fork a run and stay with the fork to its end, or leave it to a worker. The exit code."""
    follow(os.environ)
    async with places.reading(place) as store:
        parent, at = await _cut(store, request)
        state, _ = await state_at(store, parent, at, installed_guards())
    async with AsyncExitStack() as stack:
        agent = _agent(state, Models(stack), request)
        store = await stack.enter_async_context(places.writing(place))
        run = agent.fork(
            parent,
            at,
            say=request.say,
            results=request.edits,
            by=request.by or login(),
            labels=request.labels,
            store=store,
        )
        note(f"run {run.id} goes on from event {figures.count(at)} of run {parent}")
        if request.detach:
            return await leave(screen, place, run)
        return await stay(screen, place, run)


def edits_of(pairs: Sequence[str]) -> dict[str, str]:
    """`CALL=TEXT` and `CALL=@FILE` as results by call. Raises `WrongUse`."""
    edits: dict[str, str] = {}
    for pair in pairs:
        call, equals, text = pair.partition("=")
        if not equals or not call or call in edits:
            raise WrongUse(f"--edit {pair!r}: expected CALL=TEXT or CALL=@FILE, each call once")
        edits[call] = _text(places.expanded(Path(text[1:]))) if text.startswith("@") else text
    return edits


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except (OSError, ValueError) as error:
        raise WrongUse(f"--edit: {path} cannot be read: {error}") from error
    if len(data) > _LARGEST:
        raise WrongUse(f"--edit: {path} is larger than {_LARGEST} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise WrongUse(f"--edit: {path} is not UTF-8 at byte {error.start}") from error


async def _cut(store: Store, request: ForkRequest) -> tuple[str, int]:
    """The run, and the event after which it is cut: what was typed, or the last place at which the fork can be."""
    address = addresses.parse(request.typed)
    run = await addresses.resolved(store, address.run)
    if address.turn is not None:
        return run, await cut_from(store, run, await request_of(store, run, address.turn))
    return run, await cut(store, run, address.event, _suits(request))


def _suits(request: ForkRequest) -> Suits:
    if request.edits:
        return awaits(frozenset(request.edits))
    return hears if request.say else _anywhere


def _anywhere(state: RunState) -> bool:  # noqa: ARG001
    return True


def _agent(state: RunState, models: Models, request: ForkRequest) -> Agent:
    model = _model(state, models, request)
    if request.model is None and request.base_url is None:
        refuse_other_model(state, model)  # what was said goes nowhere else unless somebody says so
    policy = _policy(request)
    agent = Agent(model=model, tools=_tools(state, request), policy=policy, name=state.setup.agent)
    fallback = (policy or state.policy).retry.fallback
    agent.models.update({name: models.get(name) for name in (fallback.models if fallback else ())})
    return agent


def _model(state: RunState, models: Models, request: ForkRequest) -> Model:
    name = request.model or state.setup.model
    try:
        return models.get(name, places.base_url(request.base_url, name))
    except WrongUse as error:
        if request.model is not None:
            raise
        raise WrongUse(f"{error}; this is the run's own model: name another by --model") from error


def _policy(request: ForkRequest) -> Policy | None:
    # The environment is for runs that begin: a fork has what its parent had, but for what is typed.
    return None if request.policy is None else chosen_policy(request.policy, installed_guards(), {})[0]


def _tools(state: RunState, request: ForkRequest) -> list[Tool]:
    if request.tools is not None:
        return chosen_tools(request.tools, request.root)
    return offered_tools(state, None, request.root)
