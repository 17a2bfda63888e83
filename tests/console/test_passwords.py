"""A password in a store's address is in no output, hint, error, log or file."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from console.conftest import Refold
from support.pairs import SECRET, fill, with_password
from support.postgres import execute


@pytest.mark.parametrize(
    ("address", "code", "problem"),
    [
        pytest.param(f"postgresql://ann:{SECRET}@h:port/d", 2, "HOST[:PORT]", id="no port"),
        pytest.param(f"postgresql://ann:{SECRET}@h/d?nonsense=1", 2, "nonsense", id="an unknown setting"),
        pytest.param(f"postgresql://ann:{SECRET}@h/d?schema=A-b", 2, "schema=A-b", id="a wrong schema"),
        pytest.param(f"postgresql://ann:{SECRET}%@h/d", 2, "write %20 or %25", id="a % that is not encoded"),
        pytest.param(f"postgresql://ann:{SECRET}%00@h/d", 2, "%00", id="a zero byte"),
        pytest.param(f"postgresql://ann:x/{SECRET}@h/d", 2, "postgresql://ann:***@h/d", id="a / that is not"),
        pytest.param(f"postgresql://ann:12345/{SECRET}@h/d", 2, "ann:***@h/d", id="after what may be a port"),
        pytest.param(f"postgresql://ann:x?{SECRET}@h/d", 2, "ann:***@h/d", id="a ? that is not"),
        pytest.param(f"postgresql://ann:{SECRET}#@h/d", 2, "write %23", id="a # that is not"),
        pytest.param(f"postgresql://ann:x@{SECRET}@h/d", 2, "write %40", id="a @ that is not"),
        pytest.param(
            f"postgresql://ann:{SECRET}\u2100@h:1/d", 4, "ann:***@h:1/d", id="a letter that has a slash"
        ),
        pytest.param(f"postgresql+psycopg://ann:{SECRET}@h/d", 2, "unknown scheme", id="a scheme of others"),
        pytest.param(f"postgresql:ann:{SECRET}@h/d", 2, "expected postgresql://", id="no slashes"),
        pytest.param(f" postgresql://ann:{SECRET}@h/d", 2, "looks like a PostgreSQL address", id="a space"),
        pytest.param(f"'postgresql://ann:{SECRET}@h/d'", 2, "looks like a PostgreSQL address", id="quotes"),
        pytest.param(
            f"host=h password={SECRET}", 2, "looks like a PostgreSQL address", id="libpq's other form"
        ),
        pytest.param(f"postgresql://h:1/d?password={SECRET}", 4, "password=***", id="a setting"),
        pytest.param(f"postgresql://h:1/d?password=a&{SECRET}", 2, "password=***&***", id="a setting with &"),
        pytest.param(f"postgresql://h:1/d?password=a%23#{SECRET}", 2, "write %23", id="a setting with #"),
        pytest.param(f"postgresql://h:1/d?passwd={SECRET}", 2, "passwd=***", id="a setting, mistyped"),
        pytest.param(
            f"postgresql://h:1/d?oauth_client_secret={SECRET}", 4, "oauth_client_secret=***", id="a secret"
        ),
    ],
)
@pytest.mark.parametrize("words", [["ls"], ["--debug", "ls"]], ids=["brief", "debug"])
def test_wrong_addresses(
    address: str,
    code: int,
    problem: str,
    words: list[str],
    refold: Refold,
    impatient: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Errors, and the places where they come from, name the address without its password."""
    monkeypatch.setattr("refold.console.main._redact", str)  # it finds most passwords, but not all
    monkeypatch.setenv("REFOLD_STORE", address)
    ran = refold(*words)
    assert (code, True, False) == (ran.code, problem in ran.err, SECRET in ran.out + ran.err), ran


@pytest.mark.parametrize(
    "typed",
    [f"postgresql://ann:{SECRET}@h/d", f" postgresql://ann:{SECRET}@h/d", f"postgres:/ann:{SECRET}@h/d"],
)
@pytest.mark.parametrize("command", ["verify", "audit"])
def test_an_address_in_place_of_a_run(
    typed: str, command: str, refold: Refold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not taken for the path of a bundle, and the error names the option."""
    monkeypatch.setattr("refold.console.main._redact", str)
    ran = refold("--debug", command, typed)
    assert (2, True, False) == (ran.code, "--store" in ran.err, SECRET in ran.out + ran.err), ran


def test_a_server_that_refuses(postgres_address: str, refold: Refold) -> None:
    """So does the error of a server that does not know the role or the database."""
    host = postgres_address.rpartition("@")[2].rpartition("/")[0]
    for address in (
        f"postgresql://nobody_here:{SECRET}@{host}/postgres",
        f"postgresql://postgres:{SECRET}@{host}/nothing_here",
    ):
        ran = refold("--debug", "ls", "--store", address)
        assert (4, False) == (ran.code, SECRET in ran.out + ran.err), ran


def test_a_worker_and_its_status(postgres: str, tmp_path: Path) -> None:
    """A worker as a process: its lines, its log with every logger on, and what it recorded."""
    address = with_password(postgres)
    fill(address)
    script = (
        "import logging, sys; logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)\n"
        "from refold.console.main import main; sys.exit(main(sys.argv[1:]))"
    )
    environment = {**os.environ, "REFOLD_STORE": address, "REFOLD_PRUNE_LOG": "on", "REFOLD_OFFLINE": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", script, "worker", "--until-idle", "--listen", "0"],
        env=environment, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert 0 == ran.returncode, ran.stderr
    assert SECRET not in ran.stdout + ran.stderr
    rows = execute(postgres, "SELECT id, holder FROM {s}.run")
    assert SECRET not in str(rows)


def test_a_certificate(postgres: str, refold: Refold, key: Path, tmp_path: Path) -> None:
    """A signed certificate and a report name the store without its password, or not at all."""
    address = with_password(postgres)
    fill(address)
    certificate = tmp_path / "certificate"
    ran = refold("audit", "--all", "--certificate", certificate, "--key", key, "--store", address)
    assert 0 == ran.code, ran
    assert 0 == refold("report", "r1", "--out", tmp_path / "page.html", "--store", address).code
    for file in (certificate, tmp_path / "page.html"):
        text = file.read_text()
        assert (False, False) == (SECRET in text, "postgres:" in text), file
    diagnosis = json.loads(refold("doctor", "-o", "json", "--store", address).out)
    assert address.replace(SECRET, "***") == diagnosis["store"]


def test_in_no_log(postgres: str, refold: Refold, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing that a library logs at any level has it."""
    address = with_password(postgres)
    caplog.set_level(logging.DEBUG)
    fill(address)
    assert 0 == refold("verify", "--all", "--store", address).code
    assert SECRET not in caplog.text
