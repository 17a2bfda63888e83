"""The runner finds what is wrong: a wrong answer, a case left out without a tag, a driver that fails, no
cases.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.run import main
from conformance.suite import Case, CasesError, Compared, Driver, LeftOut, Topic, judge, read, shown

EXPECT = {"m": [1, 2]}


def case(*tags: str) -> Case:
    return Case("t-1", {"n": 1}, EXPECT, frozenset(tags))


def answering(answer: Compared | LeftOut) -> Driver:
    return lambda case: answer


def raises(case: Case) -> Compared:
    raise KeyError("m")


@pytest.mark.parametrize(
    ("driver", "problem"),
    [
        pytest.param(answering(Compared(EXPECT, {"m": [1, 3]})), "+  m: [1, 3]", id="a wrong value"),
        pytest.param(answering(Compared(EXPECT, {"m": [1, 2], "k": 0})), "+  k: 0", id="one field more"),
        pytest.param(answering(Compared(EXPECT, {})), "-  m: [1, 2]", id="one field less"),
        pytest.param(answering(LeftOut("other")), "none of its tags", id="left out for another reason"),
        pytest.param(raises, "KeyError", id="a driver that fails"),
    ],
)
def test_a_failure_is_found(driver: Driver, problem: str) -> None:
    """A case fails if the answers differ in any field, or if it has no tag to be left out for."""
    report = judge(Topic("t", (case("tag"),)), {"t": driver})
    assert ["t-1"] == [name for name, _ in report.failures]
    assert problem in shown(report)
    assert report.passed == 0


def test_what_is_left_out_is_counted_by_its_tag() -> None:
    """A case that is left out, or compared otherwise, is told by its tag."""

    def driver(case: Case) -> Compared | LeftOut:
        return LeftOut("skip") if "skip" in case.tags else Compared(1, 1, ("but",))

    report = judge(Topic("t", (case("skip"), case(), case())), {"t": driver})
    assert (2, (), {"skip": 1}, {"but": 2}) == (
        report.passed,
        report.failures,
        report.left_out,
        report.otherwise,
    )
    assert "2 passed     0 failed     1 skipped" in str(report)


def test_an_unknown_topic_fails() -> None:
    """A topic that nobody can judge is no success."""
    assert judge(Topic("new", (case(),)), {}).failures


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("{", id="no JSON"),
        pytest.param('{"format": 2, "topic": "t"}', id="another format"),
        pytest.param('{"format": 1, "topic": "t"}\n[]', id="a line that is no mapping"),
        pytest.param('{"format": 1, "topic": "t"}\n{"id": "t-1", "given": 1}', id="a case without an answer"),
    ],
)
def test_a_file_without_cases_is_refused(tmp_path: Path, text: str) -> None:
    """What is no file of cases is named, not passed over."""
    path = tmp_path / "t.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CasesError, match=r"t\.jsonl:"):
        read(path)


def folder(tmp_path: Path, expected: int) -> Path:
    lines = (
        {"format": 1, "topic": "hermes_pressure", "describes": "", "source": ""},
        {
            "id": "hermes_pressure-1",
            "given": {"n": 7, "max": 10},
            "expect": {"tier": "caution", "remaining": expected},
        },
    )
    text = "\n".join(json.dumps(line) for line in lines)
    (tmp_path / "hermes_pressure.jsonl").write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("expected", "code"), [pytest.param(3, 0, id="all pass"), pytest.param(4, 1, id="one fails")]
)
def test_any_folder_is_judged(tmp_path: Path, expected: int, code: int) -> None:
    """The runner judges the cases of any folder, and exits with 1 if one failed."""
    assert code == main(folder(tmp_path, expected), set())


def test_the_runner_is_a_script(tmp_path: Path) -> None:
    """It starts by its path, wherever it is started, and a folder without cases is a wrong use."""
    script = Path(__file__).with_name("run.py")
    done = subprocess.run([sys.executable, script, tmp_path], cwd=tmp_path, capture_output=True, check=False)
    assert (2, b"no *.jsonl files" in done.stderr) == (done.returncode, True)
