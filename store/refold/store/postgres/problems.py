"""What the errors of PostgreSQL and of libpq mean for a store."""

import psycopg
from psycopg import errors

STANDBY = (
    "the server is a standby, which accepts no writes: name the primary, or all servers with "
    "target_session_attrs=read-write"
)
SILENT = (
    "the server does not respond. If it waits for a synchronous standby, `refold doctor` names that: start the "
    "standby, or change synchronous_standby_names"
)

# The server ends, starts, or is a standby: the next attempt may find another one.
LOST_STATES = ("57P01", "57P02", "57P03", "57P05", "25006", "08000", "08001", "08003", "08004", "08006")
PROBLEMS: tuple[tuple[type[psycopg.Error], str], ...] = (
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
DAMAGED = (
    errors.UndefinedTable,
    errors.UndefinedColumn,
    errors.UndefinedFunction,
    errors.DatatypeMismatch,
    errors.IntegrityError,
    errors.InvalidSchemaName,
)


def is_final(error: psycopg.Error) -> bool:
    """Return whether another attempt to connect would fail too: a wrong name, password or option."""
    if isinstance(error, psycopg.ProgrammingError):
        return True
    final = (
        "password authentication failed",
        "does not exist",
        "no pg_hba.conf entry",
        "no password supplied",
        "invalid integer value",
        "invalid connection option",
        "invalid port number",
        "invalid sslmode value",
        "unrecognized configuration parameter",
    )
    return any(each in str(error) for each in final)


def is_starting(error: Exception) -> bool:
    """Return whether a server is there, and will probably be usable soon."""
    soon = (
        "starting up",
        "not yet accepting connections",
        "recovery mode",
        "shutting down",
        "session is read-only",
    )
    return any(each in str(error) for each in soon)


def brief(error: BaseException) -> str:
    """Return an error's message in one line. libpq never puts the password into one."""
    if "wait timeout expired" in str(error):  # our own limit
        return SILENT
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    if primary:
        return primary
    return "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
