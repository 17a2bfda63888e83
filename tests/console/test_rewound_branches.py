"""What an agent did on a branch that a person left by going back: found in the store, and named by the
session.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from console.conftest import Refold
from support.claude_code import answer, called, result, said, user
from support.sessions import documents

SESSION = [
    user("u", None, "clean up"),
    answer("a", "u", "r1", said("Where?")),
    user("x", "a", "everywhere"),
    answer("y", "x", "r2", called("t1", command="rm -rf /srv/data")),
    result("z", "y", "t1", "gone"),
    user("v", "a", "in tmp only"),
    answer("c", "v", "r3", said("Well.")),
]


@pytest.fixture
def runs(refold: Refold, store: Path, tmp_path: Path) -> list[dict[str, Any]]:
    """The session and the branch, as an import lists them."""
    file = tmp_path / "session.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in SESSION))
    (told,) = documents(refold("import", file, "--store", store, "-o", "json").out)
    imported: list[dict[str, Any]] = told["imported"]
    assert 1 == told["runs"]
    return imported


def test_what_it_did_is_found(refold: Refold, store: Path, runs: list[dict[str, Any]]) -> None:
    """`grep` and `stats` see the calls, and only once."""
    found = refold("grep", '"rm -rf"', "--store", store).out
    assert runs[1]["run"] in found
    assert runs[0]["run"] not in found
    assert "Bash" in refold("stats", "--all", "--store", store).out


def test_the_session_names_it(refold: Refold, store: Path, runs: list[dict[str, Any]]) -> None:
    """`show` of the session lists the branch, as one; `@last` is the session."""
    session, branch = (run["run"] for run in runs)
    shown = json.loads(refold("show", "@last", "--store", store, "-o", "json").out)
    assert (session, [branch]) == (shown["run"], [child["run"] for child in shown["children"]])
    assert "rewound" == shown["children"][0]["branch"]
    assert "rewound" in next(
        row for row in refold("show", session, "--store", store).out.splitlines() if branch in row
    )


def test_it_says_what_it_is(refold: Refold, store: Path, runs: list[dict[str, Any]]) -> None:
    """`ls` does not call it a sub-agent's, and its log is audited as any."""
    (line,) = (row for row in refold("ls", "--store", store).out.splitlines() if runs[1]["run"] in row)
    assert "sub-agent" not in line
    assert 0 == refold("audit", "--all", "--store", store).code
