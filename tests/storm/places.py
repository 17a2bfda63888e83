"""Where the runs of a storm are: in a SQLite file, or in a PostgreSQL server, which is hit as well."""

import os
import random
import signal
import time
from contextlib import suppress

import psycopg

from refold.store import open_store
from refold.store.base import BaseStore
from refold.store.opening import POSTGRES, store_address
from support.postgres import PostgresServer, new_schema

SYNCED = {"fsync": "on", "full_page_writes": "on", "autovacuum": "on"}
"""What a server in production has, too."""

_SESSIONS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'refold'"
_DOWN = (0.2, 3.0)  # seconds for which a killed server is away, at least and at most
_WHOLE_SERVER = 0.4  # the part of a storm after which the server is killed


async def open_place(address: str, *, readonly: bool = False) -> BaseStore:
    """Open the store of a storm: a file's commits wait for no disk, a server's do."""
    file = store_address(address).scheme != POSTGRES
    return await open_store(address, durability="process" if file else "fsync", readonly=readonly)


class HitServer:
    """A server whose sessions are ended and whose processes are killed, at moments that a seed chooses."""

    def __init__(self, server: PostgresServer) -> None:
        self.server, self.address = server, new_schema(server.address)
        self.killed = self.crashes = self.ended = 0
        """The whole server; one of its processes, for which it ends all sessions; one session."""

    @property
    def hits(self) -> tuple[int, int, int]:
        """How often what was hit."""
        return self.killed, self.crashes, self.ended

    def strike(self, chance: random.Random, part: float) -> None:
        """Hit it in some way; `part` of the storm is over."""
        if part > _WHOLE_SERVER and not self.killed:
            self.server.kill()
            time.sleep(chance.uniform(*_DOWN))
            self.server.start()
            self.killed += 1
            return
        with suppress(psycopg.OperationalError, ProcessLookupError):  # it starts its sessions again just now
            sessions = [pid for (pid,) in self.server.execute(_SESSIONS)]
            if not sessions:
                return
            pid = chance.choice(sessions)
            assert isinstance(pid, int)
            if chance.random() < 0.5:
                os.kill(pid, signal.SIGKILL)
                self.crashes += 1
            else:
                self.server.execute(f"SELECT pg_terminate_backend({pid})")
                self.ended += 1
