"""A primary PostgreSQL server and its standby, with an address that names both."""

import time
from types import TracebackType
from typing import Self

from storm.places import SYNCED
from support.postgres import PostgresServer, new_schema

_STATES = "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'"
_RECEIVER = "SELECT pid FROM pg_stat_wal_receiver"
# A promotion may wait for the end of the pause before the next attempt to reach a dead primary.
_STANDBY = {"wal_retrieve_retry_interval": "100ms"}
SECONDS = 60.0
"""Seconds that a server may take for what takes it one."""


class Pair:
    """Both servers, while used as a context manager. `synchronous`: a commit waits for the standby."""

    def __init__(self, settings: dict[str, str] | None = None, *, synchronous: bool = True) -> None:
        self._settings, self._synchronous = {**SYNCED, **(settings or {})}, synchronous
        self._servers: list[PostgresServer] = []

    def __enter__(self) -> Self:
        try:
            self.primary = self._add(PostgresServer(self._settings))
            self.standby = self._add(PostgresServer(_STANDBY, copy_of=self.primary))
            if self._synchronous:
                self.wait_for_standby("*")
            self.wait_until_streaming()
        except BaseException:
            self._remove()
            raise
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self._servers)
        self.address = new_schema(
            f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write&connect_timeout=2"
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def wait_for_standby(self, names: str) -> None:
        """Have the primary's commits wait for standbys of these names; "" for none."""
        self.primary.execute(
            f"ALTER SYSTEM SET synchronous_standby_names = '{names}'", "SELECT pg_reload_conf()"
        )

    def wait_until_streaming(self) -> None:
        """Wait until the standby receives what is committed."""
        wanted = "sync" if self._synchronous else "async"
        until = time.monotonic() + SECONDS
        while (wanted,) not in self.primary.execute(_STATES):
            assert time.monotonic() < until, (self.standby.folder / "log").read_text()
            time.sleep(0.05)

    def fail_over(self) -> None:
        """Promote the standby. The primary was killed before."""
        self.standby.promote()

    def receiver(self) -> int:
        """Return the id of the standby's process that receives what is committed."""
        ((pid,),) = self.standby.execute(_RECEIVER)
        assert isinstance(pid, int)
        return pid

    def _add(self, server: PostgresServer) -> PostgresServer:
        self._servers.append(server)
        return server.start()

    def _remove(self) -> None:
        for server in self._servers:
            server.kill()  # one that ends in order would wait for the other
            server.remove()
