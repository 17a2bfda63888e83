"""Arguments that other libraries' agents take and this one does not: refused, with what to write in their place."""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from types import MappingProxyType
from typing import ParamSpec

from refold.engine.expected import named
from refold.engine.models.endpoint import SETTINGS
from refold.reducers.errors import WrongUse, meant

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
"""What to write in place of an argument's name."""


def named_arguments(function: Callable[P, None]) -> Callable[P, None]:
    """Refuse arguments that a function does not take, with what was meant. For type checkers it stays as it is."""
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
        return f" (did you mean settings={{{name!r}: {named(value)}}}?)"
    if name in INSTEAD:
        return f"; use {INSTEAD[name]}"
    near = meant(name, known)
    return f" (did you mean {near!r}?)" if near else f"; known are {', '.join(known)}"
