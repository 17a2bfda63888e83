"""Checks of policies, models, tools and guards against a run; hints for arguments of other libraries."""

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, wraps
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import MappingProxyType
from typing import ParamSpec

from refold.engine.arguments import describe_value
from refold.engine.models.protocol import Model
from refold.engine.models.vendors import SETTINGS
from refold.reducers.errors import PolicyError, WrongUse, meant
from refold.reducers.events import Manifest
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.history.strategy import Share
from refold.reducers.limits import CostLimit
from refold.reducers.policy import Policy
from refold.reducers.sizes import refuse_without_tokenizer
from refold.reducers.state import RunState


def context_of(model: Model) -> int | None:
    """Return the model's context in tokens, or None if unknown."""
    context: int | None = getattr(model, "context", None)
    return context


_USER = re.compile(r"//[^/]*@")


def address_of(model: Model) -> str:
    """Return scheme and host of the model's server, without a user or password; "" for the default."""
    return _USER.sub("//", str(getattr(model, "address", "")))


def price_given(model: Model) -> str:
    """Return the price that was given for the model, as `0.5/1.5`; "" for none."""
    return str(getattr(model, "price", ""))


def refuse_unpriced(policy: Policy, models: Iterable[Model]) -> None:
    """Raise `PolicyError` for a cost limit over a model without a price, unless the limit ignores that."""
    unpriced = [model.name for model in models if not model.priced]
    for place, limit in enumerate(policy.limits):
        refused = isinstance(limit, CostLimit) and limit.value is not None and limit.unpriced == "refuse"
        if refused and unpriced:
            raise PolicyError(
                f"limits[{place}]",
                f"the price of {unpriced[0]} is unknown, so its cost cannot be limited; remove the limit, or set "
                "its unpriced to ignore",
            )


def refuse_unmeasured(policy: Policy, model: Model) -> None:
    """Raise `PolicyError` for a compaction step that depends on the size of an unknown context."""
    for place, step in enumerate(policy.history):
        if isinstance(step.when.tokens, Share) and context_of(model) is None:
            raise PolicyError(
                f"history[{place}].when.tokens",
                f"a share of the model's context, but the context of {model.name} is unknown; write a number of "
                "tokens instead, or set the model's context",
            )


def refuse_other_model(state: RunState, model: Model) -> None:
    """Raise `WrongUse` if the model or its server is not the run's."""
    run, setup = state.setup.run, state.setup
    if model.name != setup.model:
        raise WrongUse(
            f"run {run} was started with the model {setup.model}, and this agent has {model.name}; "
            "resume it with that model"
        )
    if address_of(model) != setup.address:
        raise WrongUse(
            f"run {run} sent its requests to {setup.address or 'the default address'}, and this agent would send "
            f"them to {address_of(model) or 'the default address'}; pass the same base_url (--base-url), so that "
            "the conversation is not sent elsewhere"
        )


def refuse_other_price(state: RunState, model: Model) -> None:
    """Raise `WrongUse` for another price than the run's, with which cost limits would count differently."""
    run, price, given = state.setup.run, state.setup.price, price_given(model)
    if given != price:
        way_out = f"pass that price (--price {price})" if price else "omit the price"
        raise WrongUse(
            f"run {run} was started {f'with the price {price}' if price else 'without a custom price'}, and this "
            f"agent has {given or 'none'}; its cost limits would count differently. Either {way_out}, or fork the run"
        )


def refuse_other_tools(state: RunState, offered: Mapping[str, Manifest]) -> None:
    """Raise `WrongUse` if a tool of the run is missing or has changed."""
    run = state.setup.run
    for manifest in state.setup.tools:
        now = offered.get(manifest.name)
        if now is None:
            raise WrongUse(f"run {run} has the tool {manifest.name}, which this agent lacks; add it")
        if (now.schema, now.replay, now.agent) != (manifest.schema, manifest.replay, manifest.agent):
            raise WrongUse(
                f"run {run}: the schema, replay class or agent of the tool {manifest.name} has changed since the "
                "run started; resume it with the original tool"
            )


def refuse_blind(state: RunState) -> None:
    """Raise `WrongUse` if a guard or the tokenizer of the run is missing; decisions depend on them."""
    if state.ended:
        return
    refuse_without_tokenizer(state.policy)
    for watch in state.guards:
        if watch.guard is None:
            raise WrongUse(
                f"run {state.setup.run}: its guard {watch.name} is {watch.blind}; install the original version"
            )


P = ParamSpec("P")

_SYSTEM = "system='...'"
_STEPS = "policy={'limits': [{'type': 'step', 'value': 20}]}"
_TIME = "policy={'limits': [{'type': 'time', 'value': 60}]}"
_COST = "policy={'limits': [{'type': 'cost', 'value': 1}]}"
_TEXT = "result.text: a run's result is text, so ask for JSON in system= and decode it"
_CLOSURE = "a tool that is a closure or a bound method: it holds what it needs"
_FUNCTIONS = "tools=[...]: a function for each tool of the server"
_KEY = "its environment variable (OPENAI_API_KEY), or Agent(PydanticAIModel(name, api_key=...))"
_GUARDS = "guards={'name': Guard}, or `async for update in run.updates()` to watch"

INSTEAD: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(
            ("instructions", "system_prompt", "system_message", "prompt", "backstory", "role"), _SYSTEM
        ),
        **dict.fromkeys(
            ("max_steps", "max_turns", "max_iterations", "max_iter", "recursion_limit", "step_limit"), _STEPS
        ),
        **dict.fromkeys(("max_time", "max_execution_time", "time_limit", "deadline"), _TIME),
        **dict.fromkeys(("max_cost", "budget", "max_budget_usd", "cost_limit"), _COST),
        **dict.fromkeys(("retries", "max_retries"), "policy={'retry': {'attempts': 3}}"),
        **dict.fromkeys(
            ("output_type", "result_type", "response_format", "response_model", "output_schema"), _TEXT
        ),
        **dict.fromkeys(("deps", "deps_type", "context", "state", "state_schema"), _CLOSURE),
        **dict.fromkeys(("mcp", "mcp_servers", "toolsets", "builtin_tools", "functions"), _FUNCTIONS),
        **dict.fromkeys(("api_key", "key"), _KEY),
        **dict.fromkeys(
            ("callbacks", "hooks", "middleware", "capabilities", "input_guardrails", "output_guardrails"),
            _GUARDS,
        ),
        **dict.fromkeys(
            ("memory", "history", "messages", "message_history"), "agent.start(task, messages=[...])"
        ),
        **dict.fromkeys(("checkpointer", "session", "db"), "store='runs.db'"),
        **dict.fromkeys(("model_settings", "model_kwargs"), "settings={'temperature': 0}"),
        **dict.fromkeys(("llm", "model_name"), "model='openai:gpt-5-mini'"),
        **dict.fromkeys(("subagents", "sub_agents", "agents"), "handoffs=[Agent(..., name='billing')]"),
        **dict.fromkeys(
            ("interrupt_before", "interrupt_on", "human_in_the_loop"), "policy={'approvals': {...}}"
        ),
        "task": "agent.start(task)",
        "max_output_tokens": "settings={'max_tokens': 500}",
    }
)
"""Replacements for arguments of other libraries, by name."""


def named_arguments(function: Callable[P, None]) -> Callable[P, None]:
    """Refuse unknown arguments with a hint. Type checkers see the original signature."""
    known = [name for name in inspect.signature(function).parameters if name != "self"]

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> None:
        for name, value in kwargs.items():
            if name not in known:
                raise WrongUse(f"Agent: unknown argument {name!r}{_instead(name, value, known)}")
        function(*args, **kwargs)

    return checked


def _instead(name: str, value: object, known: list[str]) -> str:
    if name in SETTINGS:
        return f" (did you mean settings={{{name!r}: {describe_value(value)}}}?)"
    if name in INSTEAD:
        return f"; use {INSTEAD[name]}"
    near = meant(name, known)
    return f" (did you mean {near!r}?)" if near else f"; known are {', '.join(known)}"


GROUP = "refold.guards"


def installed_guards() -> Registry:
    """Return guards by kind: the built-in ones, and classes of the entry point group `refold.guards`."""
    found = dict(BUILTIN)
    for point in _points(tuple((folder, _changed_at(folder)) for folder in sys.path)):
        if point.name in found:
            raise WrongUse(
                f"the name of the guard {point.name!r} of {point.value} is already in use: rename it"
            )
        found[point.name] = point.load()
    return found


@lru_cache(maxsize=1)
def _points(folders: tuple[tuple[str, float], ...]) -> tuple[EntryPoint, ...]:  # noqa: ARG001
    """Return the installed entry points; cached, because reading them takes milliseconds."""
    return tuple(entry_points(group=GROUP))


def _changed_at(folder: str) -> float:
    """Return when the folder's entries last changed; 0 if there is no such folder."""
    try:
        return Path(folder or ".").stat().st_mtime
    except OSError:
        return 0.0
