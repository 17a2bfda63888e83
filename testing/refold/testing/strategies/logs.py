"""Strategies of valid logs and runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from refold.engine.arguments import wrong_value
from refold.engine.tools.protocol import Tool
from refold.reducers.events import Event, Manifest
from refold.reducers.guards import BUILTIN, Registry
from refold.testing.strategies.driver import TOOLS, Driver, drive
from refold.testing.strategies.policies import policies

choices: st.SearchStrategy[list[int]] = st.lists(st.integers(0, 999), min_size=1, max_size=40)
"""What a driven run does, one integer a fact."""


def logs(
    policy: Mapping[str, Any] | st.SearchStrategy[dict[str, Any]] | None = None,
    *,
    tools: Sequence[Tool | Manifest] = TOOLS,
    guards: Registry = BUILTIN,
) -> st.SearchStrategy[list[Event]]:
    """Return a strategy of valid logs, as lists of events: facts, and the decisions that follow from them.

    The runs call tools with valid and invalid arguments, fail, wait, are cancelled, resumed, forked and
    amended. They are driven without an engine; a log of 40 facts takes about a millisecond. To encode an
    event, use `refold.reducers.codec.encode`.

    Args:
        policy: the policy of all runs, or a strategy of policies; by default `policies()`.
        tools: the tools that the runs have.
        guards: the guards that the policy may name, by kind, with those that are built in.

    Raises:
        WrongUse: `tools` has anything but tools. An invalid policy raises `PolicyError` when a log is drawn.
    """
    return runs(policy, tools=tools, guards=guards).map(lambda run: run.log)


def runs(
    policy: Mapping[str, Any] | st.SearchStrategy[dict[str, Any]] | None = None,
    *,
    tools: Sequence[Tool | Manifest] = TOOLS,
    guards: Registry = BUILTIN,
) -> st.SearchStrategy[Driver]:
    """Return a strategy of driven runs: logs with facts and states. The arguments are those of `logs`."""
    if policy is None:
        policy = policies()
    drawn = st.just(dict(policy)) if isinstance(policy, Mapping) else policy
    manifests = [manifest_of(tool, f"tools[{place}]") for place, tool in enumerate(tools)]
    return st.builds(drive, drawn, choices, tools=st.just(manifests), guards=st.just(guards))


def manifest_of(tool: object, place: str) -> Manifest:
    """Return a tool's manifest; `place` is its place in errors. Raises `WrongUse` for anything else."""
    if isinstance(tool, Tool):
        return tool.manifest
    if isinstance(tool, Manifest):
        return tool
    raise wrong_value(place, "a tool, as made by @tool", tool)
