"""What tests of models share."""

import threading
from collections.abc import Iterator

import pytest

from support.wire import Server


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()
