"""Tokens by a tokenizer: what it counts, what of a count stays where words are gone, and what needs none."""

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from refold.importers.compression import zstandard
from refold.reducers import codec
from refold.reducers.errors import Inconclusive, PolicyError
from refold.reducers.estimate import ESTIMATORS, LONGEST, MissingTokenizer, count
from refold.reducers.events import Fact
from refold.reducers.folds import fold
from refold.reducers.messages import Size
from refold.reducers.parser import parse
from refold.reducers.sizes import misfit, refuse_without_tokenizer
from refold.reducers.state import NEW
from refold.testing.strategies.driver import Driver, drive
from refold.testing.strategies.logs import choices
from support.strategies import stored
from support.transcripts import FILES, path_of

O200K, CL100K = NAMES = ("bpe:o200k_base", "bpe:cl100k_base")

# Counted once by two libraries that share no code, and equal: no version of either may say otherwise.
COUNTS = [
    pytest.param("", 0, 0, id="nothing"),
    pytest.param("don't", 1, 2, id="a contraction"),
    pytest.param("  x", 2, 2, id="blanks before a word"),
    pytest.param("1234567", 3, 3, id="digits in threes"),
    pytest.param("def f(x):\n    return x\n", 8, 8, id="code"),
    pytest.param("Größe", 2, 2, id="umlauts"),
    pytest.param("e\u0301te\u0301", 4, 4, id="combining marks"),
    pytest.param("😀😀😀😀", 4, 8, id="outside the first plane"),
    pytest.param("<|endoftext|>", 7, 7, id="a special token is text"),
    pytest.param("<|think|>", 5, 5, id="and so is one of another's making"),
]


@pytest.mark.parametrize(("text", "o200k", "cl100k"), COUNTS)
def test_a_text(text: str, o200k: int, cl100k: int) -> None:
    """A text has the tokens of its table."""
    assert (o200k, cl100k) == (count(O200K, text), count(CL100K, text))


@pytest.mark.parametrize(
    ("char", "tokens"),
    [("a", 125_000), (" ", 7_813), ("\n", 62_500), ("あ", 1_000_000), ("1", 333_334), ("!", 62_500)],
)
def test_a_million_times_one_character(char: str, tokens: int) -> None:
    """The longest word there is takes no time that grows with its square: no build would live to see the end
    of it.
    """
    assert tokens == count(O200K, char * 1_000_000)


def said_in(file: str) -> str:
    """A transcript of the repository as text."""
    data = path_of(file).read_bytes()
    if path_of(file).suffix == ".zst":
        data = zstandard()[0]().decompress(data)
    return data.decode(errors="replace")


@pytest.mark.parametrize(
    ("file", "o200k", "cl100k"),
    [
        ("claude_code/stop-hook-continues.jsonl", 14_746, 14_703),
        ("claude_code/interrupted.jsonl", 109_571, 106_052),
        ("claude_code/microcompaction.jsonl", 420_771, 419_096),
    ],
)
def test_a_transcript(file: str, o200k: int, cl100k: int) -> None:
    """Another version of the library counts what this one did."""
    text = said_in(file)
    assert (o200k, cl100k) == (count(O200K, text), count(CL100K, text))


@pytest.mark.parametrize("name", NAMES)
def test_another_library_counts_the_same(name: str) -> None:
    """Which library counted does not matter: of every transcript `bpe-openai`, where it is installed, says
    the same.
    """
    other = pytest.importorskip("bpe_openai._bindings").tokenizer_for_encoding(name.removeprefix("bpe:"))
    assert [] == [file for file in FILES if count(name, said_in(file)) != other.count(said_in(file))]


SIZES = st.builds(
    Size,
    chars=st.integers(0, 999),
    reasoning=st.integers(0, 99),
    arguments=st.integers(0, 99),
    tokens=st.integers(0, 999),
)


@pytest.mark.parametrize(
    ("whole", "shown", "tokens"),
    [
        pytest.param(Size(chars=100, tokens=50), (100, 0), 50, id="all of it"),
        pytest.param(Size(chars=100, tokens=50), (50, 0), 25, id="half"),
        pytest.param(Size(chars=100, tokens=50), (51, 0), 26, id="rounded up"),
        pytest.param(Size(chars=100, tokens=50), (0, 0), 0, id="nothing"),
        pytest.param(Size(chars=60, reasoning=40, tokens=10), (30, 20), 5, id="reasoning too"),
        pytest.param(Size(chars=60, arguments=40, tokens=10), (10, 0), 5, id="arguments stay"),
        pytest.param(Size(chars=1, tokens=2**60), (2**60, 0), LONGEST, id="what only a forged log claims"),
    ],
)
def test_shown_shorter(whole: Size, shown: tuple[int, int], tokens: int) -> None:
    """A message that is cut keeps its tokens in proportion to its characters, rounded up."""
    assert [tokens] * 2 == [ESTIMATORS[name].shortened(whole, *shown) for name in NAMES]


@given(whole=SIZES, chars=st.integers(0, 999), reasoning=st.integers(0, 99))
def test_the_shorter_the_lighter(whole: Size, chars: int, reasoning: int) -> None:
    """What is cut weighs no more than the whole, whole it weighs the same, and the parts no less than it
    together.
    """
    assume(chars <= whole.chars and reasoning <= whole.reasoning)
    shortened = ESTIMATORS[O200K].shortened
    cut, rest = (
        shortened(whole, chars, reasoning),
        shortened(whole, whole.chars - chars, whole.reasoning - reasoning),
    )
    if whole.chars + whole.reasoning + whole.arguments:
        assert 0 <= cut <= whole.tokens == shortened(whole, whole.chars, whole.reasoning) <= cut + rest


def test_quoted() -> None:
    """A digest weighs the words around it as they are, and what it quotes by the share of the characters
    quoted.
    """
    sources = [Size(chars=60, tokens=30), Size(chars=40, tokens=20)]
    assert 2 + 5 == ESTIMATORS[O200K].quoting(("hello world", ""), 10, sources)
    assert 2 + 10 == ESTIMATORS[O200K].quoting(("hello world", ""), 10, [Size()])


@given(
    text=st.text(st.sampled_from("ab日é \n😀1'<|>"), max_size=40),
    calls=st.lists(st.sampled_from(("look", "{}", ""))),
)
def test_a_message_is_the_sum_of_its_parts(text: str, calls: list[str]) -> None:
    """Each part of a message is counted by itself, so that nobody has to know how a provider joins them."""
    for name in NAMES:
        parts = count(name, text) * 2 + sum(count(name, "look") + count(name, each) for each in calls)
        assert parts == ESTIMATORS[name].weigh(text, text, [("look", each) for each in calls])


POLICY = {
    "estimator": O200K,
    "nudge": True,
    "end_of_turn": "continue",
    "history": [
        {"do": "trim_messages", "when": {"messages": 3}, "cap": 4, "roles": ["user", "assistant", "tool"]},
        {"do": "token_tail", "when": {"always": True}, "budget": {"context": 90, "minus_tools": True}},
        {"do": "digest", "when": {"messages": 6}, "keep_last": 2, "per_message": 9, "total": 60},
    ],
}
RUNS = st.builds(drive, st.just(POLICY), choices)


@given(run=RUNS)
def test_what_is_recorded_is_what_is_counted(run: Driver) -> None:
    """Of every fact the tokens in its body are those of its content."""
    state = NEW
    for event in run.log:
        assert not isinstance(event, Fact) or "" == misfit(state, event)
        state = fold([event], state)


@given(run=RUNS)
def test_a_fold_needs_no_text(run: Driver) -> None:
    """The bodies alone give the tokens of the window: recorded ones are added up."""
    bare = fold([codec.decode(one.kind, one.body) for one in stored(run.log)])
    assert (run.state.window.tokens, run.state.spent) == (bare.window.tokens, bare.spent)


def test_a_fold_needs_no_tokenizer(request: pytest.FixtureRequest) -> None:
    """A log can be read where the extra is missing; of what it holds nothing can be weighed anew."""
    run = drive(POLICY, [0, 1, 2, 3, 4, 5] * 4)
    request.getfixturevalue("without_tokenizer")
    assert run.state == fold(run.log)
    with pytest.raises(MissingTokenizer):
        misfit(NEW, run.facts[0])


@pytest.mark.usefixtures("without_tokenizer")
def test_without_the_extra() -> None:
    """A policy that names a tokenizer is read anywhere, and who needs it is told how to get it."""
    name = parse({"estimator": O200K}).estimator
    with pytest.raises(Inconclusive, match=r"bpe:o200k_base.*pip install 'refold\[tokens\]'"):
        count(name, "a")
    with pytest.raises(PolicyError, match=r"^estimator: bpe:o200k_base.*pip install 'refold\[tokens\]'"):
        refuse_without_tokenizer(parse({"estimator": O200K}))
    trims = {"do": "trim_messages", "cap": 9, "codec": O200K, "marker": "beside"}
    for policy, path in (
        ({"history": [trims]}, "history[0]"),
        ({"overflow": {"do": [trims]}}, "overflow.do[0]"),
    ):
        with pytest.raises(PolicyError, match=rf"^{re.escape(path)}.codec: bpe:o200k_base.*pip install"):
            refuse_without_tokenizer(parse(policy))
    refuse_without_tokenizer(parse({}))
    assert 0 == count(name, "")
