"""Transcripts with one row more, of a kind that no importer knows, that holds what may be a call."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from refold.importers.registry import UnknownFormat, importer
from refold.importers.source import BadTranscript, Source, is_archive
from refold.importers.transcript import Transcript
from refold.reducers.parser import parse
from refold.replay.reader import follow_all
from refold.replay.whatif.comparison import Comparison
from refold.replay.whatif.verdict import Verdict
from support.following import unchained
from support.transcripts import path_of, salts
from support.unknown_keys import Json, values_of, written

COMMAND = "launch-the-rocket"
_CALL: dict[str, Json] = {"tool_name": "shell", "input": {"command": COMMAND}}
_KINDS = ("type", "kind", "event", "role", "object", "action", "observation", "source", "name")
_LONGEST = 64
_IDS = ("id", "uuid", "span_id", "spanId", "message_id", "messageId")
_DENY = parse({
    "preset": "observed",
    "guards": [{"guard": "arguments", "tool": "*", "matches": COMMAND, "then": "stop"}],
})  # fmt: skip


ROWS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "amp": ("$[].messages",),
        "atif": ("$[].steps",),
        "claude_code": ("lines",),
        "codex": ("lines",),
        "copilot_cli": ("lines",),
        "droid": ("lines",),
        "gemini_cli": ("lines", "$[].messages"),
        "grok_cli": ("lines",),
        "inspect": ("$[].samples[].events", "$[].samples[].messages"),
        "kimi_cli": ("lines",),
        "langfuse": ("$[].observations",),
        "mini_swe_agent": ("$[].messages", "$[]"),
        "openai_agents": ("lines", "$[].data", "$[]"),
        "openai_messages": ("$[].messages", "$[]"),
        "opencode": ("$[].messages",),
        "openhands": ("lines", "$[]", "$[].history"),
        "otel": ("lines", "$[]", "$[].resourceSpans[].scopeSpans[].spans"),
        "pi": ("lines",),
        "pydantic_ai": ("$[]", "$[].messages"),
        "qwen_code": ("lines",),
        "swe_agent": ("$[].history",),
        "tau_bench": ("$[].traj", "$[][].traj"),
        "who_when": ("$[].history",),
    }
)
"""By format, where its rows stand: `lines` of a file, or a list in its document."""


class Inserted(NamedTuple):
    """Where the row was inserted, the run in whose log it stands, "" for none, and what the rule says of that
    run.
    """

    place: str
    run: str
    verdict: Verdict | None


def judged(file: str, format: str) -> Iterator[Inserted]:  # noqa: A002
    """What a rule against the call says, for each list of rows.

    A file that is refused with the row in it is not judged.
    """
    with path_of(file).open("rb") as opened:
        source = Source.opened(file, opened)
        values = [] if is_archive(source.head(4)) else values_of(source)
    runs = any(isinstance(value, dict) and "history" in value for value in values)
    lists = {"lines": values} if len(values) > 1 and not runs else {}
    lists |= dict(reversed([*_lists(values, "$")]))
    for place in (place for place in ROWS[format] if place in lists):
        middle = (len(lists[place]) + 1) // 2
        lists[place].insert(middle, _novel(lists[place][middle - 1]))
        with suppress(BadTranscript, UnknownFormat):
            yield from (Inserted(place, *each) for each in _judged(written(file, values), format))
        del lists[place][middle]


def _judged(source: Source, format: str) -> Iterator[tuple[str, Verdict | None]]:  # noqa: A002
    found: list[tuple[str, Verdict | None]] = [
        (run, verdict) for run, text, verdict in verdicts(source, format) if COMMAND in text
    ]
    yield from found or [("", None)]


def verdicts(source: Source, format: str) -> Iterator[tuple[str, str, Verdict]]:  # noqa: A002
    """What a rule against the call says of each run: its key, JSON text of its events, and the verdict."""
    for run in Transcript(source, importer(format)).runs():
        events = [each.event for group in run.derive(salts) for each in group]
        comparison = Comparison(run.run, _DENY)
        follow_all(unchained(events), comparison)
        yield run.key, msgspec.json.encode(events).decode(), comparison.result().verdict


def _lists(value: Json, path: str) -> Iterator[tuple[str, list[Any]]]:
    """Each list of objects, and where it stands."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _lists(inner, f"{path}.{key}")
    elif isinstance(value, list):
        if path != "$" and value and isinstance(value[0], dict):
            yield path, value
        for each in value:
            yield from _lists(each, f"{path}[]")


def _novel(beside: Json) -> Json:
    """A row with the ids and times of the one before it, but of another kind, and with a call in it."""
    known: dict[str, Json] = {**beside} if isinstance(beside, dict) else {}
    plain = {
        key: value for key, value in known.items() if key != "cause" and not isinstance(value, dict | list)
    }
    short = {
        key: value for key, value in plain.items() if len(str(value)) <= _LONGEST and " " not in str(value)
    }
    row = {**short, **{key: "novel" for key in (*_KINDS, *_IDS) if isinstance(plain.get(key), str)}}
    if isinstance(known.get("payload"), dict):
        return {**row, "type": known["type"], "payload": {"type": "novel", **_CALL}}
    return {"type": "novel", **row, **_CALL}
