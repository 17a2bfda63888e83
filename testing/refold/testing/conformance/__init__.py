"""Conformance tests for guards, importers and stores: inherit from a class, and run pytest."""

from refold.testing.conformance.guards import GuardConformance
from refold.testing.conformance.importers import ImporterConformance
from refold.testing.conformance.stores import StoreConformance

__all__ = ["GuardConformance", "ImporterConformance", "StoreConformance"]
