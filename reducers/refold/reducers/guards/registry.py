"""The registry of guards that come with refold: a new one is a new file and a line here.

Others are passed in by whoever runs or audits; nothing is looked up from here.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from refold.reducers.guards.arguments import Arguments
from refold.reducers.guards.errors import Errors
from refold.reducers.guards.handoff import Handoff
from refold.reducers.guards.keywords import Keywords
from refold.reducers.guards.loop import Loop
from refold.reducers.guards.one_call import OneCall
from refold.reducers.guards.pivot import Pivot
from refold.reducers.guards.read_only import ReadOnly
from refold.reducers.guards.repetition import Repetition
from refold.reducers.guards.stall import Stall
from refold.reducers.guards.stop_on_tool import StopOnTool
from refold.reducers.guards.tool_cap import ToolCap

Registry = Mapping[str, type[Any]]

_GUARDS: tuple[type[Any], ...] = (
    Repetition, Loop, Errors, Stall, ToolCap, ReadOnly, Pivot, Keywords, StopOnTool, Handoff, OneCall, Arguments
)  # fmt: skip

BUILTIN: Registry = MappingProxyType({guard.kind: guard for guard in _GUARDS})
