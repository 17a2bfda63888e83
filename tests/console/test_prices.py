"""`refold whatif --prices`: what a table may hold, how it is named, and that nothing is priced unasked."""

import hashlib
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from console.conftest import Refold
from refold.console.whatif_question import choose_prices
from refold.engine import Agent, ScriptedModel, call, say, tool
from refold.engine.models.prices import list_name, listed_nanousd
from refold.engine.policy_files import PolicyFileError
from refold.reducers.messages import Usage
from refold.replay.whatif.tables import PriceQuery

TABLE = "scripted: {input: 2, output: 10, cache_read: 0.5}\n"
USAGE = Usage(input=1_000_000, output=100_000)


@tool(replay="read_only")
def look(path: str) -> str:
    """Look at a file."""
    return path


@pytest.fixture
def runs(store: Path) -> Path:
    """A store with a run of three answers at $3.00 each by the table, of which the record has no price."""
    script = [call("look", path="a"), call("look", path="b"), say("Done.")]
    unpriced = [replace(reply, usage=USAGE, cost_nanousd=None) for reply in script]
    agent = Agent(model=ScriptedModel(unpriced), tools=[look], store=str(store))
    assert agent.run_sync("Look.", run_id="r").state == "COMPLETED"
    return store


def priced(usage: Usage, table: Path) -> int | None:
    prices = choose_prices(table)
    assert prices is not None
    return prices.cost(PriceQuery(model="scripted", address="", at=0, usage=usage))


def test_a_limit_is_judged_by_a_file(refold: Refold, runs: Path, tmp_path: Path) -> None:
    """With a table the limit of cost is judged, and the verdict names the file and its digest; without, it is
    not.
    """
    table = tmp_path / "prices.yaml"
    table.write_text(TABLE)
    asked = ["whatif", "r", "--set", "limits.cost=5", "--store", runs]
    assert 125 == refold(*asked).code
    found = refold(*asked, "--prices", table)
    assert 1 == found.code
    assert "STOPS at event" in found.out
    digest = hashlib.sha256(TABLE.encode()).hexdigest()
    assert "3 responses without a recorded price, by" in found.out
    assert f"sha256:{digest}" in found.out
    one, totals = map(json.loads, refold(*asked, "--prices", table, "-o", "json").out.splitlines())
    assert f"{table} sha256:{digest}" == one["whatif"]["prices"] == totals["prices"]
    assert (6_000_000_000, 3_000_000_000) == tuple(
        one["whatif"][part]["cost_nanousd"] for part in ("until", "saved")
    )


def test_nothing_is_written(refold: Refold, runs: Path, tmp_path: Path) -> None:
    """A price that was asked with is no fact: the run still has none."""
    table = tmp_path / "prices.json"
    table.write_text('{"scripted": {"input": 2, "output": 10}}')
    before = refold("show", "r", "--store", runs).out
    assert 1 == refold("whatif", "r", "--set", "limits.cost=5", "--prices", table, "--store", runs).code
    assert before == refold("show", "r", "--store", runs).out
    assert 125 == refold("whatif", "r", "--set", "limits.cost=5", "--store", runs).code


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        pytest.param(USAGE, 3_000_000_000, id="a price for a million tokens"),
        pytest.param(Usage(input=1_000_000, cache_read=400_000), 1_400_000_000, id="from a cache for less"),
        pytest.param(Usage(input=1, output=0), 2_000, id="a token"),
        pytest.param(Usage(input=9, cache_write=1), None, id="into a cache, of which the table says nothing"),
    ],
)
def test_what_a_table_says(tmp_path: Path, usage: Usage, cost: int | None) -> None:
    """Costs are exact, in nano-dollars; of what a table does not say nothing is known."""
    table = tmp_path / "prices.yaml"
    table.write_text(TABLE)
    assert cost == priced(usage, table)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        pytest.param("p.yaml", "m: {input: -1, output: 2}", "m.input: expected", id="less than nothing"),
        pytest.param("p.yaml", "m: {input: ten, output: 2}", "m.input: expected", id="no number"),
        pytest.param("p.yaml", "m: {input: 1}", "m.output: missing", id="half a price"),
        pytest.param("p.yaml", "m: {input: 1, output: 2, cached: 3}", "m.cached: unknown key", id="another key"),
        pytest.param("p.yaml", "m: 3", "m: expected dollars for a million tokens", id="one number"),
        pytest.param("p.json", "[]", "expected a line for each model", id="no mapping"),
        pytest.param("p.json", "{}", "expected a line for each model", id="an empty one"),
        pytest.param("p.json", "{", "is not valid JSON", id="no JSON"),
        pytest.param("p.txt", "", "expected a file ending in", id="another kind of file"),
        pytest.param("p.json", None, "cannot be read", id="no file"),
    ],
)  # fmt: skip
def test_tables_that_are_refused(tmp_path: Path, name: str, text: str | None, said: str) -> None:
    """A table that cannot be meant names the file, the model, and what was expected."""
    table = tmp_path / name
    if text is not None:
        table.write_text(text)
    with pytest.raises(PolicyFileError, match=said) as caught:
        choose_prices(table)
    assert str(table) in str(caught.value)


@pytest.mark.parametrize(
    ("model", "address", "known"),
    [
        pytest.param("gpt-5-mini", "", True, id="a name"),
        pytest.param("openai:gpt-5-mini", "", True, id="with its vendor"),
        pytest.param("openai/gpt-5-mini", "", True, id="as others write it"),
        pytest.param("mockllm/model", "", False, id="of nobody"),
        pytest.param("gpt-5-mini", "https://api.openai.com", True, id="at its vendor's address"),
        pytest.param("openai:gpt-5-mini", "http://127.0.0.1:1", False, id="at an address of one's own"),
    ],
)
def test_installed_lists(model: str, address: str, known: bool) -> None:
    """The address decides whose price it is; where nobody knows it, the name does."""
    assert known is (listed_nanousd(USAGE, model, address, 0) is not None)
    prices = choose_prices(Path("genai-prices"))
    assert prices is not None
    assert list_name() == prices.name
    answered = PriceQuery(model=model, address=address, at=0, usage=USAGE)
    assert listed_nanousd(USAGE, model, address, 0) == prices.cost(answered)
