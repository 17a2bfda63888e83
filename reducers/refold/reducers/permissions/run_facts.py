"""What a log records about the run of a call, and the condition `when` over it.

The MCP server of a tool is known only for formats whose tool names have it.
"""

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Annotated

from msgspec import Meta

from refold.reducers.errors import Fault
from refold.reducers.vocabulary import Knob, Value

_DOUBLE = frozenset({"claude_code"})
"""Formats in which the tools of MCP servers, and no others, are named `mcp__SERVER__TOOL`."""

_Text = Annotated[str, Meta(min_length=1)]
_Listed = Annotated[tuple[_Text, ...], Meta(min_length=1)]


class RunFacts(Value, frozen=True, kw_only=True):
    """What is recorded about a run. `format` is the format of its source, "" for a live run.

    `mode` is the permission mode, None if not recorded. `child`: whether the run is a subagent (None:
    unknown), and `agent` its name, "" if unknown. No source records that name where the run begins.
    """

    format: str = ""
    mode: str | None = None
    child: bool | None = None
    agent: str = ""


class When(Knob, frozen=True, kw_only=True):
    """A condition on the run of a call; all that is given must hold.

    `mode`: globs of the permission mode. `subagent`: whether the call is a subagent's, or globs of the
    subagent's name. `server`: globs of the MCP server of the tool.
    """

    mode: _Listed | None = None
    subagent: bool | _Listed | None = None
    server: _Listed | None = None

    def problems(self) -> Iterator[Fault]:
        """Yield conditions that cannot be evaluated."""
        if self == _NOTHING:
            yield "", "expected one or more of mode, subagent, server, got none"
        for place, glob in enumerate(self.server or ()):
            if glob.startswith("mcp__"):
                server = glob.removeprefix("mcp__").partition("__")[0] or "github"
                yield f"server[{place}]", f"expected the name of a server, as {server!r}, got {glob!r}"

    @property
    def title(self) -> str:
        """Return the condition in one line."""
        parts = [f"mode {'|'.join(self.mode)}"] if self.mode else []
        if isinstance(self.subagent, bool):
            parts.append("subagent" if self.subagent else "no subagent")
        elif self.subagent:
            parts.append(f"subagent {'|'.join(self.subagent)}")
        return " ".join([*parts, *([f"server {'|'.join(self.server)}"] if self.server else [])])

    def holds(self, tool: str, run: RunFacts) -> bool | None:
        """Return whether the condition holds for a call of this tool in a run; None: unknown."""
        judged = self._judged(tool, run).values()
        return False if False in judged else None if None in judged else True

    def unknowns(self, tool: str, run: RunFacts) -> str:
        """Return why the condition is unknown, "" if it is not."""
        judged = self._judged(tool, run)
        lacking = [_LACKING[key] for key, held in judged.items() if held is None]
        return "; ".join(lacking) if False not in judged.values() else ""

    def _judged(self, tool: str, run: RunFacts) -> Mapping[str, bool | None]:
        judged: dict[str, bool | None] = {}
        if self.mode is not None:
            judged["mode"] = None if run.mode is None else _fits(run.mode, self.mode)
        if self.subagent is not None:
            judged["subagent"] = _subagent_holds(self.subagent, run)
        if self.server is not None:
            judged["server"] = _server_holds(self.server, servers_of(tool, run.format))
        return judged


_NOTHING = When()
_LACKING: Mapping[str, str] = MappingProxyType(
    {
        "mode": "the permission mode is not recorded",
        "subagent": "the record does not name the subagent",
        "server": "the record does not name the MCP server of the tool",
    }
)


def _fits(name: str, globs: Iterable[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def _subagent_holds(wanted: bool | tuple[str, ...], run: RunFacts) -> bool | None:  # noqa: FBT001
    if run.child is None:
        return None
    if isinstance(wanted, bool):
        return run.child is wanted
    if not run.child:
        return False
    return _fits(run.agent, wanted) if run.agent else None


def _server_holds(globs: Iterable[str], servers: tuple[str, ...] | None) -> bool | None:
    if servers is None:
        return None
    found = {_fits(server, globs) for server in servers}
    return None if len(found) > 1 else True in found


def servers_of(tool: str, source: str) -> tuple[str, ...] | None:
    """Return the servers that a tool may be of, () if it is of none; None: unknown.

    `mcp__SERVER__TOOL` names it. In Gemini CLI's `mcp_SERVER_TOOL`, both names may have underscores.
    """
    if tool.startswith("mcp__"):
        server, found, _ = tool.removeprefix("mcp__").partition("__")
        return (server,) if found and server else None
    if source == "gemini_cli" and tool.startswith("mcp_"):
        words = tool.removeprefix("mcp_").split("_")
        return tuple("_".join(words[:end]) for end in range(1, len(words))) or None
    return () if source in _DOUBLE else None
