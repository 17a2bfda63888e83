"""What may be asked of a store at all: the rules that every store checks before it looks at a log."""

import re
from collections.abc import Sequence

from refold.reducers.errors import WrongUse
from refold.store.protocol import Lease, Record

MAX_SEQ = 2**32 - 1
"""The most events of a run: a stored key has 32 bits for the event's number."""

# Ids stand in lines and in messages: none may end the line, or tell a terminal what to do.
_UNNAMEABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")

_MIN_AT, _MAX_AT = -(2**63), 2**63 - 1


def check_append(run: str, expected_seq: int, lease: Lease, records: Sequence[Record]) -> None:
    """Refuse an append that no log can take. Raises `WrongUse`; nothing was written then."""
    check_run(run)
    if lease.run != run:
        raise WrongUse(f"run {run}: the lease is for run {lease.run!r}; take one with `lease({run!r})`")
    if not records:
        raise WrongUse(f"run {run}: an append needs at least one record")
    if expected_seq < 0 or expected_seq + len(records) > MAX_SEQ:
        raise WrongUse(
            f"run {run}: expected_seq {expected_seq} is not between 0 and {MAX_SEQ - len(records)}"
        )
    for index, record in enumerate(records):
        if problem := _problem(record):
            raise WrongUse(f"run {run}: record {index} of the append ({record.kind!r}): {problem}")


def check_run(run: str) -> None:
    """Refuse an id that cannot name a run. Raises `WrongUse`."""
    if not can_name(run):
        raise WrongUse(
            f"run id {run!r}: expected text that is not empty and has no control character, line break or lone surrogate"
        )


def can_name(run: str) -> bool:
    """Whether a run may have this id."""
    return bool(run) and not _UNNAMEABLE.search(run) and _is_utf8(run)


def check_prefix(prefix: str) -> None:
    """Refuse the beginning of an id that no id can begin with. Raises `WrongUse`."""
    if prefix:
        check_run(prefix)


def _problem(record: Record) -> str | None:
    # A kind is an identifier, so that a damaged one (read back with escapes) never looks like a whole one.
    if not (record.kind.isascii() and record.kind.isidentifier()):
        return "a kind is letters, digits and underscores"
    if not _MIN_AT <= record.at <= _MAX_AT:
        return f"at is {record.at}, beyond 64 bits"
    return _text_problem("body", record.body) or _text_problem("content", record.content or b"")


def _text_problem(name: str, value: bytes) -> str | None:
    # NUL would hide what follows from SQLite's text functions and from its shell. JSON text has none.
    if 0 in value:
        return f"the {name} has a NUL byte at {value.index(0)}; JSON writes it as \\u0000"
    if value.isascii():
        return None
    try:
        value.decode()
    except UnicodeDecodeError as error:
        return f"the {name} is not UTF-8 at byte {error.start}"
    return None


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
