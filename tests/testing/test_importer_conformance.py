"""`ImporterConformance`: built-in importers and the example pass it; each fault fails its own test."""

import importlib
import itertools
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from refold.importers import BadTranscript, FormatMatch, Importer, Item, Place, RunBegan, Source
from refold.importers.registry import FORMATS, importer
from refold.reducers import Message, MessageCall, Role
from refold.testing import ImporterConformance
from support.transcripts import FILES, WRITTEN, path_of

PACKAGE = Path(__file__).resolve().parents[1] / "example_format_package"
SMALL = [
    "claude_code/edge-cases.jsonl",
    "claude_code/tiny-1.0.jsonl",
    "codex/schema-drift.jsonl",
    "gemini_cli/jsonl-0.40.jsonl",
    "inspect/tool-call-error-old.json",
    "mini_swe_agent/generated-uncaught-exception.traj.json",
    "openai_agents/generated-guardrail-max-turns.jsonl",
    "openhands/v0-interactions.json",
    "pi/compaction-v3.jsonl",
    "pydantic_ai/generated-messages.json",
    "swe_agent/history-only.traj",
]
"""Recorded files, one or two of a format, in which no text is long."""

UNREAD = ("claude_code/edge-cases.jsonl", "codex/schema-drift.jsonl")
"""Those of them that have rows which their importers report."""


def _by_format() -> dict[str, list[str]]:
    """Those files, and of each other format its smallest file, by format."""
    found: dict[str, list[str]] = {}
    for file in [*SMALL, *WRITTEN, *sorted(FILES, key=lambda each: path_of(each).stat().st_size)]:
        name = file.split("/")[0]
        if file not in FILES or file in SMALL or name not in found:
            found.setdefault(name, []).append(file)
    return {name: files for name, files in found.items() if name in FORMATS}


BUILTIN = _by_format()


@pytest.mark.parametrize("format_name", sorted(BUILTIN))
class TestBuiltIn(ImporterConformance):
    """Each built-in importer of which the repository has a small file."""

    format_name = ""

    @pytest.fixture(autouse=True)
    def _chosen(self, format_name: str) -> None:
        self.format_name = format_name

    def importer(self) -> Importer:
        return importer(self.format_name)

    def samples(self) -> Mapping[str, bytes]:
        return {file: _plain(file) for file in BUILTIN[self.format_name]}

    def damaged_samples(self) -> Mapping[str, bytes]:
        return {file: _plain(file) for file in BUILTIN[self.format_name] if file in UNREAD}


def _plain(file: str) -> bytes:
    with path_of(file).open("rb") as opened:
        return Source.opened(file, opened).whole()


ROWS = b"""\
{"bot": "shop", "from": "user", "text": "What is an apple?"}
{"bot": "shop", "from": "bot", "call": {"id": "1", "tool": "price", "arguments": {"item": "apple"}}}
{"bot": "shop", "from": "tool", "id": "1", "text": "30", "failed": false}
{"bot": "shop", "from": "bot", "text": "30 cents."}
"""


def _example() -> Any:
    sys.path.insert(0, str(PACKAGE))
    try:
        return importlib.import_module("refold_bot_log").BOT_LOG
    finally:
        sys.path.remove(str(PACKAGE))


class TestBotLog(ImporterConformance):
    """The importer of the example package."""

    def importer(self) -> Importer:
        found: Importer = _example()
        return found

    def samples(self) -> Mapping[str, bytes]:
        return {"shop.jsonl": ROWS}

    def damaged_samples(self) -> Mapping[str, bytes]:
        return {"noise.jsonl": ROWS + b"?!\n"}


class Faultless:
    """The importer of the example package. The faulty ones differ in one point."""

    name = "bot_log"

    def match(self, source: Source) -> Any:
        return _example().match(source)

    def items(self, source: Source) -> Iterator[Item]:
        yield from _example().items(source)


class BadName(Faultless):
    name = "Bot log"


class ByName(Faultless):
    def match(self, source: Source) -> Any:
        found = super().match(source)
        return found if source.name.endswith(".jsonl") else None


class NoReason(Faultless):
    def match(self, source: Source) -> Any:
        return super().match(source) and FormatMatch(90, "")


class Greedy(Faultless):
    def match(self, source: Source) -> Any:
        return super().match(source) or FormatMatch(10, "a text")


class MatchRaises(Faultless):
    def match(self, source: Source) -> Any:
        first = json.loads(source.head().split(b"\n")[0])
        return FormatMatch(90, "bot") if "bot" in first else None


class NoEnd(Faultless):
    def items(self, source: Source) -> Iterator[Item]:
        yield from list(super().items(source))[:-1]


class NoPosition(Faultless):
    def items(self, source: Source) -> Iterator[Item]:
        for item in super().items(source):
            yield item if isinstance(item, RunBegan) else Place("").message("hello")


class ReportsRows(Faultless):
    def items(self, source: Source) -> Iterator[Item]:
        for item in super().items(source):
            yield item
            if isinstance(item, RunBegan):
                yield Place("line 1").problem("no_row", "not a row", rest="{}")


COUNTER = itertools.count()


class Counts(Faultless):
    def items(self, source: Source) -> Iterator[Item]:
        for item in super().items(source):
            yield item
            if isinstance(item, RunBegan):
                yield Place("line 1").message(f"import {next(COUNTER)}")


class NamesRuns(Faultless):
    def items(self, source: Source) -> Iterator[Item]:
        for item in super().items(source):
            yield RunBegan(item.position, key=source.name) if isinstance(item, RunBegan) else item


class Strict(Faultless):
    def items(self, source: Source) -> Iterator[Item]:
        rows = [json.loads(line.text) for line in source.lines() if line.text.endswith(b"}")]
        assert len(rows) == len([line for line in source.lines() if line.text]), "a row is not complete"
        yield from super().items(source)


class Trusting(Faultless):
    def items(self, source: Source) -> Iterator[Item]:
        rows = [row for line in source.lines() if (row := _read(line.text))]
        if rows and rows[0].get("from") != "user":
            raise IndexError("no prompt")
        yield from super().items(source)


class DropsKeys(Faultless):
    def items(self, source: Source) -> Iterator[Item]:
        place = Place("line 1")
        yield RunBegan(place.position, key="log", agent="bot")
        for line in source.lines():
            row = _read(line.text)
            text = str(row.get("text", "")) + str(row.get("call", ""))
            if row.get("from") == "user":
                yield place.message(text)
            elif row:
                yield place.reply(Message(role=Role.ASSISTANT, text=text))
            else:
                yield place.problem("no_row", "not a row", rest=line.text.decode(errors="replace"))
        yield place.end(("unknown", "no end is recorded"))


def _read(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


class DropsTexts(DropsKeys):
    def items(self, source: Source) -> Iterator[Item]:
        for item in super().items(source):
            yield item
            if isinstance(item, RunBegan):
                rest: Any = [{**_read(line.text), "bot": ""} for line in source.lines()]
                yield Place("line 1").remark("rows", rest)


FAULTS: list[tuple[type[Any], str, str]] = [
    (BadName, "test_it_has_a_name", "name: expected lower-case letters"),
    (ByName, "test_each_sample_matches", "under another name, match returned None"),
    (NoReason, "test_each_sample_matches", "`why` is empty"),
    (Greedy, "test_other_files_do_not_match", "require a mark that other files do not have"),
    (MatchRaises, "test_other_files_do_not_match", "raised JSONDecodeError"),
    (NoEnd, "test_items_are_well_formed", "the last run does not end"),
    (NoPosition, "test_items_are_well_formed", "an item has no position"),
    (ReportsRows, "test_each_sample_is_imported", "parts of it were not read: line 1: not a row"),
    (Counts, "test_a_second_import_gives_the_same_log", "the items differ when read again"),
    (NamesRuns, "test_a_second_import_gives_the_same_log", "an import under another name gave other runs"),
    (Strict, "test_truncated_files", "raised AssertionError"),
    (Trusting, "test_damaged_files", "raised IndexError"),
    (DropsKeys, "test_unknown_keys_are_in_the_log", "unknown keys of these objects are in no log"),
    (DropsTexts, "test_other_texts_are_in_the_log", "other values of these keys are in no log"),
]


def _suite(faulty: type[Any]) -> ImporterConformance:
    suite = ImporterConformance()
    suite.importer = faulty  # type: ignore[method-assign]
    suite.samples = lambda: {"shop.jsonl": ROWS}  # type: ignore[method-assign]
    return suite


@pytest.mark.parametrize(
    ("faulty", "test", "problem"), FAULTS, ids=lambda each: getattr(each, "__name__", "-")
)
def test_each_fault_is_found(faulty: type[Any], test: str, problem: str) -> None:
    """An importer with one fault fails the test of that fault, which names it."""
    with pytest.raises(AssertionError, match=problem):
        getattr(_suite(faulty), test)()


TESTS = sorted(name for name in vars(ImporterConformance) if name.startswith("test_"))


def test_every_test_has_a_fault() -> None:
    """No test is without a planted importer that fails it."""
    assert set(TESTS) == {test for _, test, _ in FAULTS}


@pytest.mark.parametrize("test", TESTS)
def test_the_faultless_importer_passes(test: str) -> None:
    """The importer from which the faulty ones are made passes every test."""
    getattr(_suite(Faultless), test)()


def test_a_suite_without_samples() -> None:
    """A suite that would test nothing fails."""
    suite = _suite(Faultless)
    suite.samples = dict  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match=r"samples: no files, so nothing is tested"):
        suite.test_each_sample_matches()


def test_a_refused_file_is_no_failure() -> None:
    """An importer that refuses every damaged file passes: refusing is allowed."""

    class Refusing(Faultless):
        def items(self, source: Source) -> Iterator[Item]:
            if source.whole() != ROWS:
                raise BadTranscript(source.name, "", "changed")
            yield from super().items(source)

    _suite(Refusing).test_damaged_files()


def test_calls_are_imported() -> None:
    """The samples reach calls and results, so the laws are not about texts alone."""
    kinds = {type(item).__name__ for item in _example().items(Source.of("x", ROWS))}
    assert {"Said", "Answered", "Returned", "RunEnded"} <= kinds
    assert MessageCall("1", "price", '{"item": "apple"}') in [
        call for item in _example().items(Source.of("x", ROWS)) for call in getattr(item, "calls", ())
    ]
