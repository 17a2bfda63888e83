"""The drivers, by topic. A new topic is a function in its family's module and a line there."""

from collections.abc import Mapping
from types import MappingProxyType

from conformance.drivers import guardrails, hermes, inspecting, paperbench, tirea, utah
from conformance.suite import Driver

DRIVERS: Mapping[str, Driver] = MappingProxyType(
    {
        **inspecting.DRIVERS,
        **paperbench.DRIVERS,
        **guardrails.DRIVERS,
        **hermes.DRIVERS,
        **utah.DRIVERS,
        **tirea.DRIVERS,
    }
)

__all__ = ["DRIVERS"]
