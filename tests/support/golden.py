"""Recorded logs as files: one JSON line an event, with the very bytes of body and content as text.

The files are for ever: a later version that cannot read one, or derives something else from one, breaks a
promise to whoever kept such a log.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from refold.reducers.codec import Encoded, decode, encode
from refold.reducers.events import Event

SALT = b"salt"
"""The salt of every content in them."""

FOLDER = Path(__file__).resolve().parents[1] / "golden"


def names() -> list[str]:
    """The recorded logs, by the names of their files."""
    return sorted(path.stem for path in FOLDER.glob("*.jsonl"))


def recorded(name: str) -> list[Encoded]:
    """The records of a log, as they were written."""
    lines = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [_record(seq, json.loads(line)) for seq, line in enumerate(lines, 1)]


# A policy is recorded with every key of its day: read again it has today's keys as well, switched off.
_HOLD_A_POLICY = frozenset({"run_started", "run_forked", "policy_amended"})


def today(name: str) -> list[Encoded]:
    """The records of a log, with the policies in it as today's version would write them; all else as it
    was.
    """
    return [
        encode(event) if record.kind in _HOLD_A_POLICY else record
        for record, event in zip(recorded(name), events(name), strict=True)
    ]


def events(name: str) -> list[Event]:
    """The events of a log, with their contents."""
    return [
        decode(record.kind, record.body, record.content, run=name, seq=seq)
        for seq, record in enumerate(recorded(name), 1)
    ]


def written(log: Iterable[Event]) -> str:
    """A log as the text of such a file."""
    lines: list[str] = []
    for seq, event in enumerate(log, 1):
        one = encode(event)
        content = None if one.content is None else one.content.decode()
        line = {"seq": seq, "kind": one.kind, "body": one.body.decode(), "content": content}
        lines.append(json.dumps(line, ensure_ascii=False) + "\n")
    return "".join(lines)


def _record(seq: int, line: dict[str, object]) -> Encoded:
    kind, body, content = line["kind"], line["body"], line["content"]
    assert seq == line["seq"]
    assert isinstance(kind, str)
    assert isinstance(body, str)
    assert content is None or isinstance(content, str)
    return Encoded(kind, body.encode(), None if content is None else content.encode())
