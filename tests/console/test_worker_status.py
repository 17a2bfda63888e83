"""`refold worker --listen`: health checks and metrics, as a supervisor and Prometheus read them."""

import re
import signal
import socket
import subprocess
import sys
import threading
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import anyio
import pytest
from prometheus_client.parser import text_string_to_metric_families

from console import laborious
from console.conftest import Refold, Started
from console.test_worker import TOOLS, queued, until
from refold.console.worker_metrics import WorkerMetrics
from refold.console.worker_status import (
    ANSWER_WITHIN,
    BEAT,
    READY_WITHIN,
    TURN_WITHIN,
    Answer,
    CannotListen,
    Pulse,
    StatusServer,
    listen_address,
)
from refold.engine.worker import Failed
from refold.reducers.errors import WrongUse
from refold.store import MemoryStore
from refold.store.protocol import Head, StoreUnavailable
from support import virtual

DOCUMENTED = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EFFECTS", str(tmp_path / "effects"))
    monkeypatch.setenv("GATE", str(tmp_path / "gate"))


def get(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, str, str]:
    """Status, content type and body of a response."""
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, response.headers.get("Content-Type", ""), response.read().decode()
    finally:
        connection.close()


def port_of(worker: "subprocess.Popen[str]") -> int:
    """The port that a worker says it listens on."""
    assert worker.stdout is not None
    found = next(
        filter(None, (re.search(r"http://127\.0\.0\.1:(\d+)/healthz", line) for line in worker.stdout))
    )
    return int(found[1])


def values(port: int) -> dict[str, float]:
    """The metrics without labels, and those of the state COMPLETED."""
    families = text_string_to_metric_families(get(port, "/metrics")[2])
    samples = (sample for family in families for sample in family.samples)
    return {each.name: each.value for each in samples if each.labels in ({}, {"state": "COMPLETED"})}


def test_a_worker_from_its_start_to_its_end(started: Started, store: Path, tmp_path: Path) -> None:
    """It is ready while it takes runs, not while it drains, alive all the time, and counts what it did."""
    queued(store, "run-1")
    worker = started("worker", "--concurrency", "3", "--listen", "0", *TOOLS)
    port = port_of(worker)
    until(lambda: bool(laborious.effects()))
    until(lambda: get(port, "/readyz")[0] == 200)
    assert (200, "text/plain; charset=utf-8", "ok\n") == get(port, "/healthz")
    found = values(port)
    assert (1, 3, 0) == tuple(found[f"refold_worker_{name}"] for name in ("runs", "concurrency", "draining"))
    assert 1 == found["refold_worker_runs_taken_total"]
    assert 6 > found["refold_store_events_appended_total"] > 1
    assert found["process_resident_memory_bytes"] > 0
    (tmp_path / "gate").touch()
    until(lambda: values(port)["refold_worker_runs_put_down_total"] == 1)
    assert 0 == values(port)["refold_worker_runs"]
    assert 3 <= values(port)["refold_store_append_duration_seconds_count"]
    (tmp_path / "gate").unlink()
    queued(store, "run-2")
    until(lambda: len(laborious.effects()) == 2)
    worker.send_signal(signal.SIGTERM)
    until(lambda: get(port, "/readyz")[0] == 503)
    assert "draining: the worker takes no more runs\n" == get(port, "/readyz")[2]
    assert (200, 1) == (get(port, "/healthz")[0], values(port)["refold_worker_draining"])
    (tmp_path / "gate").touch()
    assert 0 == worker.wait(10)
    with pytest.raises(ConnectionRefusedError):
        get(port, "/healthz")


def test_what_is_served() -> None:
    """Only `GET` and `HEAD` of the pages; a query is ignored."""
    server = StatusServer(
        "127.0.0.1", 0, {"/a": lambda accept: Answer(HTTPStatus.OK, "text/x", accept.encode())}
    )
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        port = int(server.server_address[1])
        assert (200, "text/x", "b/c") == get(port, "/a?d=e", Accept="b/c")
        assert (200, "text/x", "") == get(port, "/a", "HEAD")
        assert (404, "not found; there are /a\n") == get(port, "/etc/passwd")[::2]
        assert 501 == get(port, "/a", "POST")[0]
        assert 414 == get(port, "/" + "a" * 70_000)[0]
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(8)]
        try:
            until(lambda: not server._free._value)
            with pytest.raises((ConnectionError, OSError)):
                get(port, "/a")
        finally:
            for each in silent:
                each.close()
        until(lambda: server._free._value == 8)
        assert 200 == get(port, "/a")[0]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(
    ("typed", "address"),
    [
        pytest.param("9464", ("127.0.0.1", 9464), id="a port: this machine only"),
        pytest.param("0.0.0.0:9464", ("0.0.0.0", 9464), id="all addresses, when typed"),
        pytest.param("localhost:0", ("localhost", 0), id="a name"),
        pytest.param("[::1]:80", ("::1", 80), id="IPv6"),
    ],
)
def test_an_address(typed: str, address: tuple[str, int]) -> None:
    assert address == listen_address(typed)


@pytest.mark.parametrize("typed", ["", ":", ":80", "x", "host:", "host:x", "::1:80", "70000", "-1", "²"])
def test_no_address(typed: str, refold: Refold, store: Path) -> None:
    """It is refused before a store is opened."""
    with pytest.raises(WrongUse, match="--listen"):
        listen_address(typed)
    ran = refold("worker", "--listen", typed, "--store", store)
    assert 2 == ran.code
    assert "--listen" in ran.err


def test_an_address_in_use(refold: Refold, store: Path) -> None:
    """It is said with the way out: exit code 4. So is one that is not of this machine."""
    queued(store)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = refold("worker", "--until-idle", "--listen", address, "--store", store)
    assert 4 == ran.code
    assert f"cannot listen on {address}: Address already in use; choose another address" in ran.err
    with pytest.raises(CannotListen, match=r"cannot listen on 203\.0\.113\.1:80"):
        StatusServer("203.0.113.1", 80, {})


def test_the_store_fails_and_answers_again() -> None:
    """A worker is ready only while its store answers; a failure is named without its text."""

    async def main() -> None:
        store, pulse = Failing(now=anyio.current_time), Pulse(anyio.current_time)
        assert "starting" in pulse.trouble()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pulse.beat, store)
            await anyio.sleep(0.1)
            assert ("", "") == (pulse.trouble(), pulse.death())
            store.fails = True
            await anyio.sleep(BEAT)
            assert ("the store failed: StoreUnavailable", "") == (pulse.trouble(), pulse.death())
            await anyio.sleep(ANSWER_WITHIN)
            assert pulse.death().startswith("the store has not answered for 60")
            store.fails = False
            await anyio.sleep(BEAT)
            assert ("", "") == (pulse.trouble(), pulse.death())
            store.hangs = True
            await anyio.sleep(READY_WITHIN + BEAT)
            assert pulse.trouble().startswith("the store has not answered for 1")
            tasks.cancel_scope.cancel()

    virtual.in_no_time(main)


class Failing(MemoryStore):
    fails = hangs = False

    async def head(self, run: str) -> Head:
        if self.fails:
            raise StoreUnavailable("postgresql://user:secret@db", "down")
        if self.hangs:
            await anyio.sleep_forever()
        return await super().head(run)


def test_the_event_loop_stands_still() -> None:
    """A worker whose event loop is blocked is not alive after a minute."""
    now = 0.0
    pulse = Pulse(lambda: now)
    now = READY_WITHIN + 1
    assert "the event loop has not turned for 11 s" == pulse.trouble()
    now = TURN_WITHIN + 1
    assert "the event loop has not turned for 61 s" == pulse.death()


def test_a_store_is_observed() -> None:
    """Its results and errors are passed on, and counted by kind."""

    async def main() -> None:
        metrics = WorkerMetrics()
        store = Failing(now=anyio.current_time)
        observed = metrics.observed(store)
        assert 0 == (await observed.head("r")).seq
        assert [] == [chunk async for chunk in observed.runs()]
        store.fails = True
        with pytest.raises(StoreUnavailable):
            await observed.head("r")
        labels = {"method": "head", "error": "StoreUnavailable"}
        assert 1 == metrics.registry.get_sample_value("refold_store_errors_total", labels)
        metrics.take(Failed("r", "gone", lost=True))
        metrics.take(Failed("r", "broken"))
        metrics.take(Failed("", "the search for runs failed"))  # an error of the store, counted there
        for name in ("leases_lost", "runs_failed"):
            assert 1 == metrics.registry.get_sample_value(f"refold_worker_{name}_total")

    virtual.in_no_time(main)


def test_every_metric_is_documented() -> None:
    """The page lists exactly the metrics of ours, each with its kind; names follow Prometheus's rules."""
    body = WorkerMetrics().page("").body.decode()
    families = {each.name: each.type for each in text_string_to_metric_families(body)}
    ours = {name: kind for name, kind in families.items() if name.startswith("refold_")}
    ours = {f"{name}_total" if kind == "counter" else name: kind for name, kind in ours.items()}
    ours = {name: kind for name, kind in ours.items() if not name.endswith("_created")}
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", DOCUMENTED.read_text(encoding="utf-8"), re.MULTILINE)
    assert ours == dict(rows)


def test_formats_of_metrics() -> None:
    """A scraper gets the format that it asks for."""
    metrics = WorkerMetrics()
    assert metrics.page("").type.startswith("text/plain; version=")
    modern = metrics.page("application/openmetrics-text; version=1.0.0")
    assert modern.type.startswith("application/openmetrics-text; version=1.0.0")
    assert modern.body.endswith(b"# EOF\n")


def test_without_the_library(refold: Refold, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What to install is said, before a store is opened."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    ran = refold("worker", "--listen", "0", "--store", store)
    assert 2 == ran.code
    assert "pip install 'refold[metrics]'" in ran.err


def test_a_worker_that_does_not_listen_loads_neither(store: Path) -> None:
    """Only `--listen` loads an HTTP server and the library for metrics."""
    queued(store)
    code = (
        "import sys; from refold.console.main import main; "
        f"assert main(['worker', '--until-idle', '--store', {str(store)!r}]) == 0; "
        "print(sorted({'http.server', 'prometheus_client'} & set(sys.modules)))"
    )
    done: Any = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]" == done.stdout.strip()
