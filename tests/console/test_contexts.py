"""`refold whatif --contexts`: what a table may hold, how it is named, and that the verdict says whose word it
was.
"""

import hashlib
import json
from pathlib import Path

import pytest

from console.conftest import Refold
from refold.console.whatif_question import choose_contexts
from refold.engine.models.prices import list_name
from refold.engine.policy_files import PolicyFileError
from support.transcripts import path_of

HALF = 'history=[{"do":"drop_oldest","fraction":0.5,"when":{"tokens":{"share":0.5}}}]'
TRANSCRIPT = "tau_bench/airline-one-run.json"  # neither its model nor a context


@pytest.fixture
def imported(refold: Refold, store: Path) -> Path:
    """A store with a run of another agent, whose source does not say how large its model's context was."""
    assert 0 == refold("import", path_of(TRANSCRIPT), "--store", store).code
    return store


@pytest.mark.parametrize(
    ("table", "code", "said"),
    [
        pytest.param('"*": 200000', 0, "200,000 tokens, by", id="large enough"),
        pytest.param('"*": 10', 1, "10 tokens, by", id="too small"),
        pytest.param("another: 200000", 125, "no length was needed from", id="of another model"),
    ],
)
def test_a_share_of_a_context_is_judged_by_a_file(
    refold: Refold, imported: Path, tmp_path: Path, table: str, code: int, said: str
) -> None:
    """A pass at a share of the context is judged by the user's word, and the verdict says whose it was."""
    path = tmp_path / "contexts.yaml"
    path.write_text(table)
    asked = ["whatif", "@last", "--set", HALF, "--store", imported]
    assert 125 == refold(*asked).code
    found = refold(*asked, "--contexts", path)
    assert code == found.code
    assert said in found.out
    one, totals = map(json.loads, refold(*asked, "--contexts", path, "-o", "json").out.splitlines())
    name = f"{path} sha256:{hashlib.sha256(table.encode()).hexdigest()}"
    assert name == one["whatif"]["contexts"] == totals["contexts"]
    assert (code == 125) is (one["whatif"]["context"] is None)
    assert 125 == refold(*asked).code


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("m: many", "m: expected tokens, a whole number above 0", id="no number"),
        pytest.param("m: 0", "m: expected tokens", id="nothing"),
        pytest.param("m: 1.5", "m: expected tokens", id="a part of a token"),
        pytest.param("[1]", "expected a line for each model, as in `gpt-5-mini: 400000`", id="no mapping"),
    ],
)
def test_tables_that_are_refused(tmp_path: Path, text: str, said: str) -> None:
    """A table that cannot be meant names the file, the model, and what was expected."""
    path = tmp_path / "contexts.yaml"
    path.write_text(text)
    with pytest.raises(PolicyFileError, match=said) as caught:
        choose_contexts(path)
    assert str(path) in str(caught.value)


def test_whose_context_it_is(tmp_path: Path) -> None:
    """A model has its own line; `*` is for every other one, and for a run of which nobody knows the model."""
    path = tmp_path / "contexts.json"
    path.write_text('{"m": 5, "*": 9}')
    contexts = choose_contexts(path)
    assert contexts is not None
    assert [5, 9, 9] == [contexts.length(model, "") for model in ("m", "n", "")]


@pytest.mark.parametrize(
    ("model", "known"),
    [
        pytest.param("gpt-4o", True, id="a name"),
        pytest.param("openai/gpt-4o", True, id="with its vendor"),
        pytest.param("mockllm/model", False, id="of nobody"),
        pytest.param("", False, id="no name"),
    ],
)
def test_installed_lists(model: str, known: bool) -> None:
    """The installed price lists say how much many models read."""
    contexts = choose_contexts(Path("genai-prices"))
    assert contexts is not None
    assert list_name() == contexts.name
    assert known is (contexts.length(model, "") is not None)
