"""Appends in groups: one statement checks every head and token, and inserts the events of those that match.

The statement names the head on which each append builds, with its hash. So it may be sent again when the
outcome of the first attempt is unknown: if that one was committed, the run's head is the append's own, and
nothing is written twice. Before such an append is sent again, or called committed, its run's row is locked
and updated (`schema.CONFIRM`). The lock waits for the first attempt to end, the update excludes a first
attempt that has yet to arrive, and the update's commit waits for the synchronous standby.
"""

from collections.abc import Sequence

import msgspec
import psycopg

from refold.reducers.errors import RefoldError
from refold.store.base import refusal
from refold.store.chain import START, links
from refold.store.chain import Link as EventRow
from refold.store.postgres import reads, schema
from refold.store.postgres.claims import RunRow, read_rows
from refold.store.postgres.connection import Link, Lost, SqlRow, translate, unreachable, unsettled
from refold.store.protocol import DamagedStore, Head, Lease, Record, StoreUnavailable

Outcome = Head | BaseException
"""The head after an append, or the error that the append raises."""

MOST_GROUP_BYTES = 2**29
"""Maximum bytes of one statement's parameters, escaped. The server refuses 1 GiB."""

_MOST_KNOWN = 4096
_ENCODER = msgspec.json.Encoder()


class Append:
    """An append and, in the committing thread, what is known of it."""

    __slots__ = ("expected_seq", "lease", "outcome", "records", "release", "run", "size", "target", "unsure")

    def __init__(
        self, run: str, expected_seq: int, lease: Lease, records: Sequence[Record], *, release: bool
    ) -> None:
        self.run, self.expected_seq, self.lease, self.records = run, expected_seq, lease, records
        self.release = release
        self.size = sum(len(each.body) + len(each.content or b"") for each in records)
        self.outcome: Outcome | None = None
        self.target: Head | None = None  # the head that it leads to
        self.unsure = False  # an attempt may have been committed, or may still be


class Place:
    """Where a run stands, as far as this process knows: a guess that the statement checks."""

    __slots__ = ("epoch", "head", "number", "token")

    def __init__(self, row: RunRow, run: str) -> None:
        self.number, self.token, self.epoch, self.head = row.number, row.token(run), row.epoch, row.head


class Appender:
    """Writes groups of appends. Used by one thread.

    `unsure` are the runs whose last append has an unknown outcome, until `confirm` found it out.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._places: dict[str, Place] = {}
        self.unsure: set[str] = set()

    def forget(self, run: str) -> None:
        """Read the run's row again before its next append: its token changed."""
        self._places.pop(run, None)

    def commit(self, group: Sequence[Append]) -> None:
        """Set the outcome of each append."""
        pauses = self._link.pauses()
        while left := [append for append in group if append.outcome is None]:
            try:
                self._attempt(left)
            except Lost as error:
                self._places.clear()
                if not pauses.sleep():
                    for append in left:
                        self._give_up(append, error)
            except psycopg.Error as error:
                self._places.clear()
                self._fail(left, error)
            except RefoldError as error:  # one run's row is damaged
                self._fail(left, error)

    def confirm(self, run: str) -> None:
        """Find out the outcome of the run's last append. Raises `StoreUnavailable`."""
        if run in self.unsure:
            self._link.retry(_confirm, [run])
            self.unsure.discard(run)

    def _give_up(self, append: Append, error: Lost) -> None:
        if append.unsure:
            self.unsure.add(append.run)
        append.outcome = unreachable(self._link.shown, error, outcome_known=not append.unsure)

    def _fail(self, group: Sequence[Append], error: psycopg.Error | RefoldError) -> None:
        """Try each append alone after a statement failed and changed nothing, so that only one fails."""
        if len(group) > 1:
            for append in group:
                self.commit([append])
            return
        (append,) = group
        known = translate(self._link.shown, error) if isinstance(error, psycopg.Error) else error
        if append.unsure:  # an earlier attempt was lost, and this error prevented finding out
            self.unsure.add(append.run)
            known = unsettled(self._link.shown, known)
        append.outcome = known

    def _attempt(self, group: Sequence[Append]) -> None:
        """Try each append once. Those of which the row changed meanwhile have no outcome yet."""
        fresh = self._look_up(group)
        sent: dict[int, Append] = {}
        appended: list[dict[str, object]] = []
        events: list[dict[str, object]] = []
        size = 0
        for append in group:
            if append.outcome is not None or size > MOST_GROUP_BYTES // 4:
                continue
            place = self._places.get(append.run)
            if place is not None and place.number in sent:
                continue  # it may build on the append before it
            before = self._before(append, place, fresh=append.run in fresh)
            if before is None or place is None:
                continue
            rows = links(append.run, before, append.records)
            append.target = Head(seq=rows[-1][0], hash=rows[-1][3])
            size += append.size
            sent[place.number] = append
            appended.append(append_row(place, append.target, release=append.release))
            events += [event_row(place.number, row) for row in rows]
        if sent:
            self._send(sent, appended, events)

    def _send(
        self, sent: dict[int, Append], appended: list[dict[str, object]], events: list[dict[str, object]]
    ) -> None:
        parameters = _ENCODER.encode(appended), _ENCODER.encode(events)
        if len(parameters[1]) > MOST_GROUP_BYTES:
            problem = f"an append of {len(parameters[1])} bytes is too large: at most {MOST_GROUP_BYTES}"
            for append in sent.values():
                append.outcome = StoreUnavailable(self._link.shown, problem)
            return
        released = any(append.release for append in sent.values())
        statement = schema.APPEND_AND_RELEASE if released else schema.APPEND
        try:
            found = self._link.execute(statement, [each.decode() for each in parameters])
        except Lost:
            for append in sent.values():
                append.unsure = True
            raise
        matched = {number for number, *_ in found}
        self._check_written(sent, found)
        for number, append in sent.items():
            place = self._places.pop(append.run)
            if number in matched and append.outcome is None:
                assert append.target is not None
                append.outcome = append.target
                if not append.release:
                    place.head = append.target
                    self._places[append.run] = place

    def _check_written(self, sent: dict[int, Append], found: Sequence[SqlRow]) -> None:
        """Raise `DamagedStore` if the tables took other rows than were sent, as by a trigger."""
        wanted = {(number, sent[number].target) for number, *_ in found}
        made = {(number, Head(seq=seq, hash=hashed)) for number, seq, hashed, _ in found}
        count = sum(len(sent[number].records) for number, *_ in found)
        if wanted != made or any(added != count for *_, added in found):
            for number, *_ in found:
                sent[number].outcome = changed_rows(self._link.shown)

    def _look_up(self, group: Sequence[Append]) -> set[str]:
        """Read the rows of runs that are not known, and return which. Settles appends that an earlier attempt
        committed.
        """
        if len(self._places) > _MOST_KNOWN:
            self._places.clear()
        unsure = [append for append in group if append.unsure]
        found = dict[str, RunRow]()
        if runs := {append.run for append in group if append.unsure or append.run in self.unsure}:
            found |= _confirm(self._link, sorted(runs))
            self.unsure -= runs
        for append in unsure:
            row = found.get(append.run)
            if row is not None and append.target is not None and row.head == append.target:
                append.outcome = append.target
            append.unsure = False
        unknown = sorted({append.run for append in group if append.run not in self._places} - set(found))
        if unknown:
            names = _ENCODER.encode(unknown).decode()
            found |= read_rows(self._link.shown, self._link.execute(schema.RUNS_NOW, [names]))
        self._places |= {run: Place(row, run) for run, row in found.items()}
        return {*found, *unknown}

    def _before(self, append: Append, place: Place | None, *, fresh: bool) -> Head | None:
        """Return the event that the append follows; None if it is refused, or its place must be read anew."""
        token, seq = (place.token, place.head.seq) if place else (0, 0)
        head = place.head if place else START
        try:
            if append.expected_seq and not seq and token == append.lease.token:
                origin = reads.find_origin(self._link, append.run, append.records[0], append.expected_seq)
                head = origin or head
        except RefoldError as error:
            append.outcome = error
            return None
        refused = refusal(append.run, token, head.seq, append.expected_seq, append.lease)
        if refused is None:
            return head
        if fresh:
            append.outcome = refused
        else:
            self._places.pop(append.run, None)
        return None


def changed_rows(shown: str) -> DamagedStore:
    """Return the error for tables that drop or change written rows."""
    return DamagedStore(
        shown, "its tables drop or change written rows without an error: the schema was changed"
    )


def _confirm(link: Link, runs: Sequence[str]) -> dict[str, RunRow]:
    return read_rows(link.shown, link.execute(schema.CONFIRM, [_ENCODER.encode(runs).decode()]))


def append_row(place: Place, target: Head, *, release: bool) -> dict[str, object]:
    """Return the change of a run's row from `place` to `target`, as `schema.APPEND` takes it."""
    return {
        "number": place.number,
        "token": place.token,
        "epoch": place.epoch,
        "seq": place.head.seq,
        "hash": place.head.hash.hex(),
        "last": target.seq,
        "head": target.hash.hex(),
        "release": release,
    }


def event_row(number: int, row: EventRow) -> dict[str, object]:
    """Return an event as `schema.APPEND` takes it."""
    seq, at, kind, hashed, digest, salt, body, content = row
    return {
        "run": number,
        "seq": seq,
        "at": at,
        "kind": kind,
        "hash": hashed.hex(),
        "digest": digest.hex() if digest is not None else None,
        "salt": salt.hex() if salt else None,
        "body": body.decode(),
        "content": content.decode() if content is not None else None,
    }
