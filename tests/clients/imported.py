"""Import a client's transcripts, and read the runs by the commands `ls`, `show --raw` and `view`."""

import contextlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from refold.console.main import main
from refold.reducers.messages import Message, Usage
from refold.reducers.vocabulary import Role


class ImportedCall(msgspec.Struct, kw_only=True):
    """A call of an answer. `failed` is None if its status is not recorded, `result` is None without a result.

    `returned` is the event number of the result, 0 without one.
    """

    id: str
    name: str
    arguments: str
    failed: bool | None = None
    result: str | None = None
    returned: int = 0


class ImportedAnswer(msgspec.Struct, kw_only=True):
    """An answer: text, calls, usage (None if not recorded), and the messages of its view."""

    run: str
    seq: int
    text: str
    calls: list[ImportedCall]
    usage: Usage | None
    seen: list[Message]


class ImportedRun(msgspec.Struct, kw_only=True):
    """A run. `failures`: for each failed request, the number of answers before it."""

    id: str
    parent: str
    end: str
    answers: list[ImportedAnswer]
    failures: list[int]


def read_import(transcripts: Path, store: Path) -> list[ImportedRun]:
    """The runs of a folder of transcripts, imported into a new store.

    Raises ValueError with the output of refold if an import or a view fails.
    """
    with contextlib.suppress(FileNotFoundError):
        store.unlink()
    code, out, err = _refold("import", "--store", store, transcripts, "-o", "json")
    if code not in (0, 1, 2) or not store.exists():
        raise ValueError(f"refold import: exit code {code}: {out}{err}".strip())
    _, listed, _ = _refold("ls", "--store", store, "-o", "json", "--most", "1000")
    return [_run(row, store) for row in reversed(msgspec.json.decode(listed))]


def _run(row: dict[str, Any], store: Path) -> ImportedRun:
    _, out, _ = _refold("show", row["run"], "--store", store, "--raw")
    rows: list[dict[str, Any]] = [msgspec.json.decode(line) for line in out.splitlines()]
    answers, failures = _events(rows, store)
    return ImportedRun(
        id=row["run"],
        parent=(row["parent"] or {}).get("run", ""),
        end=row["source_end"] or "unknown",
        answers=answers,
        failures=failures,
    )


def _events(rows: Sequence[dict[str, Any]], store: Path) -> tuple[list[ImportedAnswer], list[int]]:
    answers: list[ImportedAnswer] = []
    calls: dict[str, ImportedCall] = {}
    failures: list[int] = []
    for row in rows:
        if row["kind"] == "model_responded":
            answers.append(_answer(row, store))
            calls |= {call.id: call for call in answers[-1].calls}
        elif row["kind"] == "model_failed":
            failures.append(len(answers))
        elif row["kind"] == "tool_returned" and row["body"]["call"] in calls:
            _add_result(calls[row["body"]["call"]], row)
    return answers, failures


def _answer(row: dict[str, Any], store: Path) -> ImportedAnswer:
    body, content = row["body"], row.get("content") or {}
    called = zip(body.get("calls", ()), content.get("arguments", ()), strict=True)
    counted = "usage" not in body.get("unknown", ()) and "usage" in body
    return ImportedAnswer(
        run=row["run"],
        seq=row["seq"],
        text=content.get("text", ""),
        calls=[ImportedCall(id=call["id"], name=call["name"], arguments=text) for call, text in called],
        usage=msgspec.convert(body["usage"], Usage) if counted else None,
        seen=_view(row["run"], body["request"], store),
    )


def _add_result(call: ImportedCall, row: dict[str, Any]) -> None:
    unknown = row["body"].get("unknown", ())
    if "result" in unknown:
        return
    call.returned = row["seq"]
    call.result = (row.get("content") or {}).get("output", "")
    error = row["body"].get("error")
    call.failed = True if error else None if "errors" in unknown else False


def _view(run: str, request: int, store: Path) -> list[Message]:
    """The messages of the view at a request."""
    code, out, err = _refold("view", f"{run}@e{request}", "--store", store, "-o", "json")
    if code not in (0, 1):
        raise ValueError(f"refold view {run}@e{request}: exit code {code}: {err}".strip())
    return list(_messages(msgspec.json.decode(out)["request"]["messages"]))


def _messages(rows: Sequence[dict[str, Any]]) -> Iterator[Message]:
    for row in rows:
        known = {name: value for name, value in row.items() if name in Message.__struct_fields__}
        yield msgspec.convert({**known, "role": Role(row["role"])}, Message)


def _refold(*words: object) -> tuple[int, str, str]:
    """Run a command in this process. Returns its exit code, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in words])
    return code, out.getvalue(), err.getvalue()
