"""Runs weighed by a tokenizer: what commands say where it is there, and where it is not."""

import re
from functools import partial
from pathlib import Path

import anyio
import pytest

from console.conftest import Refold, act, look, record
from console.test_listings import tamper
from refold.engine import Agent, ScriptedModel, call, say
from refold.reducers.errors import PolicyError
from refold.testing.loaded_logs import load_log
from support.edited import edited, rechained

WAY_OUT = "pip install 'refold[tokens]'"
POLICY = {
    "estimator": "bpe:o200k_base",
    "nudge": True,
    "history": [
        {"do": "trim_messages", "when": {"always": True}, "cap": 9, "roles": ["tool"]},
        {"do": "token_tail", "when": {"always": True}, "budget": {"context": 600, "minus_tools": True}},
        {"do": "digest", "when": {"messages": 4}, "keep_last": 2, "per_message": 50, "total": 200},
    ],
}
SCRIPT = (call("look", path="a"), call("look", path="b"), call("look", path="c"), say("Done."))


@pytest.fixture
def run(store: Path) -> Path:
    """A store with a run that was trimmed and digested."""
    record(store, SCRIPT, run_id="r", policy=POLICY)
    return store


JUDGING = [
    pytest.param(("audit", "r"), 0, id="audit"),
    pytest.param(("verify", "r"), 0, id="verify"),
    pytest.param(("audit", "--all"), 0, id="audit, all"),
    pytest.param(("whatif", "r", "--set", "limits.step=2"), 1, id="what if"),
    pytest.param(("whatif", "r", "--set", "estimator=bpe:cl100k_base"), 0, id="what if, by the other table"),
]


@pytest.mark.parametrize(("words", "code"), JUDGING)
def test_with_the_tokenizer(refold: Refold, run: Path, words: tuple[str, ...], code: int) -> None:
    """A run that was weighed by a tokenizer is judged like any other."""
    assert code == refold(*words, "--store", run).code


@pytest.mark.parametrize("words", [param.values[0] for param in JUDGING])
def test_without_it_nothing_is_judged(
    refold: Refold, run: Path, words: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    """What has to weigh a text cannot be judged, and says how it can: exit code 125, and no word of
    damage.
    """
    request.getfixturevalue("without_tokenizer")
    ran = refold(*words, "--store", run)
    assert (125, True) == (ran.code, WAY_OUT in ran.out + ran.err)
    assert "DAMAGED" not in ran.out


def test_what_needs_no_weighing_is_checked_without_it(
    refold: Refold, run: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Chain, order, seals and state digests hold or do not, whoever can weigh: only the weights are left
    unchecked.
    """
    assert 0 == refold("keygen", tmp_path / "k").code
    assert 0 == refold("seal", "--key", tmp_path / "k", "--store", run).code
    assert 0 == refold("pack", "r", "--out", tmp_path / "r.zip", "--store", run).code
    sealed = ("verify", "r", "--key", tmp_path / "k.pub", "--store", run)
    there = refold("verify", "r", "--store", run).out.splitlines()
    request.getfixturevalue("without_tokenizer")
    ran = refold("verify", "r", "--store", run)
    (weights,) = set(ran.out.splitlines()) - set(there) - {"run r: inconclusive"}
    assert re.search(rf"weights +not checked for \d+ events: .*{re.escape(WAY_OUT)}", weights)
    assert {"run r: intact"} == set(there) - set(ran.out.splitlines())
    held = refold(*sealed)
    assert (125, True) == (held.code, "heads compared: 1" in held.out)
    bundle = refold("verify", tmp_path / "r.zip")
    assert (125, True) == (bundle.code, WAY_OUT in bundle.out)
    edited(run, "UPDATE event SET hash = zeroblob(32) WHERE key & 4294967295 = 20")
    for words in (("verify", "r", "--store", run), sealed):
        ran = refold(*words)
        assert (3, True) == (ran.code, "run r: DAMAGED" in ran.out)


def test_damage_of_another_run_is_told_first(
    refold: Refold, run: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Of a bundle in which one run cannot be judged and another is damaged, the damage is what counts."""
    record(run, SCRIPT[-1:], run_id="z")
    tamper(run, "UPDATE event SET at = 1 WHERE key = (SELECT max(key) FROM event)")
    rechained(run)
    file = tmp_path / "both.zip"
    assert 0 == refold("pack", "r", "z", "--out", file, "--store", run).code
    request.getfixturevalue("without_tokenizer")
    ran = refold("verify", file)
    assert (3, True) == (ran.code, "run z" in ran.out)


def test_nor_where_the_words_are_gone(refold: Refold, run: Path, request: pytest.FixtureRequest) -> None:
    """Without a word of the model's to measure, the harness's own are left: a missing tokenizer is no
    damage.
    """
    for seq in (1, 3, 6, 10, 13, 19, 22, 28):  # every fact
        assert 0 == refold("erase", f"r@e{seq}", "--why", "asked", "--yes", "--store", run).code
    there = refold("audit", "r", "--store", run)
    request.getfixturevalue("without_tokenizer")
    ran = refold("audit", "r", "--store", run)
    assert (0, 125, True) == (there.code, ran.code, WAY_OUT in ran.out)


@pytest.mark.parametrize(
    "words", [("show", "r"), ("ls",), ("stats",), ("whatif", "r", "--set", "estimator=chars4")]
)
def test_what_needs_no_tokenizer(
    refold: Refold, run: Path, words: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    """A log is read the same with and without it."""
    there = refold(*words, "--store", run)
    request.getfixturevalue("without_tokenizer")
    assert (0, there) == (there.code, refold(*words, "--store", run))


@pytest.mark.usefixtures("without_tokenizer")
def test_a_policy_is_checked(refold: Refold, tmp_path: Path) -> None:
    """`policy check` says what is missing; what the policy says can be printed anywhere."""
    file = tmp_path / "p.yaml"
    file.write_text("schema: refold/v1\nestimator: bpe:o200k_base\n")
    ran = refold("policy", "check", file)
    assert (2, True) == (ran.code, WAY_OUT in ran.err)
    assert "bpe:o200k_base" in refold("policy", "show", file).out


def test_no_run_begins_or_goes_on_without_it(run: Path, request: pytest.FixtureRequest) -> None:
    """An agent under such a policy is refused before there is a run; so is one that would go on with a
    run.
    """
    record(run, SCRIPT[-1:], run_id="open", policy=POLICY | {"end_of_turn": "wait"})
    request.getfixturevalue("without_tokenizer")
    with pytest.raises(PolicyError, match=re.escape(WAY_OUT)):
        Agent(model=ScriptedModel([say("one")]), policy=POLICY)
    agent = Agent(model=ScriptedModel([say("one")]), tools=[look, act], store=run)

    async def answered() -> None:
        async with agent.resume("open") as resumed:
            resumed.send("Go on.")
            await resumed.result()

    with pytest.raises(PolicyError, match=re.escape(WAY_OUT)):
        anyio.run(answered)


def test_a_test_case_that_nobody_can_weigh_fails(
    refold: Refold, run: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Its log is believed there in part, and a test that passes says that it is whole."""
    file = tmp_path / "test_it.py"
    assert 0 == refold("testcase", "r", "--out", file, "--store", run).code
    log = load_log(tmp_path / "recordings" / "test_it" / "r.jsonl")
    assert not anyio.run(partial(log.check, played=True))
    request.getfixturevalue("without_tokenizer")
    assert WAY_OUT in anyio.run(partial(log.check, played=True))
