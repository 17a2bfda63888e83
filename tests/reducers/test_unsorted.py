"""Tools that a gate knows neither as sensitive nor as harmless: nobody may take it that all is well."""

from typing import Any

import pytest

from refold.reducers import parse
from refold.reducers.approvals import HARMLESS, SENSITIVE, fits
from refold.reducers.events import Manifest
from refold.reducers.guards.approvals import Approval, Asked
from refold.reducers.named_tools import describe_default_decision, find_unclassified_tools
from refold.reducers.vocabulary import Replay

PAY, BASH, READ, FILES = (Manifest(name=name) for name in ("pay", "Bash", "Read", "files"))
BALANCE = Manifest(name="balance", replay=Replay.READ_ONLY)
APPROVE_PAY = {"approver": "approve", "tools": ["pay"]}
BARE = {"approver": "gate", "then": "terminate"}
GATE = {**BARE, "sensitive": [*SENSITIVE], "harmless": [*HARMLESS]}


@pytest.mark.parametrize(
    ("approvals", "said"),
    [
        pytest.param({"preset": "prod_any"}, {"approvals.chain[0]": "pay"}, id="a tool of one's own"),
        pytest.param({"preset": "dev_any"}, {"approvals.chain[0]": "pay"}, id="whatever is done about the others"),
        pytest.param({"preset": "prod"}, {"approvals.chain[0]": "pay, Bash"}, id="a preset that knows the tools of its own loop"),
        pytest.param({"chain": [BARE]}, {"approvals.chain[0]": "pay, Bash"}, id="a gate without a list knows these, too"),
        pytest.param({"preset": "ci"}, {}, id="all is approved, and said to be"),
        pytest.param({"chain": [{**GATE, "harmless": [*HARMLESS, "PAY"]}]}, {}, id="it is named beside the known ones"),
        pytest.param({"chain": [{**BARE, "sensitive": ["bash"]}]}, {}, id="all but one are said to be harmless"),
        pytest.param({"chain": [{**BARE, "sensitive": ["bash"], "harmless": ["files:ls"]}]}, {"approvals.chain[0]": "pay, Read"}, id="lists of one's own"),
        pytest.param({"chain": [{**GATE, "else": "reject"}]}, {}, id="what is unknown does not run"),
        pytest.param({"chain": [{**GATE, "else": "escalate"}, {"approver": "human"}]}, {}, id="a person is asked about it"),
        pytest.param({"chain": [{**GATE, "tools": ["b*"]}, {"approver": "approve"}]}, {}, id="the gate is not about it"),
        pytest.param({"chain": [APPROVE_PAY, GATE]}, {}, id="somebody before said that it may run"),
        pytest.param({"chain": [{**GATE, "then": "escalate", "else": "escalate"}, GATE]}, {"approvals.chain[1]": "pay"}, id="a gate behind a gate"),
    ],
)  # fmt: skip
def test_tools_that_a_gate_lets_run_unknown(approvals: dict[str, Any], said: dict[str, str]) -> None:
    """They are named, with the gate; a tool that only reads says so of itself, and one with commands shows it
    in its calls.
    """
    found = dict(find_unclassified_tools(parse({"approvals": approvals}), (PAY, BASH, READ, FILES, BALANCE)))
    assert said == {path: problem.partition(" may run")[0] for path, problem in found.items()}


def test_many_unknown_tools() -> None:
    """The first are named, and the others counted."""
    tools = [Manifest(name=f"t{number}") for number in range(25)]
    ((_, problem),) = find_unclassified_tools(parse({"approvals": {"preset": "prod_any"}}), tools)
    assert "t19 and 5 more may run" in problem


@pytest.mark.parametrize(
    ("name", "known"),
    [
        pytest.param("FIND", True, id="in any case"),
        pytest.param("\ufb01nd", False, id="a ligature that is `fi` without case"),
        pytest.param("\u017fubmit", False, id="a long s"),
        pytest.param("thin\u212a", False, id="the sign of Kelvin"),
        pytest.param("\ufb01le_editor", True, id="what looks sensitive is refused"),
        pytest.param("GRÖSSE", True, id="letters that a person wrote"),
    ],
)
def test_what_only_looks_harmless_is_not_known(name: str, known: bool) -> None:
    """No name that is another in plain letters passes for a harmless one."""
    policy = parse({"approvals": {"chain": [{**GATE, "harmless": [*HARMLESS, "größe"]}]}})
    assert known is not any(find_unclassified_tools(policy, (Manifest(name=name),)))


@pytest.mark.parametrize("mark", HARMLESS)
def test_no_known_tool_is_both(mark: str) -> None:
    """What is sensitive goes first: a name that stood in both lists would be harmless in vain."""
    name, _, command = mark.partition(":")
    assert not fits(SENSITIVE, name, f'{{"command": "{command}"}}')
    assert mark == mark.casefold()


HUMAN, PASSES_ON = {"approver": "human"}, {**GATE, "else": "escalate"}
REJECTS_RM = {"approver": "arguments", "matches": "rm -rf", "then": "reject"}


@pytest.mark.parametrize(
    ("chain", "said"),
    [
        pytest.param([{**HUMAN, "tools": ["Bash"]}], "is refused: no approver decides about it", id="a person is asked about one tool"),
        pytest.param([{**HUMAN, "timeout": 60}], "waits for a user, and is refused without an answer in 60 s (approvals.chain[0])", id="a person is asked about all"),
        pytest.param([HUMAN], "waits for a user (approvals.chain[0])", id="for ever"),
        pytest.param([{**HUMAN, "timeout": 60, "on_timeout": "escalate"}, {"approver": "approve"}], "waits for a user (approvals.chain[0])", id="others decide then"),
        pytest.param([PASSES_ON, {"approver": "approve"}], "runs without approval (approvals.chain[1])", id="the gate leaves it to who lets it run"),
        pytest.param([GATE], "runs without approval (approvals.chain[0])", id="the gate lets it run"),
        pytest.param([{**GATE, "else": "terminate"}], "ends the run (approvals.chain[0])", id="the gate ends the run"),
        pytest.param([APPROVE_PAY, {"approver": "reject"}], "is refused (approvals.chain[1])", id="all but one are rejected"),
        pytest.param([{"approver": "rules", "rules": [{"tool": "pay", "decision": "approve"}, {"tool": "*", "decision": "reject"}]}], "is refused (approvals.chain[0])", id="a rule for all others"),
        pytest.param([REJECTS_RM, {"approver": "approve"}], "is refused if its arguments match `rm -rf` (approvals.chain[0]), else runs without approval (approvals.chain[1])", id="by its arguments"),
        pytest.param([REJECTS_RM], "is refused if its arguments match `rm -rf` (approvals.chain[0]), else is refused: no approver decides about it", id="refused in any case"),
    ],
)  # fmt: skip
def test_what_becomes_of_any_other_tool(chain: list[dict[str, Any]], said: str) -> None:
    """Whoever writes a chain is told what it does with what it does not name, and which approver does
    that.
    """
    approvals = parse({"schema": "refold/v1", "approvals": {"chain": chain}}).approvals
    assert approvals is not None
    assert said == describe_default_decision(approvals.chain)
    assert ("runs without approval" in said) is (word(chain) == "approve")


def word(chain: list[dict[str, Any]]) -> str:
    """What the guard decides about a call that nothing names, without asking anybody."""
    approvals = parse({"schema": "refold/v1", "approvals": {"chain": chain}}).approvals
    assert approvals is not None
    own = Approval(chain=approvals.chain)
    return next((said for _, said in own._decide(Asked(), "nobody_named_it", "{}")), "reject")
