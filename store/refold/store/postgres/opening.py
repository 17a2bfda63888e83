"""Checks of a schema before it is used, its creation, and what the server promises."""

import msgspec
import psycopg

from refold.store.postgres import schema
from refold.store.postgres.connection import Link, SqlRow
from refold.store.protocol import DamagedStore, NotAStore, StoreUnavailable


def open_schema(link: Link, *, readonly: bool) -> None:
    """Check the schema, and create it if it does not exist.

    Raises `NotAStore` with nothing changed, `DamagedStore`, `StoreUnavailable`.
    """
    encoding = dict(_settings(link))["server_encoding"]
    if encoding != "UTF8":
        problem = f"its encoding is {encoding}, which changes text: create a database with ENCODING 'UTF8'"
        raise NotAStore(link.shown, problem)
    if not _tables(link):
        if readonly:
            problem = (
                f"the database has no schema {link.address.schema!r} of refold: no run was ever stored there"
            )
            raise NotAStore(link.shown, problem)
        _create(link)
    check_shape(link, to_read=readonly)


def check_shape(link: Link, *, to_read: bool) -> None:
    """Raise `NotAStore` for another version, `DamagedStore` for changed tables or triggers.

    With `to_read`, triggers are ignored: a reader must still be able to examine a store that was edited
    after a trigger was removed.
    """
    found = {_text(name): _text(columns) for name, columns in _for_schema(link, schema.FOUND_COLUMNS)}
    if found.get("meta") != schema.COLUMNS["meta"] or len(found) < 2:
        problem = f"its schema {link.address.schema!r} is not refold's: name another with ?schema=NAME"
        raise NotAStore(link.shown, problem)
    versions = [version for (version,) in link.execute(schema.META)]
    if versions != [schema.VERSION]:
        if len(versions) == 1 and versions[0] > schema.VERSION:
            problem = (
                f"has schema {versions[0]}, and this refold supports {schema.VERSION}: install a newer refold"
            )
            raise NotAStore(link.shown, problem)
        raise DamagedStore(link.shown, f"table 'meta' has {versions}, expected [{schema.VERSION}]")
    for table, columns in schema.COLUMNS.items():
        if found.get(table) != columns:
            raise DamagedStore(link.shown, f"table {table!r} differs from a store's: the schema was changed")
    if not to_read and (problem := trigger_problem(link)):
        raise DamagedStore(link.shown, problem)


def trigger_problem(link: Link) -> str:
    """Return which trigger that forbids changes is missing, disabled or different; "" for none."""
    found = {_text(name): _text(source) for name, source in _for_schema(link, schema.FOUND_TRIGGERS)}
    for trigger in schema.TRIGGERS:
        name, function = trigger.split()
        if found.get(trigger) != schema.FUNCTIONS[function]:
            return f"trigger {name!r}, which forbids changes of the log, is missing, disabled or different"
    return ""


class ServerPromises(msgspec.Struct, frozen=True, kw_only=True):
    """What a returned append survives, by the server's settings now.

    `standbys` are the connected standbys with their state (`sync`, `quorum`, `potential`, `async`); only a
    superuser or a member of `pg_monitor` sees them, so the list may be empty.
    """

    version: str
    fsync: bool
    full_page_writes: bool
    synchronous_commit: str
    synchronous_standbys: str
    data_checksums: bool
    standby: bool
    standbys: tuple[tuple[str, str], ...]

    @property
    def survives_power_cut(self) -> bool:
        """Whether a returned append survives a power cut of the primary."""
        return self.fsync and self.synchronous_commit != "off"

    @property
    def survives_loss(self) -> bool:
        """Whether a returned append survives the loss of the primary's disk: a standby has flushed it."""
        return bool(self.synchronous_standbys) and self.synchronous_commit in ("on", "remote_apply")


def promises(link: Link) -> ServerPromises:
    """Read what the server promises."""
    found = dict(_settings(link))
    standbys = tuple((_text(name), _text(state or b"async")) for name, state in link.execute(schema.STANDBYS))
    return ServerPromises(
        version=found["server_version"],
        fsync=found["fsync"] == "on",
        full_page_writes=found["full_page_writes"] == "on",
        synchronous_commit=found["synchronous_commit"],
        synchronous_standbys=found["synchronous_standby_names"],
        data_checksums=found["data_checksums"] == "on",
        standby=found.get("in_hot_standby") == "on",
        standbys=standbys,
    )


def _create(link: Link) -> None:
    try:
        with link.transaction():
            for statement in schema.TABLES:
                link.execute(statement)
    except (psycopg.errors.DuplicateSchema, psycopg.errors.UniqueViolation) as error:
        if not _tables(link):  # else another process created it at the same time
            problem = (
                f"schema {link.address.schema!r} exists and is empty or another program's: drop it, or name another "
                "with ?schema=NAME"
            )
            raise NotAStore(link.shown, problem) from error
    except psycopg.errors.InsufficientPrivilege as error:
        problem = (
            f"schema {link.address.schema!r} does not exist, and this role may not create it: open the store once "
            "as a role that may"
        )
        raise StoreUnavailable(link.shown, problem) from error


def _tables(link: Link) -> bool:
    return bool(_for_schema(link, schema.FOUND_COLUMNS))


def _for_schema(link: Link, statement: str) -> list[SqlRow]:
    return link.execute(statement, [link.address.schema])


def _settings(link: Link) -> list[tuple[str, str]]:
    return [(_text(name), _text(setting)) for name, setting in link.execute(schema.SETTINGS)]


def _text(value: object) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
