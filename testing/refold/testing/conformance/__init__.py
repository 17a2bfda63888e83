"""Conformance tests for guards, stores and importers: inherit from a class, and run pytest."""

from refold.testing.conformance.guards import GuardConformance
from refold.testing.conformance.stores import StoreConformance

__all__ = ["GuardConformance", "StoreConformance"]
