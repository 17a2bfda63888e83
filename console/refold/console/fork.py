"""`refold fork`: go on live from a prefix of a run, differently. The run itself is not touched."""

import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

from refold.console import addresses, places
from refold.console.detachment import leave
from refold.console.given_texts import given_text
from refold.console.labels import labels_of
from refold.console.log_lines import follow
from refold.console.options import Address, By, Labels, Means, MeansOrWorker, PolicyFile, option
from refold.console.places import StorePlace
from refold.console.run import Models, add_fallbacks, offered_tools, stay
from refold.console.screen import Screen, note
from refold.console.served import served
from refold.console.toolbox import chosen_tools
from refold.engine import Agent, Model
from refold.engine.compatibility import address_of, installed_guards, refuse_other_model
from refold.engine.policies.files import chosen_policy
from refold.reducers.errors import WrongUse
from refold.reducers.state import RunState
from refold.replay import figures, state_at
from refold.replay.cuts import Suits, awaits, cut, cut_from, hears
from refold.replay.turns import request_of
from refold.store.protocol import Store


async def fork_command(
    screen: Screen,
    place: StorePlace,
    run: Address,
    means: MeansOrWorker,
    *,
    say: Annotated[str, option("--say", "A message to the model, before it goes on.")] = "",
    edit: Annotated[
        list[str], option("--edit", "CALL=TEXT, CALL=@FILE or CALL=- (stdin): the result of a call, made up.")
    ],
    by: By,
    policy: PolicyFile = None,
    model: Annotated[str | None, option("--model", "Another model, provider:model.")] = None,
    label: Labels,
) -> int:
    """Start a new run that goes on from event or turn of RUN, by default from the last place that can be. RUN stays as it is.

    What is not given is as it was in RUN: policy, model, tools. Output as `run`.
    """
    edits, labels = edits_of(edit), labels_of(label)
    follow(os.environ)
    async with places.reading(place) as store:
        parent, at = await _cut(
            store, run, awaits(frozenset(edits)) if edits else hears if say else _anywhere
        )
        state, _ = await state_at(store, parent, at, installed_guards())
    async with AsyncExitStack() as stack:
        agent = _agent(state, Models(stack), means, model, policy)
        store = await stack.enter_async_context(places.writing(place))
        fork = agent.fork(parent, at, say=say, results=edits, by=by, labels=labels, store=store)
        note(f"run {fork.id} goes on from event {figures.count(at)} of run {parent}")
        return await (leave if means.detach else stay)(screen, place, fork, means.typed)


def edits_of(pairs: Sequence[str]) -> dict[str, str]:
    """`CALL=TEXT`, `CALL=@FILE` and `CALL=-` as results by call. Raises `WrongUse`."""
    edits: dict[str, str] = {}
    for pair in pairs:
        call, equals, text = pair.partition("=")
        if not equals or not call or call in edits:
            raise WrongUse(f"--edit {pair!r}: expected CALL=TEXT, CALL=@FILE or CALL=-, each call once")
        edits[call] = given_text(text, "--edit")
    return edits


async def _cut(store: Store, typed: str, suits: Suits) -> tuple[str, int]:
    """The run, and the event after which it is cut: what was typed, or the last place at which the fork can be."""
    address = addresses.parse(typed)
    run = await addresses.resolved(store, address.run)
    if address.turn is not None:
        return run, await cut_from(store, run, await request_of(store, run, address.turn))
    return run, await cut(store, run, address.event, suits)


def _anywhere(state: RunState) -> bool:  # noqa: ARG001
    return True


def _agent(state: RunState, models: Models, means: Means, name: str | None, file: Path | None) -> Agent:
    model = _model(state, models, means, name)
    if name is None and means.base_url is None:
        refuse_other_model(state, model)  # what was said goes nowhere else unless that is asked for
    # The environment is for runs that begin: a fork has what its parent had, but for what is typed.
    policy = None if file is None else chosen_policy(file, installed_guards(), {})[0]
    tools = chosen_tools(means.tools, means.root) if means.tools else offered_tools(state, means)
    agent = Agent(model=model, tools=tools, policy=policy, name=state.setup.agent)
    add_fallbacks(agent, policy or state.policy, models)
    return agent


def _model(state: RunState, models: Models, means: Means, chosen: str | None) -> Model:
    name, setup = chosen or state.setup.model, state.setup
    try:
        model = models.get(name, served(means, name, "" if chosen else setup.price))
        # What it costs there says nothing of what it costs elsewhere.
        elsewhere = means.price is None and address_of(model) != setup.address
        return models.get(name, served(means, name)) if elsewhere else model
    except WrongUse as error:
        if chosen is not None:
            raise
        raise WrongUse(f"{error}; this is the run's own model: name another by --model") from error
