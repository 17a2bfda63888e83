"""What every store must do, as tests. Inherit, say how to open an empty store and how its time passes, run
pytest:

    class TestMyStore(StoreConformance):
        def open_store(self) -> AbstractAsyncContextManager[Store]:
            return MyStore.open(...)

        def pass_time(self, seconds: float) -> None:
            my_clock.advance(seconds)

The tests run on anyio's pytest plugin; its fixture `anyio_backend` says on which event loops. For failures
that show the values, call `pytest.register_assert_rewrite("refold.store.testing")` in a conftest.
"""

from refold.store.testing.conformance import StoreConformance
from refold.store.testing.logs import append, events, record, records, said, take

__all__ = ["StoreConformance", "append", "events", "record", "records", "said", "take"]
