"""What may be asked of a store at all: the rules that every store checks before it looks at a log."""

import re
from collections.abc import Sequence
from math import ceil

from refold.reducers.errors import WrongUse
from refold.store.chain import DIGEST
from refold.store.protocol import Lease, Record, Seal, SealedHead
from refold.store.verify_bundle import NEWEST

MAX_SEQ = 2**32 - 1
"""The most events of a run: a stored key has 32 bits for the event's number."""

# Ids stand in lines and in messages: none may end the line, or tell a terminal what to do.
_UNNAMEABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")

_MIN_AT, _MAX_AT = -(2**63), 2**63 - 1
_MAX_SECONDS = 1e9


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


def check_erasure(run: str, expected_seq: int, lease: Lease, seqs: Sequence[int], notice: Record) -> None:
    """Refuse an erasure that no log can take. Raises `WrongUse`."""
    check_append(run, expected_seq, lease, [notice])
    if not seqs:
        raise WrongUse(f"run {run}: name the events whose content is to be erased")


def check_run(run: str) -> None:
    """Refuse an id that cannot name a run. Raises `WrongUse`."""
    if not can_name(run):
        raise WrongUse(
            f"run id {run!r}: expected text that is not empty and has no control character, line break or lone surrogate"
        )


def check_new_run(run: str) -> None:
    """Refuse an id for a new run that no command could name: one that means another thing there. Raises `WrongUse`.

    A reader of a log takes any that `check_run` lets by: it may be older, or of another program.
    """
    odd = not run.isprintable() or any(map(str.isspace, run)) or "@" in run
    if not run or odd or run == NEWEST or run.startswith("-") or run.endswith(".zip"):
        problem = "expected printable text without spaces and @, other than *, which neither begins with - nor ends in .zip"
        raise WrongUse(f"run id {run!a}: {problem}: else no command could name it")


def check_holder(holder: str) -> None:
    """Refuse a name that no holder of a lease can have. Raises `WrongUse`."""
    if not can_name(holder):
        raise WrongUse(f"holder {holder!r}: expected text that is not empty, on one line")


def milliseconds(seconds: float) -> int:
    """A span of time as a store counts it, rounded up. Raises `WrongUse`."""
    if not 0 <= seconds <= _MAX_SECONDS:  # false for nan, too
        raise WrongUse(f"{seconds} seconds are not between 0 and {_MAX_SECONDS:.0f}")
    return ceil(seconds * 1000)


def check_erase(run: str, head: int, seq: int, digest: bytes | None) -> None:
    """Refuse to erase what cannot be: `head` is the number of the last event. Raises `WrongUse`."""
    if not 0 < seq <= head:
        raise WrongUse(f"run {run} has no event {seq}: its last is {head}")
    if digest is None:
        raise WrongUse(f"event {seq} of run {run} never had content: there is nothing to erase")


def check_seal(heads: Sequence[SealedHead], seal: Seal) -> None:
    """Refuse entries and a seal that no log of heads can take. Raises `WrongUse`."""
    wanted = range(seal.size - len(heads) + 1, seal.size + 1)
    if [each.place for each in heads] != [*wanted] or wanted.start < 1:
        raise WrongUse(f"the places of the entries do not count up to the seal's size, {seal.size}")
    for each in heads:
        check_run(each.run)
        if not 0 < each.seq <= MAX_SEQ or len(each.hash) != DIGEST:
            raise WrongUse(f"entry {each.place}: an event has a number from 1 and a hash of {DIGEST} bytes")
    if (len(seal.root), len(seal.key), len(seal.signature)) != (DIGEST, 32, 64):
        raise WrongUse("a seal has a root of 32 bytes, a key of 32 and a signature of 64")
    if not _MIN_AT <= seal.at <= _MAX_AT:
        raise WrongUse(f"the seal's time is {seal.at}, beyond 64 bits")


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
    if record.content_digest is not None and (record.content is not None or record.salt):
        return "the digest of an erased content stands beside a content or a salt"
    if record.content_digest is not None and len(record.content_digest) != DIGEST:
        return f"a digest is {DIGEST} bytes long, not {len(record.content_digest)}"
    content = record.content or b""
    both = record.body + content
    if 0 not in both and both.isascii():  # almost always
        return None
    return _text_problem("body", record.body) or _text_problem("content", content)


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
