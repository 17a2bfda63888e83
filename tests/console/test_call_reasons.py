"""`why RUN@c3` and `show RUN@c3`: which rule decided a call, and what the record says about a refusal."""

import json
from pathlib import Path
from typing import Any

import pytest

from console.conftest import EVIL, Refold
from refold.engine import Agent, ScriptedModel, call, calls, say, tool
from support import claude_code

PUSH = {
    "effect": "refuse",
    "command": ["git", "push"],
    "say": "The release job pushes.",
    "source": "Bash(git push *) (s.json:4)",
}
GIT = {"effect": "permit", "command": ["git"]}
MAKE = {"effect": "ask", "command": ["make"]}


@tool(name="Bash", replay="read_only")
def bash(command: str) -> str:
    """Run a command."""
    return "ok"


def ran(store: Path, policy: dict[str, Any], *commands: str) -> None:
    """A run `r` whose model runs these commands under this policy."""
    script = [*(call("Bash", command=command) for command in commands), say("Done.")]
    agent = Agent(
        model=ScriptedModel(script), tools=[bash], policy={"schema": "refold/v1", **policy}, store=str(store)
    )
    agent.run_sync("Task", run_id="r")


def permissions(*rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"guards": [{"guard": "permissions", "rules": list(rules), **more}]}


def block(refold: Refold, store: Path, address: str, verb: str = "why") -> list[str]:
    """The lines about a call, without their columns."""
    found = refold(verb, address, "--store", store)
    assert found.code == 0, found.err
    lines = [" ".join(line.split()) for line in found.out.splitlines()]
    start = next(place for place, line in enumerate(lines) if line.startswith("call ") and ": " in line)
    kept = ("call", "outcome", "rule", "reason", "text", "operator", "mode")
    return [line for line in lines[start:] if line.split(" ")[0] in kept]


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        ("git status", ["outcome ok (e6)", "rule permitted by git, rules[1] of permissions, for the command `git status`"]),
        ("cd x && git push", [
            "outcome refused (e4)",
            "rule refused by Bash(git push *) (s.json:4), rules[0] of permissions, for the command `git push`",
            "reason The release job pushes.", "text skipped: The release job pushes.",
        ]),
        ("ls", ["outcome ok (e6)", "rule permitted by no rule applies, so 'else' of permissions"]),
        ("make", ["outcome open", "rule an operator is asked by make, rules[2] of permissions, for the command `make`",
                  "operator asked at e4, by the guard permissions"]),
        ("eval $X", ["outcome open", "rule cannot be judged by Bash(git push *) (s.json:4), rules[0] of permissions: "
                     "eval runs commands that are not in the text", "operator asked at e4, by the guard permissions"]),
    ],
)  # fmt: skip
def test_the_rule_that_decided(refold: Refold, store: Path, command: str, lines: list[str]) -> None:
    """A permission is derived again; a refusal has the author's words; `show` prints the same."""
    ran(store, permissions(PUSH, GIT, MAKE), command)
    assert [f"call c1 Bash: {command}", *lines] == block(refold, store, "r@c1")
    assert [f"call c1 Bash: {command}", *lines] == block(refold, store, "r@c1", "show")


def test_only_the_named_call(refold: Refold, store: Path) -> None:
    """Of a response with two calls; its event names both."""
    both = calls(("Bash", {"command": "git status"}), ("Bash", {"command": "ls"}))
    agent = Agent(
        model=ScriptedModel([both, say("Done.")]), tools=[bash], policy=permissions(GIT), store=str(store)
    )
    agent.run_sync("Task", run_id="r")
    for address, expected in (("r@c2", ["c2"]), ("r@e3", ["c1", "c2"])):
        document = json.loads(refold("why", address, "--store", store, "-o", "json").out)
        assert expected == [each["call"] for each in document["calls"]]
        assert 3 == document["seq"] == document["calls"][0]["asked"]


@pytest.mark.parametrize(
    ("policy", "lines"),
    [
        ({"guards": [{"guard": "arguments", "command": ["git", "push"], "say": "No."}]},
         ["outcome refused (e4)", "rule refused by `git push`, arguments", "reason No.", "text skipped: No."]),
        ({"guards": [{"guard": "arguments", "command": ["curl"]}]}, ["outcome ok (e6)"]),
        ({"approvals": {"chain": [{"approver": "arguments", "command": ["git", "push"], "then": "reject", "else": "approve"}]}},
         ["outcome refused (e4)", "rule rejected by `git push`, chain[0] of approvals",
          "text rejected: this call was not approved, so it was not run."]),
        ({"approvals": {"chain": [{"approver": "approve"}]}},
         ["outcome ok (e6)", "rule approved by approve, chain[0] of approvals"]),
    ],
)  # fmt: skip
def test_other_rules(refold: Refold, store: Path, policy: dict[str, Any], lines: list[str]) -> None:
    """The guard `arguments`, if it applies, and the link of a chain that decided."""
    ran(store, policy, "git push")
    found = block(refold, store, "r@c1")
    assert ["call c1 Bash: git push", *lines][:2] == found[:2]
    assert lines[:3] == found[1:4]


async def answered(store: Path) -> None:
    agent = Agent(
        model=ScriptedModel([call("Bash", command="make"), say("Done.")]),
        tools=[bash],
        policy=permissions(MAKE),
        store=str(store),
    )
    run = agent.start("Task", run_id="r")
    await run.result()
    run.answer({"c1": "reject"}, by="ann")
    await run.result()


@pytest.mark.anyio
async def test_an_answer_of_an_operator(refold: Refold, store: Path) -> None:
    """Who was asked, who answered, and what."""
    await answered(store)
    operator = [line for line in block(refold, store, "r@c1") if line.startswith("operator")]
    assert [
        "operator asked at e4, by the guard permissions",
        "operator ann answered at e6: reject",
    ] == operator


REJECTED = "The user doesn't want to proceed with this tool use. The tool use was rejected."


def imported(refold: Refold, store: Path, folder: Path, result: str, **more: Any) -> None:
    """A session of Claude Code: a call that ran, in default mode; then one with this result, in plan mode."""
    rows = [
        claude_code.user("u1", None, "Look.", permissionMode="default"),
        claude_code.answer("a1", "u1", "m1", claude_code.called("c1", command="ls")),
        claude_code.result("u2", "a1", "c1"),
        claude_code.answer("a2", "u2", "m2", claude_code.said("Done.")),
        claude_code.user("u3", "a2", "Deploy.", permissionMode="plan"),
        claude_code.answer("a3", "u3", "m3", claude_code.called("c2", command=f"git push {EVIL}")),
        claude_code.result("u4", "a3", "c2", result, is_error=True) | more,
    ]
    file = folder / "session.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert refold("import", file, "--store", store).code == 0


def test_a_call_of_an_imported_run(refold: Refold, store: Path, tmp_path: Path) -> None:
    """The mode then, and that its source does not record whether anybody was asked."""
    imported(refold, store, tmp_path, REJECTED)
    assert ["operator the source does not record whether an operator was asked", "mode default"] == block(
        refold, store, "@last@c1"
    )[2:]


@pytest.mark.parametrize(
    ("result", "more", "outcome", "operator"),
    [
        (f"{REJECTED} To tell you how to proceed, the user said:\nNo.", {}, "refused", "the user refused it"),
        (REJECTED, {}, "cancelled", "the user rejected or stopped it; the source does not record which"),
        ("Permission to use Bash with command x has been denied.", {}, "refused",
         "a permission rule or mode refused it; the source does not record which rule"),
        ("Blocked.", {"toolDenialKind": "automode-blocked"}, "refused", "a classifier refused it"),
        ("Exit code 1", {}, "raised", "the source does not record whether an operator was asked"),
    ],
)  # fmt: skip
def test_a_refused_call_of_an_imported_run(
    refold: Refold,
    store: Path,
    tmp_path: Path,
    result: str,
    more: dict[str, Any],
    outcome: str,
    operator: str,
) -> None:
    """What its source records about the refusal, and the mode since when; nothing unprintable."""
    imported(refold, store, tmp_path, result, **more)
    lines = block(refold, store, "@last@c2")
    assert lines[1].startswith(f"outcome {outcome} (e")
    assert any(line.startswith(f"operator {operator}") for line in lines)
    assert lines[-1].startswith("mode plan, since e")
    assert "\x1b" not in refold("why", "@last@c2", "--store", store).out


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("r@c2", "run r has no call c2: its calls are c1 to c1"),
        ("r@c0", "expected RUN, RUN@e41 (event 41), RUN@t7 (turn 7), RUN@c3 (call c3) or @last"),
    ],
)
def test_a_call_that_is_not_there(refold: Refold, store: Path, address: str, said: str) -> None:
    """An error names the calls that the run has."""
    ran(store, permissions(GIT), "ls")
    for verb in ("why", "show", "state"):
        found = refold(verb, address, "--store", store)
        assert (2, True) == (found.code, said in found.err)


def test_other_commands_take_the_response_of_a_call(refold: Refold, store: Path) -> None:
    """The run after the response that made the call."""
    ran(store, permissions(GIT), "ls")
    assert refold("state", "r@c1", "--store", store).out == refold("state", "r@e3", "--store", store).out
