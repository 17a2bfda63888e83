"""The same script, recorded by five clients: the same run, by every question that does not ask for a client's
own words.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold.importers.items import RunEnded
from refold.importers.registry import importer
from refold.reducers.events import Event, ModelResponded, RunStarted, ToolReturned
from refold.reducers.parser import parse
from refold.replay import known
from refold.replay.timeline import Teller, TurnRow
from refold.replay.whatif.comparison import Comparison
from support.clients import CLIENTS, Script, Turn, answers
from support.following import shown as followed
from support.strategies import scaled
from support.told import audited, derived, events
from support.transcribed import every, items_of

LONG = (
    Turn("go", [("I look.", ["ls"]), ("Both.", ["cat a", "cat b"]), ("Again.", ["ls"]), ("Once more.", ["ls"]), ("Done.", [])]),
    Turn("and?", [("That, too.", ["rm c"]), ("All done.", [])]),
)  # fmt: skip
RULES: list[tuple[str, dict[str, Any]]] = [
    ("steps of a turn", {"limits": [{"type": "step", "scope": "turn", "value": 3}]}),
    ("steps of a run", {"limits": [{"type": "step", "value": 6}]}),
    ("the same call", {"guards": [{"guard": "repetition", "repeats": 2}]}),
    ("a command", {"guards": [{"guard": "arguments", "matches": "rm c", "then": "stop"}]}),
    ("results that say nothing new", {"guards": [{"guard": "stall"}]}),
    ("failures", {"guards": [{"guard": "errors", "rounds": 1}]}),
    ("nothing", {"limits": [{"type": "step", "value": 99}]}),
]


def log_of(client: str, script: Script) -> list[Event]:
    """The log of a script as the client records it."""
    deriving, log = derived(items_of(importer(client), CLIENTS[client](script)))
    assert [] == deriving.problems
    assert audited(log).clean
    return events(log)


def turns_of(log: list[Event]) -> list[tuple[int, str, list[tuple[str | None, str]]]]:
    """Its turns: the number of each, its words, and its calls with what came of them."""
    rows = list[TurnRow]()
    rows += followed(Teller(rows.append), log)
    return [(row.step, row.text or "", [(call.argument, call.result) for call in row.calls]) for row in rows]


def verdict_of(log: list[Event], policy: dict[str, Any]) -> tuple[str, int]:
    """What another policy makes of it, and in which turn."""
    found = followed(Comparison("r1", parse({"preset": "observed", **policy})), log)
    return str(found.verdict), found.turn


@pytest.mark.parametrize("client", sorted(CLIENTS))
def test_a_script_is_told_the_same(client: str) -> None:
    """Turns, steps, texts, commands, outcomes and tokens are those of the script, whichever client recorded
    it.
    """
    log = log_of(client, LONG)
    assert [
        (step, text, [(command, "ok") for command in commands])
        for step, (text, commands) in enumerate(answers(LONG), start=1)
    ] == turns_of(log)
    used = [event.usage for event in log if isinstance(event, ModelResponded)]
    assert [(9, 3)] * 7 == [(usage.input, usage.output) for usage in used]


@pytest.mark.parametrize("policy", [policy for _, policy in RULES], ids=[name for name, _ in RULES])
def test_a_rule_judges_it_the_same(policy: dict[str, Any]) -> None:
    """A rule comes to the same verdict at the same answer, whichever client recorded the script."""
    found = {client: verdict_of(log_of(client, LONG), policy) for client in CLIENTS}
    assert 1 == len(set(found.values())), found


def test_a_rule_on_the_steps_of_a_turn_stops_in_its_third() -> None:
    """Results are no words of a person: they begin no turn."""
    policy = {"limits": [{"type": "step", "scope": "turn", "value": 3}]}
    assert dict.fromkeys(CLIENTS, ("stops", 3)) == {
        client: verdict_of(log_of(client, LONG), policy) for client in CLIENTS
    }


texts = st.text("abc", min_size=1, max_size=4)
steps = st.lists(st.tuples(texts, st.lists(texts, min_size=1, max_size=3)), max_size=4)


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    """A person's words, answers with commands, and a last one without."""
    return Turn(draw(texts), [*draw(steps), (draw(texts), [])])


scripts = st.lists(turns(), min_size=1, max_size=3)


@settings(max_examples=scaled(8))
@given(script=scripts, value=st.integers(1, 4))
def test_any_script(script: Script, value: int) -> None:
    """Any script is the same run in every client's record, and a limit of a turn's steps stops it at the same
    answer.
    """
    policy = {"limits": [{"type": "step", "scope": "turn", "value": value}]}
    logs = {client: log_of(client, script) for client in CLIENTS}
    assert 1 == len({repr(turns_of(log)) for log in logs.values()})
    assert 1 == len({verdict_of(log, policy) for log in logs.values()})


@pytest.mark.parametrize("client", sorted(CLIENTS))
def test_only_what_the_file_shows_is_finished(client: str) -> None:
    """A record that ends amid a script is not finished; of a whole one Gemini CLI alone cannot tell it from
    one that was stopped.
    """
    (whole,) = every(items_of(importer(client), CLIENTS[client](LONG)), RunEnded)
    assert ("unknown" if client == "gemini_cli" else "finished") == whole.end
    for cut in range(len(LONG[0].answers) - 1):
        asked = [Turn("go", LONG[0].answers[: cut + 1])]
        (ended,) = every(items_of(importer(client), CLIENTS[client](asked)), RunEnded)
        assert "open" == ended.end


def test_nothing_is_made_up() -> None:
    """Each client's record has the person's words as the task, and no result that is not known to be one."""
    for client in CLIENTS:
        log = log_of(client, LONG)
        started = log[0]
        assert isinstance(started, RunStarted)
        assert started.content is not None
        assert "go" == started.content.messages[started.task or 0].text
        assert {"ok"} == {known.outcome(event) for event in log if isinstance(event, ToolReturned)}
