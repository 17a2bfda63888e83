"""`approvals`, `approve`, `reject` and `edit`: a person at a terminal decides about calls, and the run goes
on.
"""

import json
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from console.conftest import EVIL, Refold, record
from console.paying import TOOLS
from console.test_hostile import dangerous
from refold.engine import Agent, Recorded, ScriptedModel, calls, say, todos
from refold.reducers.events import ApprovalRequested
from support.clocks import VirtualClock

Scripted = Callable[[list[Any]], None]

ASK: dict[str, Any] = {"approver": "human", "tools": ["write_todos"]}
TODOS = {"items": [{"text": f"Buy {EVIL}", "status": "pending"}]}
ANSWER = calls(("write_todos", TODOS), ("write_todos", {"items": []}))


@pytest.fixture
def asking(refold: Refold, scripted: Scripted, store: Path, tmp_path: Path) -> str:
    """A run on disk, started at the command line, that asks about two calls; its id."""
    return started(refold, scripted, store, tmp_path, ASK)


def started(refold: Refold, scripted: Scripted, store: Path, folder: Path, *chain: dict[str, Any]) -> str:
    (folder / "p.json").write_text(json.dumps({"schema": "refold/v1", "approvals": {"chain": chain}}))
    scripted([ANSWER])
    ran = refold("run", "Plan", "--policy", folder / "p.json", "--store", store)
    assert 1 == ran.code, ran.err
    run: str = json.loads(refold("ls", "-o", "json", "--store", store).out)[0]["run"]
    assert f"refold approve {run} c1 c2" in ran.err
    return run


def last(refold: Refold, store: Path, kind: str) -> dict[str, Any]:
    """The last event of a kind in the newest log: body, and what was said beside it."""
    shown = refold("show", "@last", "--raw", "--store", store).out.splitlines()
    event = next(each for each in reversed([json.loads(line) for line in shown]) if each["kind"] == kind)
    return {**event["body"], "content": event["content"]}


def state(refold: Refold, store: Path) -> str:
    told: str = json.loads(refold("show", "@last", "-o", "json", "--store", store).out)["agent_state"]
    return told


def test_what_to_type_is_whole(refold: Refold, scripted: Scripted, store: Path, tmp_path: Path) -> None:
    """What is told to be typed next drives the run by the same means: another tool would not be there without
    them.
    """
    (tmp_path / "p.json").write_text(json.dumps({"schema": "refold/v1", "approvals": {"chain": [ASK]}}))
    scripted([ANSWER])
    means = ["--tools", "todos,shell", "--root", tmp_path, "--base-url", "http://localhost:1/v1"]
    ran = refold("run", "Plan", "--policy", tmp_path / "p.json", *means, "--store", store)
    nexts = [line for line in ran.err.splitlines() if line.startswith("next    refold approve")]
    (line,) = nexts
    scripted([say("Done.")])
    assert 0 == refold(*shlex.split(line.partition("refold ")[2])).code


def test_a_guard_that_asks_is_named(refold: Refold, scripted: Scripted, store: Path, tmp_path: Path) -> None:
    """Where a guard asks about a call, the guard is named, and no approver of a chain that the policy does
    not have.
    """
    guard = {"guard": "arguments", "tool": "write_todos", "matches": "Buy", "then": "ask"}
    (tmp_path / "p.json").write_text(json.dumps({"schema": "refold/v1", "guards": [guard]}))
    scripted([ANSWER])
    refold("run", "Plan", "--policy", tmp_path / "p.json", "--tools", "todos", "--store", store)
    ran = refold("approvals", "@last", "--store", store)
    assert "requested by its policy's guard arguments" in ran.out
    assert "chain" not in ran.out
    asked = json.loads(refold("approvals", "@last", "-o", "json", "--store", store).out)
    assert "arguments" == asked["guard"]


def test_what_waits_is_listed(refold: Refold, store: Path, asking: str) -> None:
    """Each call with its tool and arguments, since when, who asks, and what to type."""
    ran = refold("approvals", "@last", "--store", store)
    assert 0 == ran.code
    assert f"run {asking} waits for approval since 20" in ran.out
    assert "requested by chain[0]" in ran.out
    assert 'c1  write_todos  {"items":[{"text":"Buy ' in ran.out
    assert 'c2  write_todos  {"items":[]}' in ran.out
    assert f"refold approve {asking} c1 c2 --store {store}" in ran.err
    assert set() == dangerous(ran.out + ran.err)


def test_what_must_be_added_is_said_in_capitals(
    refold: Refold, scripted: Scripted, store: Path, tmp_path: Path
) -> None:
    """The list of what waits does not know where a tool of one's own is from, and does not print what could
    only fail.
    """
    asks = {"approver": "human", "tools": ["pay"]}
    (tmp_path / "p.json").write_text(json.dumps({"schema": "refold/v1", "approvals": {"chain": [asks]}}))
    scripted([calls(("pay", {"cents": 30}))])
    assert 1 == refold("run", "Pay", "--policy", tmp_path / "p.json", *TOOLS, "--store", store).code
    err = refold("approvals", "@last", "--store", store).err
    assert 2 == err.count("c1 --tools MODULE:ATTRIBUTE --store")


def test_what_waits_as_json(refold: Refold, store: Path, asking: str) -> None:
    """One document with the calls; `null` where nothing waits."""
    told = json.loads(refold("approvals", asking, "-o", "json", "--store", store).out)
    assert (asking, "chain[0]", None, ["c1", "c2"]) == (
        told["run"],
        told["approver"],
        told["until"],
        [call["call"] for call in told["calls"]],
    )
    assert 0 <= time.time_ns() - told["since"] < 600 * 1_000_000_000
    assert TODOS == json.loads(told["calls"][0]["arguments"])


def test_secrets_are_not_shown(refold: Refold, store: Path) -> None:
    """What a call would write, and any password in it, is hidden from whoever looks over a shoulder."""
    line = calls(("look", {"path": "a", "Token": "hush", "more": [{"content": "hush"}]}))
    record(store, [line], run_id="cc44", policy={"approvals": {"chain": [{"approver": "human"}]}})
    for form in ("text", "json"):
        ran = refold("approvals", "cc44", "-o", form, "--store", store)
        assert "hush" not in ran.out
        assert "[REDACTED]" in ran.out


def test_nothing_waits(refold: Refold, store: Path, waiting: str, finished: str) -> None:
    """That no call waits is said, and is no error; to answer then is one."""
    for run in (waiting, finished):
        ran = refold("approvals", run, "--store", store)
        assert (0, "") == (ran.code, ran.out)
        assert "no call waits for approval" in ran.err
        assert "null" == refold("approvals", run, "-o", "json", "--store", store).out.strip()
        ran = refold("approve", run, "c1", "--store", store)
        assert 2 == ran.code
        assert "an answer about calls only in WAITING_FOR_INPUT" in ran.err


def test_approve(refold: Refold, scripted: Scripted, store: Path, asking: str) -> None:
    """The calls run, the run goes on to its end, and the log says who approved and why."""
    scripted([say("Planned.")])
    ran = refold("approve", asking, "c1", "c2", "--by", "ann", "--why", f"Fine {EVIL}", "--store", store)
    assert 0 == ran.code, ran.err
    assert "Planned." in ran.out
    answer = last(refold, store, "approval_answered")
    assert ("ann", f"Fine {EVIL}") == (answer["by"], answer["content"]["note"])
    assert ["approve", "approve"] == [each["decision"] for each in answer["answers"]]
    assert set() == dangerous(ran.out + ran.err)
    assert (0, 0) == (
        refold("verify", "@last", "--store", store).code,
        refold("audit", "@last", "--store", store).code,
    )


def test_one_after_the_other(refold: Refold, scripted: Scripted, store: Path, asking: str) -> None:
    """A call that was left out is asked about again; the run goes on when all are decided."""
    scripted([])
    ran = refold("approve", asking, "c1", "--store", store)
    assert 1 == ran.code, ran.err
    assert f"refold approve {asking} c2" in ran.err
    assert "c1  " not in refold("approvals", asking, "--store", store).out
    scripted([say("Planned.")])
    assert 0 == refold("reject", asking, "c2", "--store", store).code
    assert "rejected" == last(refold, store, "call_refused")["why"]
    assert 0 == refold("audit", "@last", "--store", store).code


def test_all_at_once(refold: Refold, scripted: Scripted, store: Path, asking: str) -> None:
    """`--all` means every call that waits; who said so is the login name."""
    scripted([say("Planned.")])
    assert 0 == refold("reject", asking, "--all", "--store", store).code
    answer = last(refold, store, "approval_answered")
    assert ["c1", "c2"] == [each["call"] for each in answer["answers"]]
    assert answer["by"]


def test_edit(refold: Refold, scripted: Scripted, store: Path, asking: str) -> None:
    """The tool runs with the new arguments, which stand in the answer; the model's stay in its message."""
    scripted([say("Planned.")])
    refold("approve", asking, "c2", "--store", store)
    new = '{"items": []}'
    ran = refold("edit", asking, "c1", "--arguments", new, "--by", "ann", "--store", store)
    assert 0 == ran.code, ran.err
    assert {"c1": new} == last(refold, store, "approval_answered")["content"]["arguments"]
    shown = refold("show", asking, "--raw", "--store", store).out.splitlines()
    said = next(each for each in map(json.loads, shown) if each["kind"] == "model_responded")
    assert TODOS == json.loads(said["content"]["arguments"][0])
    assert 0 == refold("audit", "@last", "--store", store).code


def test_terminate(refold: Refold, scripted: Scripted, store: Path, asking: str) -> None:
    """`reject --terminate` ends the run."""
    scripted([])
    ran = refold("reject", asking, "c1", "--terminate", "--store", store)
    assert 1 == ran.code
    assert "approval_terminated" in ran.out
    assert "ERROR" == state(refold, store)


def test_escalate(refold: Refold, scripted: Scripted, store: Path, tmp_path: Path) -> None:
    """`reject --escalate` leaves the calls to the next in the chain."""
    run = started(refold, scripted, store, tmp_path, ASK, {"approver": "approve"})
    scripted([say("Planned.")])
    assert 0 == refold("reject", run, "--all", "--escalate", "--store", store).code
    assert "COMPLETED" == state(refold, store)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param(["approve", "RUN", "c9"], "'c9' is not waiting for approval; calls that are: c1, c2", id="another call"),
        pytest.param(["approve", "RUN"], "expected one CALL or more, or --all", id="no call"),
        pytest.param(["approve", "RUN", "c1", "--all"], "expected one CALL or more, or --all", id="both"),
        pytest.param(["edit", "RUN", "c1", "--arguments", "[1]"], "one JSON object", id="a list"),
        pytest.param(["edit", "RUN", "c1"], "--arguments", id="no arguments"),
        pytest.param(["reject", "RUN", "c1", "--escalate", "--terminate"], "expected one of them", id="two ways"),
        pytest.param(["resume", "RUN", "--message", "Go on"], "not for a message: use `refold approve", id="a message"),
        pytest.param(["approvals", "RUN@e1"], "expected a run without a place", id="a place in a run"),
    ],
)  # fmt: skip
def test_wrong_use(
    words: list[str], says: str, refold: Refold, scripted: Scripted, store: Path, asking: str
) -> None:
    """What cannot be answered is said, and nothing is written."""
    scripted([])
    before = refold("show", asking, "--raw", "--store", store).out
    ran = refold(*(word.replace("RUN", asking) for word in words), "--store", store)
    assert 2 == ran.code
    assert says in ran.err
    assert before == refold("show", asking, "--raw", "--store", store).out


def test_resuming_a_run_that_asks(refold: Refold, scripted: Scripted, store: Path, asking: str) -> None:
    """Without an answer nothing happens, and it is said what the run waits for."""
    before = refold("show", asking, "--raw", "--store", store).out
    ran = refold("resume", asking, "--store", store)
    assert 1 == ran.code
    assert "waits for approval" in ran.err
    assert f"refold approve {asking} c1 c2" in ran.err
    assert before == refold("show", asking, "--raw", "--store", store).out


def test_an_answer_that_is_too_late(refold: Refold, scripted: Scripted, store: Path) -> None:
    """It is refused, and `resume` goes on with what the policy says of silence."""
    anyio.run(left_overdue, store)
    scripted([say("Planned.")])
    ran = refold("approve", "dd55", "--all", "--store", store)
    assert 2 == ran.code
    assert "too late, the answer was due by 2023" in ran.err
    ran = refold("resume", "dd55", "--store", store)
    assert 0 == ran.code, ran.err
    assert "rejected" == last(refold, store, "call_refused")["why"]


async def left_overdue(store: Path) -> None:
    """A run, years ago, whose engine went away while it waited for a person who had a minute."""
    policy = {"approvals": {"chain": [{**ASK, "timeout": 60}]}}
    model = ScriptedModel([ANSWER])
    run = Agent(model=model, tools=todos(), policy=policy, store=store, clock=VirtualClock).start(
        "Plan", run_id="dd55"
    )
    async with run:
        async for update in run.updates():
            if isinstance(update, Recorded) and isinstance(update.event, ApprovalRequested):
                return


def test_show_says_what_to_type(refold: Refold, store: Path, asking: str) -> None:
    """`show` of a run that waits for approval ends with the command that lists what it waits for; the rows of
    the calls say so.
    """
    ran = refold("show", asking, "--store", store)
    assert f"next    refold approvals {asking} --store {store}   waits for approval of c1, c2" in ran.err
    assert 2 == ran.out.count("waits for approval")
    assert " open" not in ran.out
