"""An audit compares bytes: what is written otherwise and says the same agrees, what cannot be read is never
believed.
"""

import json
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from refold.reducers import codec
from refold.reducers.errors import DamagedLog, NewerLog
from refold.reducers.events import DECISIONS, FACTS, SourceRecorded, kind_of
from refold.reducers.vocabulary import MOST_DIGITS
from refold.replay.audit import Audit, Auditor
from refold.replay.parting import DecisionDifference
from refold.store import MemoryStore
from refold.store.protocol import Record, Stored
from support import audits, runs
from support.following import looked_at
from support.forging import records_of

AUDITING = import_module("refold.replay.audit")  # the package has a function of this name
DECIDED = frozenset(map(kind_of, DECISIONS))
OTHERS = {kind: "state_changed" if kind != "state_changed" else "history_pruned" for kind in DECIDED}


@pytest.fixture(scope="module")
def log() -> list[Record]:
    """A log with decisions of nearly every kind, some with words of their own."""
    return anyio.run(_recorded)


async def _recorded() -> list[Record]:
    store = MemoryStore()
    await runs.recorded_run(store)
    return await records_of(store, runs.RUN)


def audited(log: Sequence[Record]) -> Audit:
    return looked_at(Auditor(audits.RUN), audits.chained(log))


def each_changed(log: list[Record], change: Callable[[Record], Record | None]) -> list[list[Record]]:
    """The log with one decision changed, once for each that can be."""
    found = list[list[Record]]()
    for place, record in enumerate(log):
        changed = change(record) if record.kind in DECIDED else None
        if changed is not None:
            found.append([*log[:place], changed, *log[place + 1 :]])
    assert found
    return found


def rewritten(**fields: Any) -> Callable[[Record], Record]:
    """A decision's body with these fields more."""
    return lambda record: replace(record, body=json.dumps(json.loads(record.body) | fields).encode())


def test_a_decision_is_read_only_where_its_bytes_differ(
    log: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a log that is as it was written nothing is read but its facts and annotations."""
    read, event_of = set[str](), AUDITING.event_of

    def noted(stored: Stored, **options: bool) -> object:
        read.add(stored.kind)
        return event_of(stored, **options)

    monkeypatch.setattr(AUDITING, "event_of", noted)
    assert audited(log).clean
    assert set() == read & DECIDED
    assert audited([rewritten()(each) if each.kind in DECIDED else each for each in log]).clean
    assert {each.kind for each in log} & DECIDED == read & DECIDED


def test_values_that_are_written_otherwise_agree(log: list[Record]) -> None:
    """Spaces and the order of keys mean nothing: as many decisions are derived again, and none differs."""
    whole = audited(log)
    for changed in each_changed(
        log,
        lambda each: replace(each, body=json.dumps(dict(reversed(json.loads(each.body).items()))).encode()),
    ):
        assert whole == audited(changed)


@pytest.mark.parametrize("moved", [-1, 1])
def test_a_decision_has_the_instant_of_its_fact(log: list[Record], moved: int) -> None:
    """Another instant in the header is one difference, at that decision, in that field; the audit goes on
    behind it.
    """
    whole = audited(log)
    for changed in each_changed(log, lambda each: replace(each, at=each.at + moved)):
        seq = next(n for n, (one, other) in enumerate(zip(log, changed, strict=True), 1) if one is not other)
        found = audited(changed)
        finding = found.findings[0]
        assert (seq, DecisionDifference.CHANGED, ("at",)) == (finding.seq, finding.difference, finding.fields)
        recorded, derived = json.loads(finding.recorded or ""), json.loads(finding.derived or "")
        assert (changed[seq - 1].at, log[seq - 1].at) == (recorded["at"], derived["at"])
        assert (1, whole.decisions, whole.facts) == (found.differences, found.decisions, found.facts)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda each: replace(each, kind=OTHERS[each.kind]), id="the header names another kind"),
        pytest.param(lambda each: replace(each, body=each.body[:-1]), id="no JSON"),
        pytest.param(lambda each: replace(each, body=b"\xff" + each.body), id="no UTF-8"),
        pytest.param(lambda each: replace(each, body=b"[" * 10_000), id="too deep"),
        pytest.param(
            lambda each: each.content and rewritten(content={"texts": ["x"]})(each), id="words in the body"
        ),
        pytest.param(
            lambda each: replace(each, body=each.body[:-1] + b',"x":' + b"9" * (MOST_DIGITS + 1) + b"}"),
            id="a number that is too long",
        ),
        pytest.param(
            lambda each: replace(each, content=b"{}" if each.content is None else b"{"),
            id="words that are none",
        ),
    ],
)
def test_a_decision_that_cannot_be_read_is_damage(
    log: list[Record], change: Callable[[Record], Record | None]
) -> None:
    """It is never merely a difference, and the log is not followed beyond it."""
    for changed in each_changed(log, change):
        with pytest.raises(DamagedLog):
            audited(changed)


def test_a_decision_of_a_later_version_is_not_judged(log: list[Record]) -> None:
    """A field, or a kind, that is not known here belongs to a newer refold, whatever else is equal."""
    for changed in each_changed(log, rewritten(since="tomorrow")):
        with pytest.raises(NewerLog):
            audited(changed)
    for changed in each_changed(log, lambda each: replace(each, kind="decided_tomorrow")):
        with pytest.raises(NewerLog):
            audited(changed)


def resaid(make: Callable[[bytes], bytes | None]) -> Callable[[Record], Record | None]:
    """A decision with other words than its own, or none; None: it has no words."""
    return lambda each: (each.content and replace(each, content=make(each.content))) or None


def test_words_of_a_decision_are_compared(log: list[Record]) -> None:
    """Other words of the harness than follow are a difference, though the body is equal; erased ones are
    none.
    """
    for changed in each_changed(log, resaid(lambda content: content.replace(b'["', b'["x'))):
        assert [("content",)] == [finding.fields for finding in audited(changed).findings]
    for changed in each_changed(log, resaid(lambda content: None)):
        assert audited(changed).clean


def test_an_event_that_is_not_there_is_missed(log: list[Record]) -> None:
    """A gap in the numbers is damage, wherever it is: what follows would be taken for what is missing."""
    stored = audits.chained(log)
    for place in range(1, len(stored) - 1):
        with pytest.raises(DamagedLog, match="is missing before it"):
            looked_at(Auditor(audits.RUN), [*stored[:place], stored[place + 1]])


def test_every_kind_is_a_fact_a_decision_or_is_passed_by() -> None:
    """No kind is both: what is compared is never believed, and what is believed never compared."""
    assert set() == DECIDED & set(map(kind_of, FACTS))


def test_who_says_that_a_run_was_imported(log: list[Record]) -> None:
    """Its first event does; a note that claims so behind a run of our own makes no import of it."""
    note = SourceRecorded(at=log[-1].at, format="claude_code", source="x", position="1", seq=1)
    said = codec.encode(note)
    forged = Record(at=note.at, kind=said.kind, body=said.body, content=said.content)
    found = audited([*log, forged])
    assert found.clean
    assert not found.imported
