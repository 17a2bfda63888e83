"""Which fields the recorded calls of each tool have: all that is known of tools that a source names without their schemas."""

from collections.abc import Mapping
from typing import Any, cast

from refold.reducers.events import Event, ModelResponded
from refold.reducers.named_tools import looks_into_fields
from refold.reducers.patterns import object_of
from refold.reducers.policy import Policy

_MOST = 10_000
"""Fields that are remembered of a run: what has more has them by chance, as a map of names does."""


class Called:
    """Takes answers, and tells of the arguments of their calls what a JSON Schema would."""

    def __init__(self) -> None:
        self._schemas: dict[str, dict[str, Any]] = {}
        self._left = _MOST

    def take(self, event: Event, policy: Policy) -> None:
        """Take an event; of calls that no rule of the policy looked into, and of such as were erased, nothing is known."""
        if not isinstance(event, ModelResponded) or self._left < 0:
            return
        texts = event.content.arguments if event.content and looks_into_fields(policy) else ()
        for place, call in enumerate(event.calls):
            said = object_of(texts[place]) if place < len(texts) else None
            schema = self._schemas.setdefault(call.name, {"properties": {}})
            if said is None:
                schema.clear()
            elif schema:
                self._add(schema["properties"], said)

    @property
    def schemas(self) -> Mapping[str, Any]:
        """By the name of the tool; {} where it may have any field."""
        return {} if self._left < 0 else self._schemas

    def _add(self, listed: dict[str, Any], said: Mapping[str, Any]) -> None:
        for key, value in said.items():
            if key not in listed:
                self._left -= 1
                listed[key] = {"properties": {}}
            if self._left < 0:
                return
            if isinstance(value, dict):
                self._add(listed[key]["properties"], cast("Mapping[str, Any]", value))
