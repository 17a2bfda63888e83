"""The files of `examples/deploy`: their commands run, their numbers agree, and systemd knows their keys."""

import configparser
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import anyio
import click
import pytest
import yaml

from refold.console.app import COMMANDS, command_of
from refold.store import SqliteStore

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "examples" / "deploy"
UNIT = DEPLOY / "refold-worker@.service"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
PORT = "9464"
REFOLD = str(Path(sys.executable).with_name("refold"))


def service() -> dict[str, str]:
    """The unit's section `[Service]`."""
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(UNIT, encoding="utf-8")
    return dict(unit["Service"])


def settings() -> dict[str, str]:
    """The unit's environment file."""
    lines = (DEPLOY / "worker.env").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("=", 1) for line in lines if line and not line.startswith("#"))
    return {name: "".join(shlex.split(value)) for name, value in pairs}


def unit_command() -> list[str]:
    """The unit's command, as systemd makes it from the template and the environment file."""
    line = service()["ExecStart"].replace("%i", PORT)
    return [
        part for word in line.split() for part in shlex.split(settings().get(word.removeprefix("$"), word))
    ]


_TYPED = re.compile(r"^\$ docker compose run --rm worker (.+)$", re.MULTILINE)
COMMANDS_TYPED: dict[str, list[str]] = {
    "unit": unit_command()[1:],
    "compose": COMPOSE["services"]["worker"]["command"],
    "README": shlex.split(_TYPED.findall((DEPLOY / "README.md").read_text(encoding="utf-8"))[0]),
}


def option_of(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


@pytest.mark.parametrize("words", COMMANDS_TYPED.values(), ids=COMMANDS_TYPED)
def test_a_command_parses(words: list[str]) -> None:
    """Each command line of refold in these files has options that exist."""
    name, *rest = words
    assert name in COMMANDS
    command = command_of(name)
    with click.Context(command) as context:
        command.parse_args(context, list(rest))


def test_times_to_stop_are_longer_than_drains() -> None:
    """Nothing kills a worker before its drain is over."""
    seconds = re.compile(r"(\d+)s?")
    for words, time_to_stop in (
        (COMMANDS_TYPED["unit"], service()["TimeoutStopSec"]),
        (COMMANDS_TYPED["compose"], COMPOSE["services"]["worker"]["stop_grace_period"]),
    ):
        found = seconds.fullmatch(time_to_stop)
        assert found is not None
        assert int(found[1]) >= float(option_of(words, "--drain")) + 15


def test_ports_agree() -> None:
    """What a worker listens on is what is probed, exposed and scraped."""
    worker = COMPOSE["services"]["worker"]
    scraped = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text(encoding="utf-8"))["scrape_configs"][0]
    (found,) = scraped["dns_sd_configs"]
    assert f"0.0.0.0:{PORT}" == option_of(worker["command"], "--listen")
    assert [PORT] == worker["expose"]
    assert f"127.0.0.1:{PORT}/readyz" in worker["healthcheck"]["test"][-1]
    assert (["worker"], int(PORT)) == (found["names"], found["port"])
    mounted = COMPOSE["services"]["prometheus"]["volumes"][0].split(":")[0]
    assert (DEPLOY / mounted).is_file()


def test_the_image_has_what_its_command_needs() -> None:
    """The extras exist, and the folders that a wheel is built from are sent to the builder."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    found = re.search(r'"/src\[(.*)\]"', text)
    assert found is not None
    assert set(found[1].split(",")) <= set(PROJECT["project"]["optional-dependencies"])
    assert {"metrics", "postgres", "cli"} <= set(found[1].split(","))
    build = COMPOSE["services"]["worker"]["build"]
    assert (ROOT, DEPLOY / "Dockerfile") == (
        (DEPLOY / build["context"]).resolve(),
        ROOT / build["dockerfile"],
    )
    sent = {
        line[1:]
        for line in (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    }
    assert {
        *PROJECT["tool"]["hatch"]["build"]["dev-mode-dirs"],
        "pyproject.toml",
        "README.md",
        "LICENSE",
    } == sent


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """It knows every option, and counts the service among the well protected."""
    unit = tmp_path / f"refold-worker@{PORT}.service"
    unit.write_text(
        UNIT.read_text(encoding="utf-8").replace("/opt/refold/bin/refold", REFOLD), encoding="utf-8"
    )
    checked = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    said = [line for line in checked.stderr.splitlines() if unit.name in line]
    assert (0, []) == (checked.returncode, said)
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=25", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == rated.returncode, rated.stdout[-300:]


def served(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def until(holds: Callable[[], bool]) -> None:
    for _ in range(200):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("waited in vain")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["unit", "compose"])
def test_a_service_runs(name: str, tmp_path: Path, unused_port: int) -> None:
    """Its command starts with its environment, its health check passes, and SIGTERM ends it with code 0."""
    worker = COMPOSE["services"]["worker"]
    probe = worker["healthcheck"]["test"][1:]
    given = settings() if name == "unit" else worker["environment"]
    store = tmp_path / "runs.db"
    anyio.run(_empty, store)
    environment = {**os.environ, **given, "REFOLD_STORE": str(store), "PYTHONWARNINGS": "error"}
    words = [each.replace(PORT, str(unused_port)) for each in COMMANDS_TYPED[name]]
    probe = [sys.executable, *(each.replace(PORT, str(unused_port)) for each in probe[1:])]
    assert 0 != subprocess.run(probe, capture_output=True, check=False).returncode
    with subprocess.Popen([REFOLD, *words], env=environment, cwd=tmp_path, stderr=subprocess.PIPE) as process:
        try:
            until(lambda: process.poll() is not None or served(unused_port))
            assert 0 == subprocess.run(probe, capture_output=True, check=False).returncode
            process.send_signal(signal.SIGTERM)
            assert 0 == process.wait(20)
        finally:
            process.kill()


async def _empty(path: Path) -> None:
    async with await SqliteStore.open(path):
        pass


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
