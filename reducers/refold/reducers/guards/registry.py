"""The registry of guards that come with refold: a new one is a new file and a line here.

Others are passed in by whoever runs or audits; nothing is looked up from here.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from refold.reducers.guards.repetition import Repetition

Registry = Mapping[str, type[Any]]

BUILTIN: Registry = MappingProxyType({Repetition.kind: Repetition})
