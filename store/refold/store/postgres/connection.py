"""One connection to PostgreSQL: opened when needed, opened again when lost, with a time limit of its own.

A server that waits for a dead standby answers nothing, and its `statement_timeout` does not end that wait. So
every statement has a limit here; at the limit the connection is closed.

A statement on a connection that was lost may have been committed: `Lost` says so, and the caller finds out.
`Unconfirmed` is a commit of which the server says that a standby may not have it.
"""

import random
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
from refold.store.protocol import DamagedStore, NotAStore, StoreUnavailable

LIMIT = 10.0
"""Seconds that a statement may take. Reading a page takes milliseconds."""
PATIENCE = 30.0
"""Seconds for which a lost connection is opened again before a call fails: a failover takes less."""
CONNECT = 5
"""Seconds that the connection to one host may take, unless the address says otherwise."""

OPENING = 3.0
"""Seconds for which the first connection is tried: a wrong address should fail soon."""

_NOTICED = 2000  # milliseconds after which the server notices that a client is gone
_PAUSES = (0.05, 2.0)  # seconds before the second attempt, and at most

STANDBY = (
    "the server is a standby, which accepts no writes: name the primary, or all servers with "
    "target_session_attrs=read-write"
)
SILENT = (
    "the server does not respond. If it waits for a synchronous standby, `refold doctor` names that: start the "
    "standby, or change synchronous_standby_names"
)

SqlRow = tuple[Any, ...]
P = ParamSpec("P")
T = TypeVar("T")


class Lost(Exception):
    """The connection was lost, or the server did not respond in time."""


class Unconfirmed(Lost):
    """The commit is on the primary, and a standby that should have it may not have it."""


# The server ends, starts, or is a standby: the next attempt may find another one.
_LOST_STATES = ("57P01", "57P02", "57P03", "57P05", "25006", "08000", "08001", "08003", "08004", "08006")
# The transaction was rolled back, and may be tried again at once.
_AGAIN = (errors.DeadlockDetected, errors.SerializationFailure)
_PROBLEMS: tuple[tuple[type[psycopg.Error], str], ...] = (
    (errors.DiskFull, "the server's disk is full: free some space, then retry"),
    (
        errors.InsufficientPrivilege,
        "this role lacks a privilege: grant it the role for its work, as in examples/deploy/roles.sql",
    ),
    (
        errors.TooManyConnections,
        "the server has too many connections: use a pooler, or raise max_connections",
    ),
    (errors.QueryCanceled, "the server cancelled the statement"),
    (errors.OutOfMemory, "the server is out of memory"),
    (errors.ProgramLimitExceeded, "an event is too large: a body and a payload have at most 256 MiB each"),
)
_DAMAGED = (
    errors.UndefinedTable,
    errors.UndefinedColumn,
    errors.UndefinedFunction,
    errors.DatatypeMismatch,
    errors.IntegrityError,
    errors.InvalidSchemaName,
)


class _Bytes(Loader):
    """Loads text as bytes, unchanged."""

    def load(self, data: Any) -> bytes:
        return bytes(data)


class _Connection(psycopg.Connection[SqlRow]):
    limit: float | None = LIMIT

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
        self.listening: object = None
        """The connection that receives notices, if it is still the same."""

    @property
    def shown(self) -> str:
        """The address, for messages."""
        return self.address.shown

    def connect(self) -> _Connection:
        """Return the open connection, and open it if needed. Raises `Lost`, `StoreUnavailable`."""
        if self._connection is not None and not self._connection.closed:
            return self._connection
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
            opened.limit = self.limit
            self._connection = opened
            self._find_pooler(opened)
            self._configure(opened)
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            self.drop()
            if _is_final(error):
                raise StoreUnavailable(self.shown, f"cannot connect: {_brief(error)}") from error
            raise Lost(_brief(error)) from error
        for name in ("text", "name", "varchar"):
            opened.adapters.register_loader(name, _Bytes)
        opened.add_notice_handler(self._notice)
        self._was_open = True
        return opened

    def execute(
        self, statement: str, parameters: Sequence[Any] = (), *, limited: bool = True
    ) -> list[SqlRow]:
        """Run one statement, and return its rows. Without `limited` it may take any time.

        Raises `Lost`, `Unconfirmed`, and `psycopg.Error` if the statement failed and changed nothing.
        """
        while True:
            connection = self.connect()
            connection.limit, self._warned = self.limit if limited else None, False
            try:
                cursor = connection.execute(
                    schema.in_schema(statement, self.address.schema), parameters or None
                )
                found = cursor.fetchall() if cursor.description else []
            except _AGAIN as error:
                if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                    raise Lost(_brief(error)) from error  # the whole transaction is run again
                continue
            except errors.ReadOnlySqlTransaction as error:
                self.drop()  # after a failover, the next attempt may find the new primary
                raise Lost(STANDBY) from error
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                if not _is_lost(connection, error):
                    raise
                self.drop()
                raise Lost(_brief(error)) from error
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
        begun, pauses = time.monotonic(), Pauses(self.patience)
        while True:
            try:
                return function(self, *args, **kwargs)
            except Lost as error:
                wrong = not (self._was_open or _is_starting(error))
                if (wrong and time.monotonic() - begun >= OPENING) or not pauses.sleep():
                    raise unreachable(self.shown, error) from error
            except psycopg.Error as error:
                raise translate(self.shown, error) from error

    def wait_for_notice(self, seconds: float) -> bool:
        """Wait at most `seconds`; return whether a notice came. Raises `Lost`."""
        connection = self.connect()
        try:
            return any(True for _ in connection.notifies(timeout=seconds, stop_after=1))
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            self.drop()
            raise Lost(_brief(error)) from error

    def drop(self) -> None:
        """Close the connection; the next statement opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
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
    """Growing pauses with jitter between attempts, for some seconds in all."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._pause = _PAUSES[0]

    def sleep(self) -> bool:
        """Wait before the next attempt; False if the time is over."""
        left = self._until - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(left, self._pause * random.uniform(0.5, 1.5)))  # noqa: S311 - jitter is no secret
        self._pause = min(2 * self._pause, _PAUSES[1])
        return True


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
    detail = f" (PostgreSQL: {_brief(error)}; {error.sqlstate})"
    for kind, problem in _PROBLEMS:
        if isinstance(error, kind):
            return StoreUnavailable(shown, problem + detail)
    if isinstance(error, _DAMAGED):
        return DamagedStore(shown, f"its tables differ from those of a store{detail}")
    return StoreUnavailable(shown, f"PostgreSQL failed{detail}")


def check_conninfo(address: PostgresAddress) -> None:
    """Raise `WrongUse` for settings that libpq does not know."""
    try:
        conninfo_to_dict(address.conninfo)
    except psycopg.Error as error:
        raise WrongUse(f"store {address.shown!r}: {_brief(error)}") from error


def not_a_store(shown: str, problem: str) -> NotAStore:
    """Return the error for a schema that is no store."""
    return NotAStore(shown, problem)


def _is_lost(connection: _Connection, error: psycopg.Error) -> bool:
    return connection.closed or connection.broken or error.sqlstate is None or error.sqlstate in _LOST_STATES


def _is_final(error: psycopg.Error) -> bool:
    """Return whether another attempt to connect would fail in the same way: a wrong name or password."""
    final = (
        "password authentication failed",
        "does not exist",
        "no pg_hba.conf entry",
        "no password supplied",
    )
    return any(each in str(error) for each in final)


def _is_starting(error: Lost) -> bool:
    """Return whether a server is there, and will probably be usable soon."""
    soon = (
        "starting up",
        "not yet accepting connections",
        "recovery mode",
        "shutting down",
        "session is read-only",
    )
    return any(each in str(error) for each in soon)


def _brief(error: BaseException) -> str:
    """Return an error's message in one line. libpq never puts the password into one."""
    if "wait timeout expired" in str(error):  # our own limit
        return SILENT
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    if primary:
        return primary
    return "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
