"""`refold whatif`, and `refold view` under a policy: what is printed, what `-o json` holds, and the exit
codes.
"""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from console.conftest import Refold
from refold.console import whatif_text
from refold.console.screen import Screen
from refold.engine import Agent, ScriptedModel, call, say, tool
from refold.replay.cuts import cut
from refold.replay.whatif.verdict import Intervention, Spend, Verdict, WhatIf, totals_of
from refold.store import SqliteStore

EVIL = "\x1b[31mred\x1b]0;owned\x07"


@tool(replay="read_only")
def look(path: str) -> str:
    """Look at a file."""
    return f"{EVIL} {path}"


@pytest.fixture
def runs(store: Path) -> Path:
    """A store with two runs, of four requests and of one."""
    for name, script in (
        ("long", [*[call("look", path=p) for p in "abc"], say("Done.")]),
        ("short", [say(EVIL)]),
    ):
        agent = Agent(model=ScriptedModel(script), tools=[look], store=str(store))
        assert agent.run_sync(f"Look {EVIL}", run_id=name).state == "COMPLETED"
    return store


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        pytest.param(["long", "--set", "limits.step=9"], 0, id="all agree"),
        pytest.param(["long", "--set", "limits.step=2"], 1, id="one stops"),
        pytest.param(
            ["long", "--policy", "guardrails", "--policy", "paperbench"], 1, id="one of two diverges"
        ),
        pytest.param(["--all", "--set", "end_of_turn=wait"], 1, id="of all runs"),
        pytest.param(["long"], 2, id="no policy"),
        pytest.param(["long", "--set", "limits=[{type: step, value: 2}]"], 1, id="a list as in a file"),
        pytest.param(["long", "--set", "guards=[{guard: loop]"], 2, id="a list that is none"),
        pytest.param(["long", "--set", "limits.step"], 2, id="a setting without a value"),
        pytest.param(["long", "--set", "limits.stepp.value=2"], 2, id="a limit of no kind"),
        pytest.param(["long", "--set", "nudges=true"], 2, id="no such key"),
        pytest.param(["long", "--policy", "no-such-preset"], 2, id="no such policy"),
        pytest.param(["--set", "nudge=true"], 2, id="no run"),
        pytest.param(["long", "--policy", "guardrails", "--only", "limits"], 0, id="rules that agree"),
        pytest.param(
            ["long", "--policy", "paperbench", "--only", "limits, guards", "--set", "limits.step=2"],
            1,
            id="rules, and a setting over them",
        ),
        pytest.param(
            ["long", "--policy", "paperbench", "--only", "guards"], 2, id="rules that it has none of"
        ),
        pytest.param(["long", "--only", "limits"], 2, id="rules of no policy"),
        pytest.param(
            ["long", "--set", "limits.step=2", "--only", "limits"], 2, id="rules of the recorded policy"
        ),
        pytest.param(["long", "--policy", "paperbench", "--only", ""], 2, id="rules of no kind"),
        pytest.param(["--view", "long@t1", "--set", "limits.step=9"], 0, id="the same view"),
        pytest.param(["--view", "long@t1", "--set", "nudge=true"], 1, id="another view"),
        pytest.param(["--view", "long@t3", "--set", "nudge=true"], 125, id="a view that nobody knows"),
        pytest.param(["--view", "long", "short", "--set", "nudge=true"], 2, id="a view of two runs"),
    ],
)
def test_exit_codes(refold: Refold, runs: Path, words: list[str], code: int) -> None:
    """0 all agree, 1 something differs, 2 nothing that can be asked, 125 not known."""
    assert code == refold("whatif", *words, "--store", runs).code


def test_a_run_in_full(refold: Refold, runs: Path) -> None:
    """Of one run the verdict, why, both decisions, and what was spent by then and after."""
    said = refold("whatif", "long", "--set", "limits.step=2", "--store", runs).out
    assert said.startswith("run long under limits.step=2: STOPS at event 14, in turn 2\n")
    for part in ("limit 'step' was reached", "MAX_STEPS (step_limit); recorded: COMPLETED end_turn", "fired"):
        assert part in said
    assert "\x1b" not in said


def test_many_runs_as_a_table(refold: Refold, runs: Path) -> None:
    """Of several runs a row each, a column a policy, and totals below, exact savings only."""
    said = refold(
        "whatif",
        "--all",
        "--set",
        "limits.step=2",
        "--policy",
        "guardrails",
        "--policy",
        "tirea",
        "--store",
        runs,
    )
    assert said.out.splitlines()[0].split("  ")[0] == "RUN"
    assert "GUARDRAILS + LIMITS.STEP=2" in said.out
    assert "guardrails + limits.step=2: 2 runs, AGREES 1, STOPS 1" in said.out
    assert "step_limit 1" in said.out
    assert "as recorded" in said.out


def test_some_rules_of_a_policy(refold: Refold, runs: Path) -> None:
    """Rules alone are told as such in the heading; a kind that there is not, and rules of no policy, say what
    to write.
    """
    asked = ["--policy", "paperbench", "--only", "limits,guards"]
    alone = refold("whatif", "long", *asked, "--set", "limits.step=2", "--store", runs).out
    assert alone.startswith("run long under only limits, guards of paperbench + limits.step=2: STOPS")
    table = refold("whatif", "--all", *asked, "--set", "limits.step=2", "--store", runs).out
    assert "ONLY LIMITS, GUARDS OF PAPERBENCH + LIMITS.STEP=2" in table
    wrong = refold("whatif", "long", "--policy", "paperbench", "--only", "limit", "--store", runs)
    assert "unknown kind of rules 'limit'; did you mean 'limits'?" in wrong.err
    assert "name it with --policy" in refold("whatif", "long", "--only", "limits", "--store", runs).err


def test_json(refold: Refold, runs: Path) -> None:
    """A line a run and policy, then a line of totals a policy."""
    found = lines(refold("whatif", "--all", "--set", "limits.step=2", "--store", runs, "-o", "json").out)
    assert [("limits.step=2", "whatif")] * 2 + [("limits.step=2", "totals")] == [
        (line["policy"], next(key for key in line if key != "policy")) for line in found
    ]
    stops = next(line["whatif"] for line in found if line.get("whatif", {}).get("verdict") == "stops")
    assert ("long", "MAX_STEPS", 14) == (stops["run"], stops["agent_state"], stops["seq"])
    assert "state" not in stops or not stops["state"]
    assert {"agree": 1, "stops": 1} == found[-1]["totals"]["verdicts"]


def test_a_view_as_a_diff(refold: Refold, runs: Path, tmp_path: Path) -> None:
    """What was left out is marked and says by which pass; `view --policy` prints the same."""
    policy = tmp_path / "short.yaml"
    policy.write_text("schema: refold/v1\nhistory:\n- {do: tail, last: 2}\n")
    said = refold("whatif", "--view", "long@t3", "--policy", policy, "--store", runs)
    assert said.code == 1
    assert [" ", "-", "-", " ", " "] == [line[0] for line in said.out.splitlines() if ". " in line[:6]]
    assert "dropped by tail (window)" in said.out
    assert "\x1b" not in said.out
    assert said.out == refold("view", "long@t3", "--policy", policy, "--store", runs).out


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        pytest.param(["guards.repetition.repeats=0"], "STOPS", id="a guard put on duty"),
        pytest.param(["guards.repetition.repeats=0", "guards.repetition=null"], "AGREES", id="and taken off"),
        pytest.param(["limits.step=null"], "AGREES", id="a limit lifted"),
        pytest.param(['limits.mine={"type": "step", "value": 1}'], "expected", id="no value of a limit"),
        pytest.param(["tool_output.max=3"], "DIVERGES", id="one key of a knob"),
        pytest.param(['limits=[{"type": "step", "value": 1}]'], "STOPS", id="a list, whole"),
        pytest.param(['guards=[{"guard": "loop", "window": 2}]'], "run long under", id="guards, whole"),
    ],
)
def test_settings(refold: Refold, runs: Path, settings: list[str], told: str) -> None:
    """A setting is laid over the recorded policy as a file would be."""
    words = [word for setting in settings for word in ("--set", setting)]
    said = refold("whatif", "long", *words, "--store", runs)
    assert told in said.out + said.err


@pytest.mark.parametrize(
    ("cost", "unpriced", "told"),
    [
        pytest.param(20_000_000_000, 0, "$20.00,", id="every price is known"),
        pytest.param(20_000_000_000, 2, "at least $20.00,", id="some are"),
        pytest.param(0, 2, "cost unknown,", id="none is"),
    ],
)
def test_money_where_prices_are_unknown(
    capsys: pytest.CaptureFixture[str], cost: int, unpriced: int, told: str
) -> None:
    """What an unknown price adds is never told as nothing: of one run, and in the totals."""
    spent = Spend(steps=2, input=5, cost_nanousd=cost, unpriced=unpriced)
    found = WhatIf(
        run="r", verdict=Verdict.STOPS, events=9, fact=3, seq=3, agent_state="MAX_STEPS", code="step_limit",
        recorded_state="COMPLETED", until=spent, saved=spent,
    )  # fmt: skip
    screen = Screen()
    whatif_text.tell(screen, "p", found)
    assert 2 == capsys.readouterr().out.count(told)
    whatif_text.tell_totals(screen, "p", totals_of(found))
    said = capsys.readouterr().out
    assert told in said


def test_a_known_cost_without_counted_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    """Responses with a known price cost $0, as in `show`, even if their tokens were not counted."""
    found = WhatIf(
        run="r", verdict=Verdict.STOPS, events=9, fact=3, seq=3, agent_state="MAX_STEPS", code="step_limit",
        recorded_state="COMPLETED", until=Spend(steps=3), saved=Spend(steps=1),
    )  # fmt: skip
    whatif_text.tell(Screen(), "p", found)
    said = capsys.readouterr().out
    assert "3 steps, tokens unknown, $0, time unknown" in said
    assert "cost unknown" not in said


def test_a_rule_of_a_tool_that_no_run_has(refold: Refold, runs: Path, tmp_path: Path) -> None:
    """A rule that can never speak agrees with everything: of one run, and of many, it is said that it
    cannot.
    """
    rule = {"guard": "arguments", "tool": "lok", "matches": "a"}
    policy = tmp_path / "lok.json"
    policy.write_text(json.dumps({"schema": "refold/v1", "preset": "observed", "guards": [rule]}))
    one = refold("whatif", "@last", "--policy", policy, "--store", runs).out
    assert 'guards[0].tool: "lok" matches no tool of this run' in one
    many = refold("whatif", "--all", "--policy", policy, "--policy", "guardrails", "--store", runs).out
    assert 1 == many.count("guards[0].tool matches nothing in any of these runs")


def test_a_guard_by_one_setting(refold: Refold, runs: Path) -> None:
    """A guard is set whole, or key by key; a name that nobody has is refused, with the nearest."""
    whole = "guards.arguments={tool: look, matches: a, then: stop}"
    assert "STOPS e4 arguments" in refold("whatif", "--all", "--set", whole, "--store", runs).out
    found = refold("whatif", "@last", "--set", "guards.argument.matches=a", "--store", runs)
    assert found.code == 2
    assert "did you mean 'arguments'?" in found.err


def test_a_guard_that_only_some_runs_have(refold: Refold, runs: Path) -> None:
    """To take out what is not there is refused: of one run, and of many where none has it; else of those that
    lack it.
    """
    agent = Agent(
        model=ScriptedModel([say("Done.")]), store=str(runs), policy={"guards": [{"guard": "repetition"}]}
    )
    agent.run_sync("Look", run_id="guarded")
    words = ("--store", runs, "--set", "guards.repetition=null")
    lacks = "guards.repetition: the policy has no guard 'repetition' to remove; it has none with a name; leave this out"
    one = refold("whatif", "long", *words)
    assert (2, "") == (one.code, one.out)
    assert lacks in one.err
    assert 0 == refold("whatif", "guarded", *words).code
    many = refold("whatif", "--all", *words)
    assert 125 == many.code
    assert 2 == " ".join(many.out.split()).count("inconclusive: guards.repetition")
    none = refold("whatif", "--all", "--store", runs, "--set", "guards.stall=null")
    assert 2 == none.code
    assert "no guard 'stall' to remove" in none.err


def test_a_fork_is_counted_once(refold: Refold, runs: Path) -> None:
    """What a fork shares with its run is saved once, and its stop in there is the run's."""
    words = ("whatif", "--all", "--set", "limits.step=1", "--store", runs)
    alone = lines(refold(*words, "-o", "json").out)[-1]["totals"]
    agent = Agent(model=ScriptedModel([say("Done.")]), tools=[look], store=str(runs))

    async def forked() -> None:
        async with await SqliteStore.open(runs, readonly=True) as opened:
            at = await cut(opened, "long")
        await agent.fork("long", at).result()

    anyio.run(forked)
    both = lines(refold(*words, "-o", "json").out)[-1]["totals"]
    assert (alone["cut_short"], alone["fired"], 1) == (both["cut_short"], both["fired"], both["before"])
    # It was forked at the last request, and that is the run's.
    assert alone["saved"]["steps"] == both["saved"]["steps"]
    assert "1 diverge in events that they share" in refold(*words).out


def found_of(**fields: Any) -> WhatIf:
    """What was found of a run that the other policy stops in its second turn."""
    plain: dict[str, Any] = {
        "run": "r", "verdict": Verdict.STOPS, "events": 9, "fact": 3, "seq": 3, "agent_state": "COMPLETED",
        "code": "end_turn", "recorded_state": "WAITING_FOR_INPUT", "until": Spend(steps=1), "saved": Spend(steps=1),
    }  # fmt: skip
    return WhatIf(**{**plain, **fields})


HOUR = 3_600 * 10**9


@pytest.mark.parametrize(
    ("fields", "said", "unsaid"),
    [
        pytest.param({}, "--set end_of_turn=wait treats it as one session", "--never", id="a turn of many"),
        pytest.param({"saved": Spend()}, "STOPS", "end_of_turn", id="the record ends there too"),
        pytest.param(
            {"code": "step_limit", "agent_state": "MAX_STEPS"}, "STOPS", "end_of_turn", id="a limit"
        ),
        pytest.param(
            {"saved": Spend(steps=1, duration=12 * HOUR, waited=10 * HOUR)},
            "2 h 00 m and 10 h 00 m waiting for an operator recorded",
            "12 h",
            id="a person was waited for",
        ),
        pytest.param(
            {"seq": 5, "derived": "{}"},
            "(nothing: a deadline passed between two events)",
            "(nothing)",
            id="a deadline between two events",
        ),
        pytest.param({"derived": "{}"}, "(nothing)", "deadline", id="no decision"),
        pytest.param({"exact": False}, "at least: work in progress", "see above", id="not exact"),
        pytest.param(
            {"fired": (Intervention(fact=2, who="approval", said="skipped", code=""),)},
            "approval: skipped at event 2",
            "()",
            id="a guard that gives no code",
        ),
    ],
)
def test_how_one_run_is_told(
    capsys: pytest.CaptureFixture[str], fields: dict[str, Any], said: str, unsaid: str
) -> None:
    """What is said of one run explains itself where it stands."""
    whatif_text.tell(Screen(), "p", found_of(**fields))
    told = capsys.readouterr().out
    assert said in told
    assert unsaid not in told


def test_totals_name_how_to_look_at_sessions(capsys: pytest.CaptureFixture[str]) -> None:
    """Where runs are done sooner, the totals say how to ask about the whole of them."""
    whatif_text.tell_totals(Screen(), "p", totals_of(found_of()))
    assert "--set end_of_turn=wait" in capsys.readouterr().out


def test_of_many_runs_only_those_that_differ(refold: Refold, runs: Path) -> None:
    """Runs that agree are counted in a line; `--every`, and JSON, list each."""
    for number in range(20):
        Agent(model=ScriptedModel([say("Done.")]), store=str(runs)).run_sync("Look", run_id=f"n{number}")
    words = ("whatif", "--all", "--set", "limits.step=2", "--store", runs)
    said = refold(*words).out
    assert 1 == said.count("STOPS e")
    assert "AGREES\n" not in said
    assert "and 21 runs AGREE under limits.step=2; --every lists them\n" in said
    assert "limits.step=2: 22 runs, AGREES 21, STOPS 1" in said
    assert 23 == len(lines(refold(*words, "-o", "json").out))
    assert refold("whatif", "--all", "--set", "limits.step=9", "--store", runs).out.startswith(
        "22 runs AGREE"
    )


def test_a_view_under_a_setting(refold: Refold, runs: Path) -> None:
    """`view --set` is `whatif --view --set`."""
    words = ("long@t1", "--set", "nudge=true", "--store", runs)
    said = refold("view", *words)
    assert (1, refold("whatif", "--view", *words).out) == (said.code, said.out)
