"""One connection to PostgreSQL: opened when needed, opened again when lost, with a time limit of its own.

A server that waits for a dead standby answers nothing, and its `statement_timeout` does not end that wait. So
every statement has a limit here; at the limit the connection is closed.

A statement on a connection that was lost may have been committed: `Lost` says so, and the caller finds out.
`Unconfirmed` is a commit of which the server says that a standby may not have it.
"""

import os
import random
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import psycopg
from psycopg import errors
from psycopg.abc import PQGen
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict

from refold.reducers.errors import WrongUse
from refold.store.postgres import schema
from refold.store.postgres.address import PostgresAddress
from refold.store.postgres.problems import (
    DAMAGED,
    LOST_STATES,
    PROBLEMS,
    STANDBY,
    brief,
    is_final,
    is_starting,
)
from refold.store.protocol import DamagedStore, StoreUnavailable

LIMIT = 10.0
"""Seconds that a statement may take. Reading a page takes milliseconds."""
RATE = 10**6
"""Bytes of a statement's parameters that add a second to its limit."""
PATIENCE = 30.0
"""Seconds for which a lost connection is opened again before a call fails: a failover takes less."""
CONNECT = 5
"""Seconds that the connection to one host may take, unless the address says otherwise."""

OPENING = 3.0
"""Seconds for which the first connection is tried: a wrong address should fail soon."""

_NOTICED = 2000  # milliseconds after which the server notices that a client is gone
_PAUSES = (0.05, 2.0)  # seconds before the second attempt, and at most

SqlRow = tuple[Any, ...]
P = ParamSpec("P")
T = TypeVar("T")


class Lost(Exception):
    """The connection was lost, or the server did not respond in time."""


class Unconfirmed(Lost):
    """The commit is on the primary, and a standby that should have it may not have it."""


# The transaction was rolled back, and may be tried again at once.
_AGAIN = (errors.DeadlockDetected, errors.SerializationFailure)


class _Bytes(Loader):
    """Loads text as bytes, unchanged."""

    def load(self, data: Any) -> bytes:
        return bytes(data)


class _Connection(psycopg.Connection[SqlRow]):
    limit: float | None = LIMIT
    pid = 0

    def __del__(self, *_: Any) -> None:
        if self.pid == os.getpid():  # a forked process does not own the connections that it inherited
            super().__del__()

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        return super().wait(gen, interval, self.limit if timeout is None else timeout)


class Link:
    """The connection of one thread."""

    limit = LIMIT

    def __init__(
        self, address: PostgresAddress, durability: Literal["fsync", "process"], *, patience: float = PATIENCE
    ) -> None:
        self.address, self._durability, self.patience = address, durability, patience
        self._connection: _Connection | None = None
        self._warned = False
        self.pooled = False
        """Whether a pooler may give each transaction another session of the server."""
        self._was_open = False
        self.closing = threading.Event()
        """Set when the store is being closed: a lost connection is not opened again."""
        self._pid = os.getpid()
        # Why and when the connection was lost, until it is open again.
        self._lost, self._lost_at = "", float("-inf")
        self._since: float | None = None
        self._is_abandoned: Callable[[], bool] = bool
        self.cut_at = float("-inf")
        """When claims were last cut: see `changes.take_due`."""
        self.listening: object = None
        """The connection that receives notices, if it is still the same."""

    @property
    def shown(self) -> str:
        """The address, for messages."""
        return self.address.shown

    @property
    def foreign(self) -> bool:
        """Whether the store was opened in another process, from which this one was forked."""
        return os.getpid() != self._pid

    def check_process(self) -> None:
        """Raise `WrongUse` if the thread of this link is in another process."""
        if self.foreign:
            raise WrongUse(f"store {self.shown}: it was opened in another process; open it again here")

    def connect(self) -> _Connection:
        """Return the open connection, and open it if needed. Raises `Lost`, `StoreUnavailable`."""
        if self.foreign:
            self.drop()
            self._pid = os.getpid()
        if self._connection is not None and not self._connection.closed:
            return self._connection
        if self._lost and self.closing.is_set():
            raise StoreUnavailable(self.shown, f"the store was closed while it retried: {self._lost}")
        given = conninfo_to_dict(self.address.conninfo)
        more: dict[str, Any] = {
            "connect_timeout": CONNECT,
            "tcp_user_timeout": round(self.limit * 1000),
            "fallback_application_name": "refold",
            "client_encoding": "UTF8",
        }
        try:
            opened = _Connection.connect(
                self.address.conninfo,
                autocommit=True,
                **{name: value for name, value in more.items() if name not in given},
            )
            opened.limit, opened.pid = self.limit, os.getpid()
            self._connection = opened
            self._find_pooler(opened)
            self._configure(opened)
        except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.ProgrammingError) as error:
            if is_final(error):
                self.drop()
                raise StoreUnavailable(self.shown, f"cannot connect: {brief(error)}") from error
            raise self._lose(brief(error)) from error
        for name in ("text", "name", "varchar"):
            opened.adapters.register_loader(name, _Bytes)
        opened.add_notice_handler(self._notice)
        self._was_open, self._lost = True, ""
        return opened

    def execute(
        self, statement: str, parameters: Sequence[Any] = (), *, limited: bool = True
    ) -> list[SqlRow]:
        """Run one statement, and return its rows. Without `limited` it may take any time.

        Its limit grows with its parameters: the server reads 200 MB in more than `LIMIT`.

        Raises `Lost`, `Unconfirmed`, and `psycopg.Error` if the statement failed and changed nothing.
        """
        limit = self.limit + sum(len(each) for each in parameters if isinstance(each, str | bytes)) / RATE
        while True:
            connection = self.connect()
            connection.limit, self._warned = limit if limited else None, False
            try:
                cursor = connection.execute(
                    schema.in_schema(statement, self.address.schema), parameters or None
                )
                found = cursor.fetchall() if cursor.description else []
            except _AGAIN as error:
                if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                    raise Lost(brief(error)) from error  # the whole transaction is run again
                continue
            except errors.ReadOnlySqlTransaction as error:
                raise self._lose(STANDBY) from error  # the next attempt may find a new primary
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                if not _is_lost(connection, error):
                    raise
                raise self._lose(brief(error)) from error
            if self._warned:
                raise Unconfirmed("the server did not wait for its synchronous standby")
            return found

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Run statements in one transaction. `Lost` before its end means that nothing was written.

        If the connection is lost while committing, raises `StoreUnavailable` with an unknown outcome.
        """
        self.execute("BEGIN")
        try:
            yield
        except BaseException:
            with suppress(psycopg.Error, Lost):
                if self._connection is not None and not self._connection.closed:
                    self.execute("ROLLBACK")
            raise
        try:
            self.execute("COMMIT")
        except Lost as error:
            problem = f"it is unknown whether the last change was committed ({error}): read it again"
            raise StoreUnavailable(self.shown, problem, outcome_known=False) from error

    def retry(self, function: Callable[Concatenate["Link", P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function on this link, again while the connection is lost, for at most `patience`.

        Only for functions that may be run twice. Raises `StoreUnavailable` and `DamagedStore`.
        """
        pauses = self.pauses()
        if self._lost and self._lost_at >= pauses.begun and pauses.over:
            raise unreachable(self.shown, Lost(self._lost))  # another call found out while this one waited
        while True:
            try:
                return function(self, *args, **kwargs)
            except Lost as error:
                wrong = not (self._was_open or is_starting(error))
                if (wrong and time.monotonic() - pauses.begun >= OPENING) or not pauses.sleep():
                    raise unreachable(self.shown, error) from error
            except psycopg.Error as error:
                raise translate(self.shown, error) from error

    @contextmanager
    def on_behalf(self, since: float, is_abandoned: Callable[[], bool]) -> Generator[None]:
        """Count the patience of calls in this block from `since`; end retries once `is_abandoned()`."""
        self._since, self._is_abandoned = since, is_abandoned
        try:
            yield
        finally:
            self._since, self._is_abandoned = None, bool

    def pauses(self) -> "Pauses":
        """Return the pauses between the attempts of a call that begins now, or as `on_behalf` says."""
        return Pauses(self.patience, since=self._since, closing=self.closing, is_abandoned=self._is_abandoned)

    def wait_for_notice(self, seconds: float) -> bool:
        """Wait at most `seconds`; return whether a notice came. Raises `Lost`."""
        connection = self.connect()
        try:
            return any(True for _ in connection.notifies(timeout=seconds, stop_after=1))
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            raise self._lose(brief(error)) from error

    def _lose(self, problem: str) -> Lost:
        self.drop()
        self._lost, self._lost_at = problem, time.monotonic()
        return Lost(problem)

    def drop(self) -> None:
        """Close the connection; the next statement opens another. The other process's is only forgotten."""
        connection, self._connection = self._connection, None
        if connection is not None and not self.foreign:
            with suppress(psycopg.Error):
                connection.close()

    def _notice(self, notice: errors.Diagnostic) -> None:
        # "canceling wait for synchronous replication": by an operator, or because the server stops.
        if notice.severity_nonlocalized == "WARNING" and notice.sqlstate in ("01000", "57P01"):
            self._warned = True

    def _find_pooler(self, connection: _Connection) -> None:
        """Without a session of our own, no statement is prepared: another client's may have the same name."""
        row = connection.execute("SELECT pg_backend_pid()").fetchone()
        self.pooled = row != (connection.info.backend_pid,)
        connection.prepare_threshold = None if self.pooled else 3

    def _configure(self, connection: _Connection) -> None:
        if self.pooled:  # the settings would be another client's
            return
        # A session that waits for a row keeps waiting when its client gave up; the attempts that follow would
        # use up the server's connections. Some systems cannot notice, and older servers lack the setting.
        with suppress(errors.InvalidParameterValue, errors.UndefinedObject, errors.FeatureNotSupported):
            connection.execute(f"SET client_connection_check_interval = {_NOTICED}".encode())
        (found,) = connection.execute("SHOW synchronous_commit").fetchone() or ("",)
        wanted = {"process": "off", "fsync": "on" if found == "off" else found}[self._durability]
        if found != wanted:
            connection.execute(f"SET synchronous_commit = {wanted}".encode())


class Pauses:
    """Growing pauses with jitter between attempts, for some seconds in all from `since`, by default now.

    They end when `closing` is set, and once `is_abandoned()`.
    """

    def __init__(
        self,
        seconds: float,
        *,
        since: float | None = None,
        closing: threading.Event | None = None,
        is_abandoned: Callable[[], bool] = bool,
    ) -> None:
        self.begun = time.monotonic() if since is None else since
        self._until, self._pause = self.begun + seconds, _PAUSES[0]
        self._closing, self._is_abandoned = closing or threading.Event(), is_abandoned

    @property
    def over(self) -> bool:
        """Whether there is no further attempt."""
        return time.monotonic() >= self._until or self._closing.is_set() or self._is_abandoned()

    def sleep(self) -> bool:
        """Wait before the next attempt; False if there is none."""
        if self.over:
            return False
        left = max(0.0, self._until - time.monotonic())
        self._closing.wait(min(left, self._pause * random.uniform(0.5, 1.5)))  # noqa: S311 - no secret
        self._pause = min(2 * self._pause, _PAUSES[1])
        return not (self._closing.is_set() or self._is_abandoned())


def unreachable(shown: str, error: Lost, *, outcome_known: bool = True) -> StoreUnavailable:
    """Return the error after the last attempt."""
    after = "" if outcome_known else "; it is unknown whether the last append was committed"
    return StoreUnavailable(
        shown, f"the server cannot be reached: {error}{after}", outcome_known=outcome_known
    )


def unsettled(shown: str, error: Exception) -> StoreUnavailable:
    """Return the error for an append whose outcome an error prevented finding out."""
    problem = f"it is unknown whether the last append was committed, because: {error}"
    return StoreUnavailable(shown, problem, outcome_known=False)


def translate(shown: str, error: psycopg.Error) -> StoreUnavailable | DamagedStore:
    """Return our own error for a statement that failed and changed nothing."""
    detail = f" (PostgreSQL: {brief(error)}; {error.sqlstate})"
    for kind, problem in PROBLEMS:
        if isinstance(error, kind):
            return StoreUnavailable(shown, problem + detail)
    if isinstance(error, DAMAGED):
        return DamagedStore(shown, f"its tables differ from those of a store{detail}")
    return StoreUnavailable(shown, f"PostgreSQL failed{detail}")


def _is_lost(connection: _Connection, error: psycopg.Error) -> bool:
    return connection.closed or connection.broken or error.sqlstate is None or error.sqlstate in LOST_STATES
