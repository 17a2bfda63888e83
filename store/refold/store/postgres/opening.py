"""Checks of a schema before it is used, its creation, and what the server promises."""

from collections.abc import Iterator

import psycopg

from refold.store.durability import Durability
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
                f"the database has no schema {link.address.schema!r}: `refold run` or `refold import` creates it, "
                "or name another with ?schema=NAME"
            )
            raise NotAStore(link.shown, problem)
        _create(link)
    check_shape(link, to_read=readonly)


def check_shape(link: Link, *, to_read: bool) -> None:
    """Raise `NotAStore` for another version, `DamagedStore` for changed tables or triggers.

    With `to_read`, triggers are ignored: a reader must still be able to examine a store that was edited
    after a trigger was removed.
    """
    described = _for_schema(link, schema.FOUND_COLUMNS)
    found = {_text(name): _text(columns) for name, columns, _ in described}
    keys = {_text(name): _text(columns) for name, columns in _for_schema(link, schema.FOUND_KEYS)}
    if "meta" not in found or len(found) < 2:
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
    plain = {_text(name) for name, _, plain in described if plain}
    for table, columns in schema.COLUMNS.items():
        if found.get(table) != columns or keys.get(table) != schema.KEYS.get(table) or table not in plain:
            raise DamagedStore(link.shown, f"table {table!r} differs from a store's: the schema was changed")
    if not to_read and (problem := trigger_problem(link)):
        raise DamagedStore(link.shown, problem)


def trigger_problem(link: Link) -> str:
    """Return which of the triggers that forbid changes differs from those of a store; "" for none."""
    found = dict[str, tuple[str, str]]()
    for definition, source, enabled in _for_schema(link, schema.FOUND_TRIGGERS):
        found[_text(definition).replace('"', "")] = _text(source), _text(enabled)
    for trigger in schema.TRIGGERS:
        definition = trigger.replace("{s}", link.address.schema)
        function = definition.split(".")[-1].removesuffix("()")
        source, enabled = found.pop(definition, ("", ""))
        if source != schema.FUNCTIONS[function] or enabled not in ("O", "A"):
            name = trigger.split()[2]
            return f"trigger {name!r}, which forbids changes of the log, is missing, disabled or different"
    for definition in found:
        return f"trigger {definition.split()[2]!r} is not a store's, and may change what is written"
    ((role,),) = link.execute(schema.REPLICATION_ROLE)
    if _text(role) == "replica":
        return "session_replication_role is replica for this role or database, so no trigger fires"
    return ""


def durability(link: Link) -> Durability:
    """Return what the server promises: see `Store.durability`."""
    found = dict(_settings(link))
    names = "server_version", "fsync", "full_page_writes", "synchronous_commit", "synchronous_standby_names"
    settings = [(name.removeprefix("server_"), found[name] or "none") for name in names]
    standbys = [(_text(name), _text(state or b"unknown")) for name, state in link.execute(schema.STANDBYS)]
    settings += [("data_checksums", found["data_checksums"])]
    settings += [("standbys", ", ".join(f"{name} ({state})" for name, state in standbys))] if standbys else []
    flushed = found["fsync"] == "on" and found["synchronous_commit"] != "off"
    waits = bool(found["synchronous_standby_names"]) and found["synchronous_commit"] not in ("off", "local")
    copied = waits and found["synchronous_commit"] in ("on", "remote_apply")
    # An unprivileged role sees the connected standbys without their state.
    stalled = waits and not any(state in ("sync", "quorum", "unknown") for _, state in standbys)
    ((now,),) = link.execute(schema.TIME)
    trigger = trigger_problem(link)
    standby = found.get("in_hot_standby") == "on"  # the settings that count are the primary's
    return Durability(
        power_cut=None if standby else flushed,
        loss=None if standby else flushed and copied,
        refuses_edits=not trigger,
        stalled=stalled and not standby,
        gaps=tuple(_gaps(found, copied=copied, trigger=trigger)),
        settings=tuple(settings),
        clock=now / 1000,
    )


def _gaps(found: dict[str, str], *, copied: bool, trigger: str) -> Iterator[str]:
    if found.get("in_hot_standby") == "on":
        yield "that this is the newest state: the server is a standby, which may be behind"
        yield "what acknowledged events survive: a standby does not know the settings of its primary"
        return
    if found["fsync"] != "on":
        yield "that acknowledged events survive a power cut: the server runs with fsync off"
    elif found["synchronous_commit"] == "off":
        yield "that acknowledged events survive a power cut: synchronous_commit is off"
    if found["full_page_writes"] != "on":
        yield "that a power cut leaves the server's pages intact: full_page_writes is off"
    if found["data_checksums"] != "on":
        yield "that the server notices damaged pages: data checksums are off"
    if not copied:
        yield "that acknowledged events survive a failover: the server waits for no synchronous standby"
    if trigger:
        yield f"that the server refuses edits: {trigger}"


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
