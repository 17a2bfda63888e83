"""Approvals judged by a chain: what is sensitive, who decides, and what a person's silence means."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers.approvals import HARMLESS, OF_ITS_LOOP, SENSITIVE, Approvals, Gate, fits, resolved
from refold.reducers.composition import approved
from refold.reducers.errors import PolicyError, WrongUse
from refold.reducers.events import ApprovalAnswered, ApprovalRequested, ClockRead, InputReceived, Manifest
from refold.reducers.guards.approvals import Asked
from refold.reducers.guards.protocol import Ask, Place, Refuse, Stop
from refold.reducers.state import Pending, RunState
from support.approving import chain_of, people, responded, said, shown, state_of
from support.scenario import SECOND
from support.setups import setup_of

ASK = {"approver": "human"}

ENDED = ["c1 terminated", "stop approval_terminated"]


@pytest.mark.parametrize(
    ("preset", "name", "arguments", "expected"),
    [
        pytest.param("ci", "bash", "{}", [], id="ci approves what is sensitive"),
        pytest.param("ci", "look", "{}", [], id="ci approves what is not"),
        pytest.param("dev", "bash", "{}", ["c1 rejected"], id="dev rejects what is sensitive"),
        pytest.param("dev", "look", "{}", [], id="dev approves the rest"),
        pytest.param("prod", "bash", "{}", ENDED, id="prod ends the run at what is sensitive"),
        pytest.param("prod", "look", "{}", [], id="prod approves the rest"),
        pytest.param("prod", "files", '{"command": "write"}', ENDED, id="a command that writes"),
        pytest.param("prod", "files", '{"command": "read"}', [], id="a command that reads"),
    ],
)
def test_presets(preset: str, name: str, arguments: str, expected: list[str]) -> None:
    """Each preset, on a sensitive call and on another."""
    assert expected == shown(said(chain_of(preset=preset), responded((name, arguments))))


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        *(pytest.param(name, "{}", True, id=name) for name in ("write_file", "text_editor", "bash", "python")),
        pytest.param("web_browser_go", "{}", True, id="the browser"),
        pytest.param("bash_2", "{}", True, id="a name that begins so"),
        pytest.param("my_bash", "{}", False, id="a name that ends so"),
        *(pytest.param(name, "{}", True, id=name) for name in (
            "Bash", "Write", "Edit", "NotebookEdit", "exec_command", "shell", "apply_patch", "edit", "write", "run_shell_command",
            "execute_bash", "str_replace_editor", "WriteFile", "mcp__fs__write_file",
        )),
        *(pytest.param(name, "{}", False, id=name) for name in (
            "Read", "Grep", "TodoWrite", "write_todos", "list_directory", "Task", "create_ticket", "editor_of_the_month",
        )),
        *(
            pytest.param("files", json.dumps({"command": command}), True, id=f"files {command}")
            for command in ("write", "edit", "trash", "mkdir", "move")
        ),
        pytest.param("files", '{"command": "WRITE"}', False, id="a command in another case"),
        pytest.param("files", '{"command": "ls"}', False, id="a command that reads"),
        pytest.param("files", "{}", False, id="no command"),
        pytest.param("files2", '{"command": "write"}', False, id="another tool with such a command"),
        pytest.param("files", '{"root": {"command": "write"}}', True, id="the root's command"),
        pytest.param("files", '{"command": null, "root": {"command": "write"}}', True, id="null is absent"),
        pytest.param("files", '{"command": "ls", "root": {"command": "write"}}', False, id="command first"),
        pytest.param("files", '{"command": "", "root": {"command": "write"}}', False, id="an empty one too"),
        pytest.param("files", '{"params": {"command": "move"}}', True, id="in params"),
        pytest.param("files", '{"params": "{\\"command\\": \\"move\\"}"}', True, id="in the JSON text of params"),
        pytest.param("files", '{"params": {}, "command": "write"}', False, id="params hide the arguments"),
        pytest.param("files", '{"params": "", "command": "write"}', True, id="params that are no object do not"),
        pytest.param("files", '{"params": "[1]", "command": "write"}', True, id="nor do those of a list"),
        pytest.param("files", '{"params": null, "command": "write"}', True, id="nor does null"),
        pytest.param("files", '{"command": ["write"]}', False, id="a command that is no text"),
        pytest.param("files", '{"command": "write"', False, id="arguments that cannot be read"),
    ],
)  # fmt: skip
def test_sensitive(name: str, arguments: str, expected: bool) -> None:
    """What is sensitive to `dev_any` and `prod_any`."""
    assert expected == fits(SENSITIVE, name, arguments)


@pytest.mark.parametrize(("command", "expected"), [("rm", True), ("rm -rf build", False)])
def test_a_command_is_a_whole_value(command: str, expected: bool) -> None:
    """`bash:rm` is the command `rm` and nothing else, as the reference says."""
    assert expected == fits(("bash:rm",), "bash", json.dumps({"command": command}))


BASH, READ = ("bash", "{}"), ("read_file", "{}")


@pytest.mark.parametrize(
    ("chain", "calls", "expected"),
    [
        pytest.param([{"approver": "approve", "tools": ["read_*"]}], [READ], [], id="a glob"),
        pytest.param([{"approver": "approve", "tools": ["read"]}], [READ], ["c1 no_approval"], id="the whole name"),
        pytest.param([{"approver": "approve", "tools": ["READ_*"]}], [READ], ["c1 no_approval"], id="its case"),
        pytest.param([{"approver": "approve", "tools": ["x", "r?ad_file"]}], [READ], [], id="one glob of several"),
        pytest.param([{"approver": "approve"}, {"approver": "reject"}], [READ], [], id="the first that decides wins"),
        pytest.param([{"approver": "reject", "tools": ["bash"]}, {"approver": "approve"}], [READ, BASH], ["c2 rejected"], id="whom a glob leaves out is asked nothing"),
        pytest.param([{"approver": "gate", "then": "escalate", "else": "escalate"}], [BASH], ["c1 no_approval"], id="who escalates last decides nothing"),
        pytest.param([{"approver": "gate", "then": "escalate"}, {"approver": "reject"}], [BASH, READ], ["c1 rejected"], id="a gate escalates"),
        pytest.param([{"approver": "gate", "then": "reject", "sensitive": ["Read_*"]}], [BASH, READ], ["c2 rejected"], id="a gate's own globs"),
        pytest.param([{"approver": "gate", "then": "reject", "sensitive": ["db:drop"]}], [("db", '{"command": "drop"}'), ("db", "{}")], ["c1 rejected"], id="a gate's own command"),
        pytest.param([{"approver": "rules", "rules": [{"tool": "b*", "decision": "reject"}, {"tool": "*", "decision": "approve"}]}], [BASH, READ], ["c1 rejected"], id="the first rule that matches"),
        pytest.param([{"approver": "rules", "rules": [{"tool": "x", "decision": "approve"}]}, {"approver": "approve"}], [BASH], [], id="no rule escalates"),
        pytest.param([{"approver": "rules", "rules": [{"tool": "bash", "decision": "terminate"}]}, {"approver": "reject"}], [READ, BASH, BASH], ["c2 terminated", "c3 terminated", "stop approval_terminated"], id="the end of the run is the last word"),
        pytest.param([ASK], [BASH, READ], ["ask c1 c2 by chain[0]"], id="one question for all calls that wait"),
        pytest.param([{"approver": "reject", "tools": ["bash"]}, ASK], [BASH, READ], ["c1 rejected", "ask c2 by chain[1]"], id="refused, and asked about"),
        pytest.param([{**ASK, "tools": ["bash"]}, ASK], [READ, BASH], ["ask c2 by chain[0]"], id="one person at a time, in the chain's order"),
        pytest.param([{"approver": "rules", "rules": [{"tool": "bash", "decision": "terminate"}]}, ASK], [READ, BASH], ["c2 terminated", "stop approval_terminated"], id="nobody is asked when the run ends"),
    ],
)  # fmt: skip
def test_chain(chain: list[dict[str, Any]], calls: list[tuple[str, str]], expected: list[str]) -> None:
    """The first decision other than `escalate` of the approvers whose glob matches; none is a rejection."""
    assert expected == shown(said(chain_of(*chain), responded(*calls)))


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        pytest.param({"c1": "approve", "c2": "approve"}, [], id="both may run"),
        pytest.param({"c1": "approve", "c2": "reject"}, ["c2 rejected"], id="one may not"),
        pytest.param({"c1": "edit", "c2": "approve"}, [], id="with other arguments"),
        pytest.param({"c1": "approve", "c2": "terminate"}, ["c2 terminated", "stop approval_terminated"], id="the end"),
        pytest.param({"c1": "escalate", "c2": "approve"}, ["c1 rejected"], id="the next in the chain decides"),
        pytest.param({"c1": "approve"}, ["ask c2 by chain[0]"], id="what is left out is asked again"),
        pytest.param({"c1": "reject"}, ["c1 rejected", "ask c2 by chain[0]"], id="refused at once, the other asked again"),
    ],
)  # fmt: skip
def test_a_person_answers(answers: dict[str, str], expected: list[str]) -> None:
    """What a person says of each call that they were asked about."""
    guard = chain_of(ASK, {"approver": "reject"})
    asked = ApprovalRequested(guard="approvals", calls=("c1", "c2"), approver="chain[0]")
    assert expected == shown(said(guard, responded(BASH, READ), asked, people(answers)))


def test_a_person_who_escalates_to_a_person() -> None:
    """The next person in the chain is asked, about the call that was escalated; then nobody is left."""
    guard = chain_of(ASK, ASK)
    first = ApprovalRequested(guard="approvals", calls=("c1", "c2"), approver="chain[0]")
    once = (first, people({"c1": "escalate", "c2": "approve"}))
    assert ["ask c1 by chain[1]"] == shown(said(guard, responded(BASH, READ), *once))
    second = ApprovalRequested(guard="approvals", calls=("c1",), approver="chain[1]")
    assert ["c1 no_approval"] == shown(
        said(guard, responded(BASH, READ), *once, second, people({"c1": "escalate"}))
    )


@pytest.mark.parametrize(
    ("on_timeout", "at", "expected"),
    [
        pytest.param("reject", 10 * SECOND - 1, ["ask c1 by chain[0]"], id="a moment before"),
        pytest.param("reject", 10 * SECOND, ["c1 rejected"], id="at the deadline"),
        pytest.param("reject", 11 * SECOND, ["c1 rejected"], id="after it"),
        pytest.param("approve", 10 * SECOND, [], id="silence approves"),
        pytest.param("escalate", 10 * SECOND, ["c1 no_approval"], id="silence escalates"),
        pytest.param("terminate", 10 * SECOND, ENDED, id="silence ends the run"),
    ],
)
def test_a_person_who_says_nothing(on_timeout: str, at: int, expected: list[str]) -> None:
    """From the deadline on, what the approver's `on_timeout` says is the person's answer."""
    guard = chain_of({**ASK, "timeout": 9.5, "on_timeout": on_timeout})
    asked = ApprovalRequested(guard="approvals", calls=("c1",), approver="chain[0]", deadline=10 * SECOND)
    assert expected == shown(said(guard, responded(BASH), asked, ClockRead(at=at, due=10 * SECOND)))
    if expected != ["ask c1 by chain[0]"]:
        late = people({"c1": "approve"}, at)
        assert expected == shown(said(guard, responded(BASH), asked, late)), "an answer too late is none"


def test_how_long_a_person_has() -> None:
    """The timeout is exact nanoseconds; without one a person has as long as they take."""
    (ask,) = said(chain_of({**ASK, "timeout": 0.1}), responded(BASH))
    (patient,) = said(chain_of(ASK), responded(BASH))
    assert isinstance(ask, Ask)
    assert isinstance(patient, Ask)
    assert (100_000_000, None) == (ask.timeout, patient.timeout)


def test_a_clock_that_was_read_for_something_else() -> None:
    """Without a deadline, or once it was answered, no reading of the clock decides anything."""
    guard = chain_of({**ASK, "on_timeout": "terminate"})
    asked = ApprovalRequested(guard="approvals", calls=("c1",), approver="chain[0]")
    late = ClockRead(at=10**18, due=10**18)
    assert ["ask c1 by chain[0]"] == shown(said(guard, responded(BASH), asked, late))
    due = msgspec.structs.replace(asked, deadline=5)
    assert [] == shown(said(guard, responded(BASH), due, people({"c1": "approve"}), late))


def test_what_skips_the_chain() -> None:
    """Incomplete calls and names outside the manifest are let by: they fail by themselves."""
    guard = chain_of({"approver": "reject"})
    event = responded(("bash", '{"a'), READ, BASH)
    calls = (msgspec.structs.replace(event.calls[0], complete=False), *event.calls[1:])
    event = msgspec.structs.replace(event, calls=calls)
    state = state_of(event)
    assert state.batch is not None
    cut = tuple(msgspec.structs.replace(call, complete=call.id != "c1") for call in state.batch.calls)
    state = msgspec.structs.replace(
        state,
        batch=msgspec.structs.replace(state.batch, calls=cut),
        setup=setup_of(run="r1", tools=(Manifest(name="bash"),)),
    )
    own = guard.observe(guard.start(), event)
    assert ["c3 rejected"] == shown(list(guard.judge(own, state, Place.ON_APPROVAL)))


def test_what_was_begun_is_judged_no_more() -> None:
    """A call that was dispatched is not refused behind its back."""
    guard, event = chain_of({"approver": "reject"}), responded(BASH, READ)
    own = guard.observe(guard.start(), event)
    assert ["c2 rejected"] == shown(list(guard.judge(own, state_of(event, "c1"), Place.ON_APPROVAL)))


def test_a_chain_that_saw_nothing_of_a_call() -> None:
    """A chain put on duty in the middle of a batch lets nothing run that it did not see, but a person may."""
    guard, event = chain_of({"approver": "approve"}), responded(BASH)
    state = state_of(event)
    assert ["c1 no_approval"] == shown(list(guard.judge(guard.start(), state, Place.ON_APPROVAL)))
    own = guard.observe(guard.start(), people({"c1": "approve"}))
    assert [] == shown(list(guard.judge(own, state, Place.ON_APPROVAL)))


def test_what_the_chain_keeps() -> None:
    """Only the last answer's calls; what does not concern it leaves the same object; it can be written and
    read.
    """
    guard = chain_of(ASK)
    own = guard.observe(guard.start(), responded(BASH, READ))
    assert own is guard.observe(own, InputReceived(at=2))
    assert own == msgspec.json.decode(msgspec.json.encode(own), type=Asked)
    assert {"c1"} == set(guard.observe(own, responded(READ)).said)
    assert guard.start() == guard.observe(own, responded())
    empty = guard.start()
    assert empty is guard.observe(empty, responded())


@pytest.mark.parametrize("preset", ["ci", "dev", "prod"])
def test_resolved(preset: str) -> None:
    """A preset is an explicit chain with all that is sensitive in it; resolving it again changes nothing."""
    once = resolved(msgspec.convert({"preset": preset}, Approvals))
    assert once.preset is None
    assert all(link.sensitive for link in once.chain if isinstance(link, Gate))
    assert once == resolved(once)
    assert once == msgspec.json.decode(msgspec.json.encode(once), type=Approvals)


def test_a_preset_spelt_out() -> None:
    """`dev` is a gate that escalates what is sensitive, and then a rejection of everything."""
    dev = resolved(Approvals(preset="dev"))
    gate = {
        "approver": "gate",
        "tools": ["*"],
        "sensitive": list(OF_ITS_LOOP),
        "harmless": list(HARMLESS),
        "then": "escalate",
        "else": "approve",
    }
    assert [gate, {"approver": "reject", "tools": ["*"]}] == json.loads(msgspec.json.encode(dev.chain))


@pytest.mark.parametrize(
    ("plain", "says"),
    [
        pytest.param({}, "got neither", id="neither"),
        pytest.param({"chain": []}, "got neither", id="an empty chain"),
        pytest.param({"preset": "ci", "chain": [ASK]}, "got both", id="both"),
    ],
)
def test_approvals_that_say_nothing(plain: dict[str, Any], says: str) -> None:
    """A preset or a chain: both, or neither, is refused with the path."""
    with pytest.raises(PolicyError, match=f"^approvals: expected 'preset'.*{says}"):
        resolved(msgspec.convert(plain, Approvals))


WAITING = RunState(
    setup=setup_of(run="r1"),
    approval=Pending(
        seq=4,
        at=0,
        until=None,
        event=ApprovalRequested(guard="approvals", calls=("c1", "c2"), approver="chain[0]"),
    ),
)


def test_an_answer_becomes_a_fact() -> None:
    """In the order of the question; new arguments, the note and who said it are kept, the body holds no
    text.
    """
    fact = ApprovalAnswered(at=5, by="ann\n")
    made = approved(WAITING, fact, {"c2": "reject", "c1": "edit"}, {"c1": '{"a": 1}'}, "too risky", b"salt")
    assert [("c1", "edit"), ("c2", "reject")] == [(each.call, each.decision) for each in made.answers]
    assert made.content is not None
    assert ("ann", {"c1": '{"a": 1}'}, "too risky") == (made.by, made.content.arguments, made.content.note)
    body = msgspec.json.encode(msgspec.structs.replace(made, content=None))
    assert b"risky" not in body


@pytest.mark.parametrize(
    ("answers", "arguments", "says"),
    [
        pytest.param({}, {}, "got none", id="no answer"),
        pytest.param(
            {"c3": "approve"},
            {},
            "'c3' is not waiting for approval; calls that are: c1, c2",
            id="another call",
        ),
        pytest.param({"c1": "maybe"}, {}, "expected one of approve, reject", id="an unknown word"),
        pytest.param({"c1": "edit"}, {}, "give its new arguments", id="an edit without arguments"),
        pytest.param({"c1": "approve"}, {"c1": "{}"}, "answer 'edit' for it", id="arguments without an edit"),
        pytest.param({"c1": "edit"}, {"c1": "[1]"}, r"one JSON object, got '\[1\]'", id="a list"),
        pytest.param({"c1": "edit"}, {"c1": '{"a"'}, "one JSON object", id="no JSON"),
    ],
)
def test_answers_that_are_none(answers: Any, arguments: dict[str, str], says: str) -> None:
    """What nobody asked, and what cannot run, is refused before anything is recorded."""
    with pytest.raises(WrongUse, match=says):
        approved(WAITING, ApprovalAnswered(at=5), answers, arguments, "", b"")


def test_an_answer_when_nobody_asked() -> None:
    """A run that asks nobody takes no approval."""
    with pytest.raises(WrongUse, match="calls that are: none"):
        approved(RunState(), ApprovalAnswered(at=5), {"c1": "approve"}, {}, "", b"")


WORDS = st.sampled_from(["approve", "reject", "escalate", "terminate"])
NAMES = st.sampled_from(["a", "ab", "b"])
GLOBS = st.tuples(st.sampled_from(["*", "a*", "b", "?b"]))
PLAINLY: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"approver": st.sampled_from(["approve", "reject", "human"]), "tools": GLOBS}
)
GATES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "approver": st.just("gate"),
        "tools": GLOBS,
        "sensitive": st.just(("A*",)),
        "then": WORDS,
        "else": WORDS,
    }
)


def naively(chain: list[dict[str, Any]], name: str) -> str:
    """The chain as the rule says it, one approver after the other; `ask` where a person is asked."""
    matched = {"*": True, "a*": name[0] == "a", "b": name == "b", "?b": name == "ab"}
    for link in chain:
        if not matched[link["tools"][0]]:
            continue
        words = {"gate": link["then"] if name[0] == "a" else link["else"]} if "then" in link else {}
        word = {"approve": "approve", "reject": "reject", "human": "ask", **words}[link["approver"]]
        if word != "escalate":
            return str(word)
    return "reject"


@given(chain=st.lists(PLAINLY | GATES, min_size=1, max_size=5), names=st.lists(NAMES, min_size=1, max_size=4))
def test_the_first_decision_wins(chain: list[dict[str, Any]], names: list[str]) -> None:
    """Every chain says of every batch what its approvers say one after the other, call by call."""
    words = {f"c{place}": naively(chain, name) for place, name in enumerate(names, 1)}
    said_ = said(chain_of(*chain), responded(*((name, "{}") for name in names)))
    refused = {each.call for each in said_ if isinstance(each, Refuse)}
    last = "terminate" if "terminate" in words.values() else "reject"
    assert {call for call, word in words.items() if word == last} == refused
    assert any(isinstance(each, Stop) for each in said_) == (last == "terminate")
    asked = {call for each in said_ if isinstance(each, Ask) for call in each.calls}
    waiting = {call for call, word in words.items() if word == "ask"} if last == "reject" else set[str]()
    assert asked <= waiting
    assert bool(asked) == bool(waiting)
