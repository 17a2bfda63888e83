"""The conformance tests of a store, which are in the package of the stores."""

from refold.store.testing import StoreConformance

__all__ = ["StoreConformance"]
