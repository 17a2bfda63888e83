"""Who and when: what a log says of the directory, the branch, the user, the permission mode and the times of
a run.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers.events import Remark, SourceRecorded
from refold.replay import figures
from refold.replay.environment import read_source_row

DAY = 1_770_800_000_000_000_000  # 2026-02-11 08:53:20 UTC


def recorded(format_: str, row: object) -> SourceRecorded:
    text = row if isinstance(row, str) else json.dumps(row)
    return SourceRecorded(at=0, format=format_, source="0" * 64, position="line 4", content=Remark(text=text))


@pytest.mark.parametrize(
    ("format_", "row", "said"),
    [
        pytest.param("claude_code", {"cwd": "/a", "gitBranch": "main", "version": "2.1.0", "permissionMode": "bypassPermissions"},
                     {"cwd": "/a", "branch": "main", "version": "2.1.0", "permission_mode": "bypassPermissions"}, id="Claude Code"),
        pytest.param("claude_code", {"gitBranch": ""}, {}, id="no branch"),
        pytest.param("claude_code", {"cwd": 7, "gitBranch": ["x"]}, {}, id="of another type"),
        pytest.param("claude_code", '[{"cwd": "/a"}]', {}, id="no object"),
        pytest.param("claude_code", '{"cwd": "/a"', {}, id="broken"),
        pytest.param("claude_code", '{"cwd": "/a\\nb"}\n{"cwd": "/c"}', {"cwd": "/a b"}, id="the first row, as one line"),
        pytest.param("codex", {"payload": {"cwd": "/a", "approval_policy": "never", "sandbox_policy": {"mode": "read-only"}}},
                     {"cwd": "/a", "permission_mode": "never, read-only"}, id="a turn of Codex"),
        pytest.param("codex", {"payload": {"cwd": "/a", "git": {"branch": "main"}, "cli_version": "0.53.0"}},
                     {"cwd": "/a", "branch": "main", "version": "0.53.0"}, id="a session of Codex"),
        pytest.param("codex", {"payload": "x"}, {}, id="no such payload"),
        pytest.param("opencode", {"info": {"path": {"cwd": "/a"}, "version": "1.0"}}, {"cwd": "/a", "version": "1.0"}, id="OpenCode"),
        pytest.param("copilot_cli", {"data": {"context": {"cwd": "/a", "branch": "b"}}}, {"cwd": "/a", "branch": "b"}, id="Copilot"),
        pytest.param("another", {"cwd": "/a"}, {}, id="a format that is not known"),
    ],
)  # fmt: skip
def test_stated(format_: str, row: object, said: dict[str, str]) -> None:
    """One row a rule of what a source's row states."""
    assert said == dict(read_source_row(recorded(format_, row)))


@given(
    format_=st.sampled_from(["claude_code", "codex", "copilot_cli", "opencode", "mini_swe_agent"]),
    text=st.text(),
)
def test_whatever_a_source_has_is_read(format_: str, text: str) -> None:
    """No row of a source raises."""
    read_source_row(recorded(format_, text))
    read_source_row(recorded(format_, "{" + text))


@pytest.mark.parametrize(
    ("began", "ended", "said"),
    [
        pytest.param(DAY, DAY + 1380 * 10**9, "2026-02-11 08:53:20 to 09:16:20 UTC", id="one day"),
        pytest.param(
            DAY, DAY + 86_400 * 10**9, "2026-02-11 08:53:20 to 2026-02-12 08:53:20 UTC", id="two days"
        ),
        pytest.param(DAY, DAY, "2026-02-11 08:53:20 UTC", id="an instant"),
        pytest.param(0, 0, "no times were recorded", id="none"),
        pytest.param(
            DAY,
            10**30,
            "2026-02-11 08:53:20 to 1,000,000,000,000,000,000,000,000,000,000 ns",
            id="a forged one",
        ),
    ],
)
def test_period(began: int, ended: int, said: str) -> None:
    """From when to when is said in UTC, the day once."""
    assert said == figures.period(began, ended)


@pytest.mark.parametrize(
    ("at", "said"), [(DAY + 7, "2026-02-11T08:53:20.000000007Z"), (0, None), (10**30, None)]
)
def test_instant(at: int, said: str | None) -> None:
    """An instant is ISO 8601 with all its nanoseconds; one that was not recorded, or has no such form, is
    null.
    """
    assert said == figures.instant(at)


def session(folder: Path) -> Path:
    """A session of Claude Code that changes its directory and its permission mode."""
    common: dict[str, Any] = {"sessionId": "s", "version": "2.1.0", "gitBranch": "main"}
    rows: list[dict[str, Any]] = [
        {"type": "user", "uuid": "a", "parentUuid": None, "cwd": "/srv/app", "permissionMode": "default",
         "timestamp": "2026-02-11T18:24:00Z", "message": {"role": "user", "content": "Go."}},
        {"type": "assistant", "uuid": "b", "parentUuid": "a", "cwd": "/srv/app", "timestamp": "2026-02-11T18:25:00Z",
         "message": {"id": "m", "role": "assistant", "model": "x", "stop_reason": "tool_use", "usage": {"input_tokens": 9, "output_tokens": 9},
                     "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "git push"}}]}},
        {"type": "user", "uuid": "c", "parentUuid": "b", "cwd": "/srv/app/sub", "timestamp": "2026-02-11T18:26:00Z",
         "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "done"}]}},
        {"type": "user", "uuid": "d", "parentUuid": "c", "cwd": "/srv/app/sub", "permissionMode": "bypassPermissions",
         "timestamp": "2026-02-11T18:47:00Z", "message": {"role": "user", "content": "More."}},
    ]  # fmt: skip
    file = folder / "session.jsonl"
    file.write_text("".join(json.dumps({**common, **row}) + "\n" for row in rows), encoding="utf-8")
    return file
