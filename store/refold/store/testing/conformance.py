"""The conformance tests of a store in one class."""

from refold.store.testing.claims import ClaimPromises
from refold.store.testing.evidence import EvidencePromises, GroupPromises
from refold.store.testing.forks import ForkPromises
from refold.store.testing.logs import LogPromises


class StoreConformance(LogPromises, GroupPromises, ClaimPromises, EvidencePromises, ForkPromises):
    """Tests of the contract of `Store`. Override `open_store` and `pass_time`."""
