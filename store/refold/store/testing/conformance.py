"""All promises of a store together."""

from refold.store.testing.claims import ClaimPromises
from refold.store.testing.evidence import EvidencePromises, GroupPromises
from refold.store.testing.forks import ForkPromises
from refold.store.testing.logs import LogPromises


class StoreConformance(LogPromises, GroupPromises, ClaimPromises, EvidencePromises, ForkPromises):
    """The promises of `Store`, a test each. Override `open_store` and `pass_time`."""
