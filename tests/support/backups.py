"""Backups of a store in PostgreSQL by `pg_dump`, restored into another server."""

import subprocess
from pathlib import Path

from support.postgres import PostgresServer, programs

SCHEMA = "runs"


def address_in(server: PostgresServer) -> str:
    """The address of the store in a server."""
    return f"{server.address}?schema={SCHEMA}"


def begin_backup(server: PostgresServer, file: Path) -> "subprocess.Popen[bytes]":
    """Start a backup of the store to a file."""
    return subprocess.Popen([programs() / "pg_dump", "-d", server.address, "-n", SCHEMA, "-Fc", "-f", file])


def backup(server: PostgresServer, file: Path) -> None:
    """Write a backup of the store to a file."""
    assert 0 == begin_backup(server, file).wait(60)


def restore(server: PostgresServer, file: Path) -> None:
    """Restore a backup into a server that has no store."""
    done = subprocess.run(
        [programs() / "pg_restore", "--exit-on-error", "-d", server.address, file],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert 0 == done.returncode, done.stderr


def replace(server: PostgresServer, by: PostgresServer) -> None:
    """Stop a server for good, and let another answer at its address."""
    server.stop()
    by.stop()
    by.port = server.port
    by.configure({})
    by.start()
