"""Cases of what known agent loops do, read from a folder and judged by drivers, a topic a file.

A driver asks our engine what a case asks of the loop that it was recorded from, and returns both answers. It
may leave a case out, but only for a reason that the case itself carries as a tag; anything else is a failure.
"""

import difflib
import json
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

FORMAT = 1
Json: TypeAlias = "dict[str, Json] | list[Json] | str | float | bool | None"


class CasesError(Exception):
    """A folder or file that is no conformance cases."""


class Case(NamedTuple):
    """One case: the whole input and the whole answer, as plain JSON values."""

    id: str
    given: Any
    expect: Any
    tags: frozenset[str]


class Topic(NamedTuple):
    """One file of cases."""

    name: str
    cases: tuple[Case, ...]


class Compared(NamedTuple):
    """Both answers. `otherwise` names the deviations for which `expected` is not simply what the case
    says.
    """

    expected: Any
    got: Any
    otherwise: tuple[str, ...] = ()


class LeftOut(NamedTuple):
    """The case is not judged, for the deviation that one of its tags names."""

    tag: str


Driver = Callable[[Case], Compared | LeftOut]


class Report(NamedTuple):
    """What became of a topic's cases; `failures` are (case id, what differs)."""

    topic: str
    passed: int
    failures: tuple[tuple[str, str], ...]
    left_out: Counter[str]
    otherwise: Counter[str]

    def __str__(self) -> str:
        skipped = sum(self.left_out.values())
        line = f"{self.topic:26} {self.passed:5} passed {len(self.failures):5} failed {skipped:5} skipped"
        return "".join(
            (
                line,
                _listed("skipped", self.left_out),
                _listed("compared otherwise", self.otherwise),
            )
        )


def topics(folder: Path) -> Iterator[Topic]:
    """The topics of a folder, by name. Raises `CasesError` for a folder or file that holds no cases."""
    paths = sorted(folder.glob("*.jsonl"))
    if not paths:
        raise CasesError(f"{folder}: no *.jsonl files with cases in it")
    for path in paths:
        yield read(path)


def read(path: Path) -> Topic:
    """The cases of a file. Raises `CasesError` where a line is no case."""
    header, *lines = path.read_text(encoding="utf-8").split("\n")
    said = _json(path, 1, header)
    if said.get("format") != FORMAT or "topic" not in said:
        raise CasesError(f"{path}:1: expected a header with format {FORMAT} and a topic, got {header[:80]!r}")
    cases = (_json(path, number, line) for number, line in enumerate(lines, start=2) if line.strip())
    return Topic(said["topic"], tuple([_case(path, case) for case in cases]))


def judge(topic: Topic, drivers: Mapping[str, Driver]) -> Report:
    """Ask each case of a topic. A topic without a driver fails as a whole."""
    driver = drivers.get(topic.name)
    if driver is None:
        return Report(topic.name, 0, ((topic.name, "no driver for this topic"),), Counter(), Counter())
    failures: list[tuple[str, str]] = []
    left_out: Counter[str] = Counter()
    otherwise: Counter[str] = Counter()
    for case in topic.cases:
        answer = _asked(driver, case)
        if isinstance(answer, LeftOut):
            left_out[answer.tag] += 1
        elif isinstance(answer, Compared):
            otherwise.update(answer.otherwise)
        else:
            failures.append((case.id, answer))
    passed = len(topic.cases) - len(failures) - sum(left_out.values())
    return Report(topic.name, passed, tuple(failures), left_out, otherwise)


def shown(report: Report, most: int = 3) -> str:
    """The first failures of a report, each with its diff."""
    parts = [f"--- {case}\n{problem}" for case, problem in report.failures[:most]]
    rest = len(report.failures) - most
    return "\n".join([*parts, f"... and {rest} more"] if rest > 0 else parts)


def _asked(driver: Driver, case: Case) -> Compared | LeftOut | str:
    # A driver that raises has found something that no answer could be made of: the case failed, the others go
    # on.
    try:
        answer = driver(case)
    except Exception:
        return traceback.format_exc(limit=-4)
    if isinstance(answer, LeftOut):
        return (
            answer if answer.tag in case.tags else f"left out for {answer.tag!r}, which is none of its tags"
        )
    return answer if _plain(answer.expected) == _plain(answer.got) else _diff(answer.expected, answer.got)


def _plain(value: Any) -> Json:
    plain: Json = json.loads(json.dumps(value))
    return plain


def _diff(expected: Any, got: Any) -> str:
    sides = (_lines(expected), _lines(got))
    return "\n".join(difflib.unified_diff(*sides, "expected", "got", lineterm="", n=2))


def _lines(value: Any) -> list[str]:
    """JSON with one line for each item that holds no list or mapping of lists."""
    return list(_flat(_plain(value), "", ""))


def _flat(value: Json, indent: str, key: str) -> Iterator[str]:
    if isinstance(value, dict) and value:
        yield f"{indent}{key}{{"
        for name, inner in value.items():
            yield from _flat(inner, indent + "  ", f"{name}: ")
        yield f"{indent}}}"
    elif isinstance(value, list):
        yield from _list(value, indent, key)
    else:
        yield f"{indent}{key}{json.dumps(value, ensure_ascii=False)}"


def _list(items: list[Json], indent: str, key: str) -> Iterator[str]:
    if not any(isinstance(inner, list | dict) for inner in items):
        yield f"{indent}{key}{json.dumps(items, ensure_ascii=False)}"
        return
    yield f"{indent}{key}["
    for inner in items:
        yield from _item(inner, indent + "  ")
    yield f"{indent}]"


def _item(value: Json, indent: str) -> Iterator[str]:
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, list) and len(text) < 100:
        yield f"{indent}{text}"
    else:
        yield from _flat(value, indent, "")


def _json(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        value: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise CasesError(f"{path}:{number}: {error}") from error
    if not isinstance(value, dict):
        raise CasesError(f"{path}:{number}: expected a mapping, got {line[:80]!r}")
    return cast("dict[str, Any]", value)


def _case(path: Path, value: Mapping[str, Any]) -> Case:
    missing = [key for key in ("id", "given", "expect") if key not in value]
    if missing:
        raise CasesError(f"{path}: a case without {missing[0]!r}: {str(value)[:80]}")
    return Case(value["id"], value["given"], value["expect"], frozenset(value.get("tags", ())))


def _listed(word: str, counted: Counter[str]) -> str:
    if not counted:
        return ""
    return f"\n    {word}: " + ", ".join(f"{tag} ({count})" for tag, count in counted.most_common())


def together(reports: Sequence[Report]) -> str:
    """One line for all topics."""
    passed, failed = sum(r.passed for r in reports), sum(len(r.failures) for r in reports)
    skipped = sum(sum(r.left_out.values()) for r in reports)
    return f"{'all':26} {passed:5} passed {failed:5} failed {skipped:5} skipped"
