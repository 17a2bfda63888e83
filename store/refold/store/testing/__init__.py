"""Conformance tests for stores. Subclass `StoreConformance`, define how to open an empty store and how to
advance its clock, and run pytest:

    class TestMyStore(StoreConformance):
        def open_store(self) -> AbstractAsyncContextManager[Store]:
            return MyStore.open(...)

        def pass_time(self, seconds: float) -> None:
            my_clock.advance(seconds)

The tests use anyio's pytest plugin; its fixture `anyio_backend` selects the event loops. To see values in
failed assertions, call `pytest.register_assert_rewrite("refold.store.testing")` in a conftest.
"""

from refold.store.testing.conformance import StoreConformance
from refold.store.testing.logs import append, events, record, records, shared_fields, take

__all__ = ["StoreConformance", "append", "events", "record", "records", "shared_fields", "take"]
