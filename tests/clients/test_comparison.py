"""The comparison finds each planted fault of an import, and no fault in a correct import."""

import copy
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from clients.comparison import CHECKS, Finding, compare
from clients.imported import ImportedAnswer, ImportedCall, ImportedRun
from clients.limits import FILE, Limit, judge, read_limits
from clients.scripts import Failure, Usage
from clients.truth import Exchange, Outcome, Truth
from clients.wires.protocol import Reply, ScriptedCall
from refold.reducers import messages
from refold.reducers.messages import Message, MessageCall
from refold.reducers.vocabulary import Role

SYSTEM: dict[str, object] = {"role": "system", "content": "Be brief."}
PROMPT: dict[str, object] = {"role": "user", "content": "SCRIPT=main"}
LIMITED = Failure(429, "wait", "rate_limit_exceeded", "RESOURCE_EXHAUSTED")
OUTCOME = Outcome(client="c", script="s", version="1", format="f", codes=(0,), seconds=(1.0,))


def exchange(
    turn: int, reply: Reply | None, sent: list[dict[str, object]], *, broken: bool = False
) -> Exchange:
    return Exchange(
        number=turn,
        wire="chat",
        agent="main",
        turn=turn,
        status=200 if reply else 429,
        broken=broken,
        streamed=True,
        reply=reply,
        failure=None if reply else LIMITED,
        body=msgspec.Raw(msgspec.json.encode({"messages": sent})),
    )


def call(id_: str, command: str) -> dict[str, object]:
    return {
        "id": id_,
        "type": "function",
        "function": {"name": "bash", "arguments": f'{{"command": "{command}"}}'},
    }


def truth() -> Truth:
    """A failed request, two answers with three calls (one failed), and a last answer."""
    look = Reply("I look.", (ScriptedCall("a", "bash", '{"command": "ls"}'),), Usage(10, 0, 1))
    both = (
        ScriptedCall("b", "bash", '{"command": "cat x"}'),
        ScriptedCall("c", "bash", '{"command": "exit 3"}', fails=True),
    )
    first: list[dict[str, object]] = [SYSTEM, PROMPT]
    second: list[dict[str, object]] = [
        *first,
        {"role": "assistant", "content": "I look.", "tool_calls": [call("a", "ls")]},
        {"role": "tool", "tool_call_id": "a", "content": "x"},
    ]
    third: list[dict[str, object]] = [
        *second,
        {"role": "assistant", "content": None, "tool_calls": [call("b", "cat x"), call("c", "exit 3")]},
        {"role": "tool", "tool_call_id": "b", "content": "alpha"},
        {"role": "tool", "tool_call_id": "c", "content": "code 3"},
    ]
    return Truth(
        (
            exchange(1, None, first),
            exchange(2, look, first),
            exchange(3, Reply("", both, Usage(20, 10, 2)), second),
            exchange(4, Reply("Done.", (), Usage(30, 20, 3)), third),
        ),
        OUTCOME,
    )


def right_import() -> list[ImportedRun]:
    """A correct import of it."""
    seen = [
        Message(role=Role.SYSTEM, text="Be brief."),
        Message(role=Role.USER, text="SCRIPT=main"),
        Message(role=Role.ASSISTANT, text="I look.", calls=(MessageCall("c1", "bash", '{"command":"ls"}'),)),
        Message(role=Role.TOOL, text="x", call="c1"),
        Message(
            role=Role.ASSISTANT,
            calls=(
                MessageCall("c2", "bash", '{"command":"cat x"}'),
                MessageCall("c3", "bash", '{"command":"exit 3"}'),
            ),
        ),
        Message(role=Role.TOOL, text="alpha", call="c2"),
        Message(role=Role.TOOL, text="code 3", call="c3"),
    ]
    ls = ImportedCall(
        id="c1", name="bash", arguments='{"command":"ls"}', failed=False, result="x", returned=6
    )
    cat = ImportedCall(
        id="c2", name="bash", arguments='{"command":"cat x"}', failed=False, result="alpha", returned=9
    )
    three = ImportedCall(
        id="c3", name="bash", arguments='{"command":"exit 3"}', failed=True, result="code 3", returned=10
    )
    rows = [
        (5, "I look.", [ls], messages.Usage(input=10, output=1), seen[:2]),
        (8, "", [cat, three], messages.Usage(input=20, cache_read=10, output=2), seen[:4]),
        (12, "Done.", [], messages.Usage(input=30, cache_read=20, output=3), seen),
    ]
    answers = [
        ImportedAnswer(run="r", seq=seq, text=text, calls=calls, usage=usage, seen=list(shown))
        for seq, text, calls, usage, shown in rows
    ]
    return [ImportedRun(id="r", parent="", end="finished", answers=answers, failures=[0])]


def found(runs: list[ImportedRun]) -> dict[str, list[Finding]]:
    """The findings that are not equal, without their details."""
    wrong = {name: [each for each in some if each.what] for name, some in compare(truth(), runs).items()}
    bare = {name: [msgspec.structs.replace(each, detail="") for each in some] for name, some in wrong.items()}
    return {name: some for name, some in bare.items() if some}


def test_a_right_import_is_equal_in_everything() -> None:
    """Each property of a correct import is compared at least once, and equal everywhere."""
    assert {} == found(right_import())
    assert list(CHECKS) == [name for name, some in compare(truth(), right_import()).items() if some]


Mutation = Callable[[ImportedRun], object]


def drop_result(run: ImportedRun) -> None:
    run.answers[1].calls[0].result = None


def swap_results(run: ImportedRun) -> None:
    one, two = run.answers[1].calls
    one.result, two.result = two.result, one.result


def drop_call(run: ImportedRun) -> None:
    del run.answers[1].calls[1]


def rename_call(run: ImportedRun) -> None:
    run.answers[0].calls[0].name = "shell"


def change_arguments(run: ImportedRun) -> None:
    run.answers[0].calls[0].arguments = '{"command":"ls -a"}'


def praise_failure(run: ImportedRun) -> None:
    run.answers[1].calls[1].failed = False


def blame_success(run: ImportedRun) -> None:
    run.answers[0].calls[0].failed = True


def unmark(run: ImportedRun) -> None:
    run.answers[1].calls[1].failed = None


def count_one_more(run: ImportedRun) -> None:
    run.answers[0].usage = messages.Usage(input=11, output=1)


def forget_cache(run: ImportedRun) -> None:
    run.answers[1].usage = messages.Usage(input=20, output=2)


def forget_usage(run: ImportedRun) -> None:
    run.answers[2].usage = None


def delay_result(run: ImportedRun) -> None:
    run.answers[1].calls[1].returned = 13


def reorder(run: ImportedRun) -> None:
    run.answers[0].seq, run.answers[1].seq = run.answers[1].seq, run.answers[0].seq


def hide_system(run: ImportedRun) -> None:
    for answer in run.answers:
        del answer.seen[0]


def repeat_message(run: ImportedRun) -> None:
    run.answers[2].seen.append(Message(role=Role.USER, text="[functionResponse]"))


def change_message(run: ImportedRun) -> None:
    run.answers[1].seen[3] = Message(role=Role.TOOL, text="y", call="c1")


def forget_failure(run: ImportedRun) -> None:
    run.failures.clear()


def invent_failure(run: ImportedRun) -> None:
    run.failures.append(2)


def end_otherwise(run: ImportedRun) -> None:
    run.end = "error"


def end_unknown(run: ImportedRun) -> None:
    run.end = "unknown"


@pytest.mark.parametrize(
    ("mutation", "property_", "findings"),
    [
        (drop_result, "results", [Finding("main 3 call 1", "lacks the result")]),
        (
            swap_results,
            "results",
            [Finding(f"main 3 call {number}", "has another result") for number in (1, 2)],
        ),
        (drop_call, "calls", [Finding("main 3", "has 1 calls instead of 2")]),
        (rename_call, "calls", [Finding("main 2 call 1", "is a call of shell instead of bash")]),
        (change_arguments, "calls", [Finding("main 2 call 1", "has other arguments")]),
        (praise_failure, "errors", [Finding("main 3 call 2", "recorded as a success")]),
        (blame_success, "errors", [Finding("main 2 call 1", "recorded as failed")]),
        (unmark, "errors", [Finding("main 3 call 2", "no status, failed", unknown=True)]),
        (count_one_more, "tokens", [Finding("main 2", "has other usage")]),
        (forget_cache, "tokens", [Finding("main 3", "has other usage")]),
        (forget_usage, "tokens", [Finding("main 4", "no usage", unknown=True)]),
        (delay_result, "order", [Finding("main 3", "has a result after the next answer")]),
        (hide_system, "system", [Finding(f"main {turn}", "lacks system 'Be brief.'") for turn in (2, 3, 4)]),
        (repeat_message, "view", [Finding("main 4", "adds user '[functionResponse]'")]),
        (change_message, "view", [Finding("main 3", "changes tool 'x'")]),
        (forget_failure, "failures", [Finding("main 1", "lacks the failure with status 429")]),
        (invent_failure, "failures", [Finding("others", "adds a failed request behind answer 2")]),
        (end_otherwise, "end", [Finding("main", "error instead of finished")]),
        (end_unknown, "end", [Finding("main", "unknown instead of finished", unknown=True)]),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_each_mutation_is_found(mutation: Mutation, property_: str, findings: list[Finding]) -> None:
    """A planted fault is reported at its place, under its property and no other."""
    runs = right_import()
    mutation(runs[0])
    assert {property_: findings} == found(runs)


def test_a_lost_answer_is_found() -> None:
    """The comparison reports a missing answer."""
    runs = right_import()
    del runs[0].answers[1]
    assert [Finding("main 3", "lacks the answer")] == found(runs)["answers"]


def test_a_made_up_answer_is_found() -> None:
    """The comparison reports an invented answer, and nothing else."""
    runs = right_import()
    runs[0].answers.append(ImportedAnswer(run="r", seq=14, text="Invented.", calls=[], usage=None, seen=[]))
    assert {"answers": [Finding("others", "adds the answer 'Invented.'")]} == found(runs)


def test_answers_out_of_order_are_found() -> None:
    """The comparison reports two answers in the wrong order."""
    runs = right_import()
    reorder(runs[0])
    assert Finding("main 3", "precedes an earlier answer") in found(runs)["order"]


def test_a_run_in_two_pieces_is_found() -> None:
    """The comparison reports a run in two pieces, and a run without answers."""
    runs = right_import()
    runs.append(copy.deepcopy(runs[0]))
    runs[1].id, runs[1].answers, runs[1].failures = "s", runs[0].answers[2:], []
    runs[1].answers[0].run = "s"
    runs[0].answers = runs[0].answers[:2]
    runs.append(ImportedRun(id="t", parent="", end="open", answers=[], failures=[]))
    assert [
        Finding("main", "is in 2 runs"),
        Finding("others", "adds 1 runs that hold no answer of the truth"),
    ] == found(runs)["runs"]


def limit(places: tuple[str, ...] | str = "all", what: str = "lacks system 'Be brief.'") -> Limit:
    return msgspec.convert(
        {
            "client": "c",
            "scripts": "all",
            "property": "system",
            "what": what,
            "places": places,
            "reason": "not in the file",
        },
        Limit,
    )


def judged(mutation: Mutation, limits: list[Limit]) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    runs = right_import()
    mutation(runs[0])
    cell = judge("c", "s", compare(truth(), runs), limits)["system"]
    return cell.word, cell.differs, cell.vanished


@pytest.mark.parametrize(
    ("mutation", "limits", "expected"),
    [
        pytest.param(
            hide_system,
            [],
            ("DIFFERS", ("lacks system 'Be brief.' (main 2, main 3, main 4)",), ()),
            id="an unlisted difference is reported",
        ),
        pytest.param(hide_system, [limit()], ("limit", (), ()), id="a listed difference is a limit"),
        pytest.param(
            hide_system,
            [limit(("main 2", "main 3"))],
            ("DIFFERS", ("lacks system 'Be brief.' (main 4)",), ()),
            id="a difference at an unlisted place is reported",
        ),
        pytest.param(
            unmark,
            [limit()],
            ("VANISHED", (), ("lacks system 'Be brief.' (main 2, main 3, main 4)",)),
            id="a vanished difference is reported",
        ),
        pytest.param(
            hide_system,
            [limit(what="lacks system 'Be long.'")],
            (
                "DIFFERS",
                ("lacks system 'Be brief.' (main 2, main 3, main 4)",),
                ("lacks system 'Be long.' (main 2, main 3, main 4)",),
            ),
            id="other words are another difference",
        ),
    ],
)
def test_a_limit_is_held_exactly(
    mutation: Mutation, limits: list[Limit], expected: tuple[str, tuple[str, ...], tuple[str, ...]]
) -> None:
    """A limit covers a difference only with the same words and places, and is reported where it vanished."""
    assert expected == judged(mutation, limits)


def test_the_listed_limits_name_what_there_is(tmp_path: Path) -> None:
    """Each limit names a checked property; an unknown key is an error."""
    assert set() == {each.property for each in read_limits(FILE)} - {*CHECKS}
    (tmp_path / "limits.toml").write_text('[[limit]]\nclient = "pi"\nwhy = "?"\n', encoding="utf-8")
    with pytest.raises(msgspec.ValidationError, match="why"):
        read_limits(tmp_path / "limits.toml")
