"""Runs that calls of others began: they are found from both sides, whatever was imported first."""

import json
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from console.conftest import Refold
from console.report.conftest import reported
from console.test_repeated_imports import by_hand, listed, note
from refold.engine import say
from refold.store import SqliteStore
from support.families import CHILD, PARENT, boss, hand_on, writer
from support.sessions import documents


class Written:
    """The file of a conversation in the session `s`: a person's words or a task, calls of agents, their
    results, an answer.
    """

    def __init__(self, task: str, agent: str = "") -> None:
        self._agent, self.rows = agent, list[dict[str, Any]]()
        self._row("user", role="user", content=task)

    def asks(self, *calls: str) -> "Written":
        """The model calls agents, all in one answer."""
        blocks = [
            {"type": "tool_use", "id": call, "name": "Task", "input": {"prompt": f"Do {call}."}}
            for call in calls
        ]
        return self._answers(blocks)

    def hears(self, call: str, agent: str) -> "Written":
        """An agent is done."""
        result = {"type": "tool_result", "tool_use_id": call, "content": "done"}
        self._row("user", role="user", content=[result])
        self.rows[-1]["toolUseResult"] = {"status": "completed", "agentId": agent}
        return self

    def says(self, text: str = "Well.") -> "Written":
        """The model answers in words."""
        return self._answers([{"type": "text", "text": text}])

    def reports(self, call: str, agent: "Written") -> "Written":
        """All that an agent wrote, in rows of this file."""
        for row in agent.rows:
            data = {"type": "agent_progress", "agentId": row["agentId"], "message": row}
            told = {"uuid": f"p{row['uuid']}", "timestamp": row["timestamp"], "sessionId": "s"}
            self.rows.append({"type": "progress", "parentToolUseID": call, "data": data, **told})
        return self

    def to(self, file: Path) -> Path:
        """Write it."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{json.dumps(row)}\n" for row in self.rows))
        return file

    def _answers(self, content: list[dict[str, Any]]) -> "Written":
        name = f"{self._agent}m{len(self.rows)}"
        self._row("assistant", role="assistant", id=name, model="x", content=content)
        return self

    def _row(self, kind: str, **message: Any) -> None:
        number = len(self.rows)
        self.rows.append(
            {
                "type": kind,
                "uuid": f"{self._agent}u{number}",
                "parentUuid": f"{self._agent}u{number - 1}" if number else None,
                "sessionId": "s",
                **({"agentId": self._agent, "isSidechain": True} if self._agent else {"isSidechain": False}),
                "timestamp": f"2026-01-01T00:{len(self._agent):02}:{number:02}Z",
                "message": message,
            }
        )


SESSION = Written("Go.").asks("t1", "t2").hears("t1", "a1").hears("t2", "b22").says()
FIRST, SECOND = Written("Do t1.", "a1").says(), Written("Do t2.", "b22").says()


def imported(refold: Refold, store: Path, *files: Path) -> list[dict[str, Any]]:
    """The runs of these files, as an import tells them."""
    told = documents(refold("import", *files, "--store", store, "-o", "json").out)
    return [run for document in told for run in document.get("imported", [])]


def shown(refold: Refold, store: Path, run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(refold("show", run, "--store", store, "-o", "json").out)
    return found


def children(refold: Refold, store: Path, run: str) -> list[tuple[str, str]]:
    """The calls of a run and what began by them, as its `show` says."""
    return [(child["call"], child["run"]) for child in shown(refold, store, run)["children"]]


def by_key(runs: list[dict[str, Any]]) -> dict[str, str]:
    return {run["key"]: run["run"] for run in runs}


@pytest.mark.parametrize("where", ["p/s/subagents", "p"], ids=["in a folder of the session", "beside it"])
def test_an_import_of_a_folder_links_what_a_session_began(
    refold: Refold, store: Path, tmp_path: Path, where: str
) -> None:
    """Whatever its name, the file of an agent is read behind the session that names it: its first event says
    which call began it.
    """
    SESSION.to(tmp_path / "p" / "s.jsonl")
    FIRST.to(tmp_path / where / "agent-a1.jsonl")
    SECOND.to(tmp_path / where / "agent-b22.jsonl")
    runs = by_key(imported(refold, store, tmp_path / "p"))
    parents = {run: told["parent"] for run, told in listed(refold, store).items()}
    session, first, second = runs["s"], runs["s/a1"], runs["s/b22"]
    began = {first: {"run": session, "call": "c1"}, second: {"run": session, "call": "c2"}}
    assert {session: None, **began} == parents
    assert [("c1", first), ("c2", second)] == children(refold, store, session)
    assert session == shown(refold, store, "@last")["run"]
    assert 0 == refold("audit", "--all", "--store", store).code
    again = imported(refold, store, tmp_path / "p")
    assert all(run["whole"] and not run["differs"] and not run["damaged"] for run in again)


def test_an_agent_that_was_imported_before_its_session_is_found_by_both(
    refold: Refold, store: Path, tmp_path: Path
) -> None:
    """Its log cannot name the session's run any more, and the session's log names it."""
    file = FIRST.to(tmp_path / "agent-a1.jsonl")
    (first,) = imported(refold, store, file)
    assert first["run"] == shown(refold, store, "@last")["run"]
    assert shown(refold, store, first["run"])["parent"] is None
    (session,) = imported(refold, store, SESSION.to(tmp_path / "s.jsonl"))
    assert [("c1", first["run"])] == children(refold, store, session["run"])
    assert {"run": session["run"], "call": "c1"} == shown(refold, store, first["run"])["parent"]
    (again,) = imported(refold, store, file)
    assert (True, 0) == (again["whole"], again["differs"])


def test_an_agent_that_an_agent_began_is_that_ones_child(refold: Refold, store: Path, tmp_path: Path) -> None:
    """All of a session's agents lie in one folder, and name the session: which began which stands with the
    results.
    """
    Written("Go.").asks("t1").hears("t1", "z").says().to(tmp_path / "s.jsonl")
    Written("Do t1.", "z").asks("t2").hears("t2", "a").says().to(tmp_path / "agent-z.jsonl")
    Written("Do t2.", "a").says().to(tmp_path / "agent-a.jsonl")
    runs = by_key(imported(refold, store, tmp_path))
    assert [("c1", runs["s/z"])] == children(refold, store, runs["s"])
    assert [("c1", runs["s/a"])] == children(refold, store, runs["s/z"])
    assert {"run": runs["s/z"], "call": "c1"} == listed(refold, store)[runs["s/a"]]["parent"]


def test_of_an_agent_that_never_reported_the_call_is_not_known(
    refold: Refold, store: Path, tmp_path: Path
) -> None:
    """A session that was stopped while agents worked names none of them: they are its children, by which
    calls nobody says.
    """
    Written("Go.").asks("t1", "t2").to(tmp_path / "s.jsonl")
    FIRST.to(tmp_path / "s" / "subagents" / "agent-a1.jsonl")
    runs = by_key(imported(refold, store, tmp_path))
    assert [("", runs["s/a1"])] == children(refold, store, runs["s"])
    assert "not known" in refold("show", runs["s"], "--store", store).out
    assert runs["s"] == shown(refold, store, "@last")["run"]


def test_what_was_imported_while_it_worked_is_linked_once_it_is_done(
    refold: Refold, store: Path, tmp_path: Path
) -> None:
    """Session and agent go on in their runs, and from then on both say by which call the one began the
    other.
    """
    session, agent = tmp_path / "s.jsonl", tmp_path / "s" / "subagents" / "agent-a1.jsonl"
    Written("Go.").asks("t1").to(session)
    Written("Do t1.", "a1").says("Hm.").to(agent)
    before = by_key(imported(refold, store, tmp_path))
    Written("Go.").asks("t1").hears("t1", "a1").says().to(session)
    Written("Do t1.", "a1").says("Hm.").says().to(agent)
    assert before == by_key(imported(refold, store, tmp_path))
    assert [("c1", before["s/a1"])] == children(refold, store, before["s"])
    assert {"run": before["s"], "call": "c1"} == shown(refold, store, before["s/a1"])["parent"]


def test_a_session_that_became_another_run_has_its_agents_too(
    refold: Refold, store: Path, tmp_path: Path
) -> None:
    """An agent names the run that was there when it was imported; the run that has all of the session lists
    it as well.
    """
    SESSION.to(tmp_path / "s.jsonl")
    FIRST.to(tmp_path / "s" / "subagents" / "agent-a1.jsonl")
    runs = by_key(imported(refold, store, tmp_path))
    note(store, runs["s"])
    grown = Written("Go.").asks("t1", "t2").hears("t1", "a1").hears("t2", "b22").says().says("More.")
    (new,) = imported(refold, store, grown.to(tmp_path / "s.jsonl"))
    assert new["run"] != runs["s"]
    assert [("c1", runs["s/a1"])] == children(refold, store, new["run"])


def test_a_parent_that_somebody_wrote_into_a_log_is_told(refold: Refold, store: Path, tmp_path: Path) -> None:
    """The agent's file says nothing of its call, so an import asks the chain before it calls the log
    equal.
    """
    SESSION.to(tmp_path / "s.jsonl")
    file = FIRST.to(tmp_path / "s" / "subagents" / "agent-a1.jsonl")
    imported(refold, store, tmp_path)
    by_hand(store, """UPDATE event SET body = replace(body, '"call":"c1"}', '"call":"c2"}')""")
    ran = refold("import", file, "--store", store)
    assert 3 == ran.code
    assert "equal" not in ran.out


def test_a_run_of_the_engine_lists_the_runs_that_its_calls_began(refold: Refold, store: Path) -> None:
    """With its task and its end."""

    async def work() -> None:
        async with await SqliteStore.open(store) as opened:
            agents = [writer(say("Written."))]
            await boss(hand_on(), say("Done."), to=agents, store=opened).run("Go.", run_id=PARENT)

    anyio.run(work)
    (child,) = shown(refold, store, PARENT)["children"]
    assert (CHILD, "c1", "Write it.", "COMPLETED") == tuple(
        child[name] for name in ("run", "call", "task", "agent_state")
    )
    assert [] == shown(refold, store, CHILD)["children"]
    (told,) = reported(store, PARENT).children
    assert child == msgspec.to_builtins(told)
    assert f"child of {PARENT}" in refold("ls", "--store", store).out


def gemini(key: str, *rows: dict[str, Any], kind: str = "main") -> str:
    """A log of Gemini CLI: its header, and these messages, a second apart."""
    header = {"sessionId": key, "projectHash": "p", "startTime": "2026-01-01T00:00:00.000Z", "kind": kind}
    dated = [
        {"id": f"{key}{n}", "timestamp": f"2026-01-01T00:00:{n:02}.000Z"} | row
        for n, row in enumerate(rows, 1)
    ]
    return "".join(f"{json.dumps(row)}\n" for row in (header, *dated))


def gemini_call(agent: str) -> dict[str, Any]:
    """An answer of Gemini CLI with a call that began the session `agent`, and the call's result."""
    response = {"functionResponse": {"id": "t1", "name": "invoke_agent", "response": {"output": "done"}}}
    call: dict[str, Any] = {"id": "t1", "name": "invoke_agent", "result": [response], "status": "success"}
    return {"type": "gemini", "content": "ok", "toolCalls": [call | {"agentId": agent}]}


@pytest.mark.parametrize(
    "order", [["whole"], ["z.jsonl", "z/a.jsonl"], ["z/a.jsonl", "z.jsonl"]], ids=" ".join
)
def test_an_agent_of_gemini_cli_is_linked_by_its_session(
    refold: Refold, store: Path, tmp_path: Path, order: list[str]
) -> None:
    """A subagent's file names no session: the result of the session's call names the subagent's file."""
    folder, go = tmp_path / "whole", {"type": "user", "content": "go"}
    (folder / "z").mkdir(parents=True)
    (folder / "z.jsonl").write_text(gemini("main", go, gemini_call("sub")))
    (folder / "z" / "a.jsonl").write_text(
        gemini("sub", {"type": "user", "content": "look"}, gemini_call("inner"), kind="subagent")
    )
    (folder / "z" / "b.jsonl").write_text(gemini("inner", go, kind="subagent"))
    runs = dict[str, str]()
    for name in order:
        runs |= by_key(imported(refold, store, folder if name == "whole" else folder / name))
    main, sub = runs["main"], runs["sub"]
    assert [("c1", sub)] == children(refold, store, main)
    assert {"run": main, "call": "c1"} == shown(refold, store, sub)["parent"]
    assert main == shown(refold, store, "@last")["run"]
    if "inner" in runs:
        assert {"run": sub, "call": "c1"} == listed(refold, store)[runs["inner"]]["parent"]
    again = imported(refold, store, folder / "z" / "a.jsonl")
    assert [(True, 0)] == [(run["whole"], run["differs"]) for run in again]


def test_an_agent_of_gemini_cli_without_its_session_has_no_parent(
    refold: Refold, store: Path, tmp_path: Path
) -> None:
    """A session whose calls name another subagent did not begin this one; the listing still calls it a
    subagent's.
    """
    (tmp_path / "a.jsonl").write_text(gemini("sub", {"type": "user", "content": "look"}, kind="subagent"))
    (tmp_path / "z.jsonl").write_text(gemini("main", gemini_call("another")))
    runs = by_key(imported(refold, store, tmp_path))
    assert shown(refold, store, runs["sub"])["parent"] is None
    assert [] == children(refold, store, runs["main"])
    assert "a sub-agent's" in refold("ls", "--store", store).out
