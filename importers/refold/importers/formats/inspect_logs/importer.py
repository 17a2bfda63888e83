"""Inspect logs, `.eval` (a zip archive) and `.json` (one document); each sample of each epoch is a run.

Samples are read one at a time. A truncated log has no header: the start of its journal is used instead, with
the status `started`. The header's usage may include samples that are not in the file, so it is used only if
no sample has usage. Then it is attributed to the last run, as are the header's times if no sample has events.

A log without samples has no run; its only end is the log's own.
"""

from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace

from refold.importers.documents import ANY, Document, decode_beginning, decode_truncated, document
from refold.importers.fields import (
    JSON,
    Times,
    add_prefix,
    at,
    json_text,
    number,
    omit_keys,
    rows,
    table,
    text,
)
from refold.importers.formats.inspect_logs.samples import Sample
from refold.importers.items import Counted, Item, Place, RunEnded, Tokens, Unread
from refold.importers.registry import FormatMatch
from refold.importers.source import Archive, BadMember, BadTranscript, Source, decode_json, fits, is_archive

_USES = ("input_tokens", "input_tokens_cache_read", "input_tokens_cache_write", "output_tokens")


def sum_tokens(by_model: JSON) -> Tokens | None:
    """Return input, cache read, cache write and output tokens over all models; None if not recorded."""
    used = table(by_model).values()
    if not used:
        return None
    sent, read, written, got = (sum(number(each, name) or 0 for each in used) for name in _USES)
    return sent, read, written, got


def count_sample(sample: JSON) -> Counted:
    """Return the counts of a sample: its final messages, which may lack the last call of an agent."""
    messages = rows(sample, "messages")
    roles = [text(message, "role") for message in messages]
    results = [message for message in messages if text(message, "role") == "tool"]
    return Counted(
        user=roles.count("user"),
        assistant=roles.count("assistant"),
        tool=len(results),
        calls=len({text(call, "id") for message in messages for call in rows(message, "tool_calls")}),
        results=len({text(message, "tool_call_id") for message in results}),
        errors=sum(at(message, "error") is not None for message in results),
    )


def times_of(sample: JSON) -> tuple[str, str] | None:
    """Return the first and the last time of a sample's events."""
    return Times(at(event, "timestamp") for event in rows(sample, "events")).edges()


def complete_end(ended: RunEnded, header: JSON, *, used: bool, timed: bool) -> RunEnded:
    """Return the last end, with the log's usage and times if no sample has any (`used`, `timed`)."""
    stats = at(header, "stats")
    times = Times((at(stats, "started_at"), at(stats, "completed_at"))).edges()
    return replace(
        ended,
        used=ended.used if used else sum_tokens(at(stats, "model_usage")),
        times=ended.times if timed else times,
    )


def end_of(sample: JSON, status: str) -> tuple[str, str]:
    """Return a sample's end and where it is recorded: its own error or limit, else the log's status.

    In a truncated log, finished samples have scores.
    """
    log, name = f"log status={status}", _format_label(at(sample, "id"))
    error, limit = at(sample, "error"), at(sample, "limit")
    if error is not None:
        message = text(error, "message") or (error if isinstance(error, str) else json_text(error))
        return "error", f"{log}; sample {name} error: {message[:50]}"
    if limit is not None:
        kind = text(limit, "type") or (limit if isinstance(limit, str) else "unknown")
        return add_prefix(
            "limit", kind
        ), f"{log}; sample {name} limit {kind}={_format_label(at(limit, 'limit'))}"
    if status in ("success", "error") or table(sample, "scores"):
        return "finished", log
    return log_end(status), log


def log_end(status: str) -> str:
    """Return the end of a log by its status."""
    return {"success": "finished", "cancelled": "cancelled", "error": "error"}.get(status, "open")


def _format_label(value: JSON) -> str:
    return value if isinstance(value, str) else str(value) if isinstance(value, int | float) else ""


_ELEMENTS = (("messages",), ("events",), ("events_data", "messages"), ("message_pool",))
"""Lists of a sample whose elements are left out if truncated."""

_SAMPLES = "samples/"
_STARTS = ("header.json", "_journal/start.json")


class Found(msgspec.Struct, frozen=True):
    """A sample, its position, the key of its run, and why it was not read completely."""

    sample: JSON
    place: str
    key: str
    problem: str = ""


class InspectLogs(msgspec.Struct, frozen=True):
    """The importer for Inspect logs."""

    name: str = "inspect"

    def match(self, source: Source) -> FormatMatch | None:
        """Match an archive with a header, a journal or samples, or a document with a task."""
        if is_archive(source.head(4)):
            members = Archive(source.file).members
            if any(name in members for name in _STARTS) or any(map(_is_sample, members)):
                return FormatMatch(95, "an archive of samples with a header or a journal")
            return None
        found = decode_beginning(source)
        if "task" in table(found, "eval") and ({"version", "status"} & table(found).keys()):
            return FormatMatch(95, "a log of a task with a version or status")
        if {"task", "run_id", "dataset"} <= table(found, "eval").keys():
            return FormatMatch(90, "a log of a task with run_id and dataset")
        return None

    def items(self, source: Source) -> Iterator[Item]:
        """Yield one run per sample, in the order of the file."""
        if is_archive(source.head(4)):
            archive = Archive(source.file)
            if archive.refused:
                raise BadTranscript(source.name, "", archive.refused)
            header, around = _header(archive, source.name)
            yield from _runs(header, _members(archive), around)
        else:
            header, samples, around = _document(source)
            if not {"eval", "samples", "status"} & table(header).keys():
                raise BadTranscript(source.name, "$", "not a log of Inspect")
            yield from _runs(header, samples, around)


INSPECT = InspectLogs()


def _is_sample(name: str) -> bool:
    return name.startswith(_SAMPLES) and name.endswith(".json")


def _header(archive: Archive, source: str) -> tuple[JSON, list[Item]]:
    """Return the log's header, and items for the archive's members other than samples."""
    header: JSON = None
    extras: list[Item] = []
    size = 0
    if archive.problem:
        extras.append(Place("").problem("cut", archive.problem))
    for name in archive.members:
        if _is_sample(name):
            continue
        found, problem = _read(archive, name)
        if problem:
            extras.append(Place(name).problem("cut", problem))
        if found is not None:
            extras.append(Place(name).remark("log", found))
            size += len(extras[-1].rest)
            fits(source, name, size)
        if name in _STARTS and (header is None or name == _STARTS[0]):
            header = found
    if header is None and not any(map(_is_sample, archive.members)):
        raise BadTranscript(source, "", "an archive without a header, a journal or samples of Inspect")
    return header, extras


def _read(archive: Archive, name: str) -> tuple[JSON, str]:
    """Return a member's value, and why it was not read completely."""
    try:
        data = archive.read(name)
    except BadMember as error:
        return None, f"{name[:80]}: {error}"
    try:
        return decode_json(data), ""
    except ValueError as error:
        found = decode_truncated(data, *_ELEMENTS)
        return (found.value, f"the document {found.problem}") if found else (None, f"not JSON: {error}")


def _members(archive: Archive) -> Iterator[Found]:
    for name in archive.members:
        if _is_sample(name):
            sample, problem = _read(archive, name)
            yield Found(sample, f"{name} $", name.removeprefix(_SAMPLES).removesuffix(".json"), problem)


def _document(source: Source) -> tuple[JSON, Iterator[Found], list[Item]]:
    """Return a document's header, its samples, and items about the rest of it.

    Samples are decoded one at a time.
    """
    try:
        whole = msgspec.json.decode(source.whole(), type=dict[str, msgspec.Raw])
        parts = msgspec.json.decode(whole.pop("samples", msgspec.Raw(b"[]")), type=list[msgspec.Raw] | None)
        header: JSON = {name: decode_json(bytes(part)) for name, part in whole.items()}
    except (msgspec.DecodeError, ValueError, RecursionError):
        # Inspect also writes NaN, which is not JSON; and a document may be truncated.
        found = document(source, ("samples", ANY, "messages"), ("samples", ANY, "events"))
        header, samples = omit_keys(found.value, "samples"), rows(found.value, "samples")
        return header, _assign_keys((sample, "") for sample in samples), _around(header, found)
    return header, _assign_keys(_decode(bytes(part)) for part in parts or ()), _around(header, None)


def _around(header: JSON, found: Document | None) -> list[Item]:
    around: list[Item] = [Place("$").remark("log", header)] if header else []
    return [*around, *found.cut()] if found else around


def _decode(data: bytes) -> tuple[JSON, str]:
    try:
        return decode_json(data), ""
    except ValueError as error:
        return None, f"not JSON: {error}"


def _assign_keys(samples: Iterable[tuple[JSON, str]]) -> Iterator[Found]:
    """Yield the samples with unique keys, even if the log repeats an id."""
    seen: set[str] = set()
    for index, (sample, problem) in enumerate(samples):
        named = at(sample, "id")
        key = f"{named if isinstance(named, int | str) else index}_epoch_{number(sample, 'epoch') or 1}"
        key = key if key not in seen else f"{key} #{index}"
        seen.add(key)
        yield Found(sample, f"$.samples[{index}]", key, problem)


def _runs(header: JSON, samples: Iterator[Found], around: list[Item]) -> Iterator[Item]:
    """Yield the items of each sample. `around` are items to yield with the first one.

    Each end is yielded before the next sample, because the log's usage goes to the last end.
    """
    status = text(header, "status") or "started"
    waiting: RunEnded | None = None
    used = timed = False
    for found in samples:
        if not table(found.sample):
            around.append(Place(found.place).problem("cut", found.problem or "not a sample"))
            continue
        if waiting is not None:
            yield waiting
        times, tokens = times_of(found.sample), sum_tokens(at(found.sample, "model_usage"))
        end, counts = end_of(found.sample, status), count_sample(found.sample)
        run = Sample(found.sample, found.place)
        yield run.begin(found.key, header)
        yield from around
        around = []
        yield from run.items()
        if found.problem:
            yield Place(found.place).problem("cut", found.problem)
        used, timed = used or tokens is not None, timed or times is not None
        left = run.messages.take_rest()
        waiting = Place(found.place, None, counts).end(end, times, tokens, rest=left)
    if waiting is None:
        yield from (item for item in around if isinstance(item, Unread))
        yield _end_empty_log(header, status)
        return
    yield from around
    yield complete_end(waiting, header, used=used, timed=timed)


def _end_empty_log(header: JSON, status: str) -> RunEnded:
    """Return the end of a log without samples, which belongs to no run."""
    ended = Place("$").end((log_end(status), f"log status={status}"), rest=json_text(header))
    return complete_end(ended, header, used=False, timed=False)
