"""Messages cut to a number of tokens by a tokenizer: measured when they are recorded, decided without their
texts.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from refold.reducers.errors import PolicyError
from refold.reducers.estimate import encode
from refold.reducers.events import Fact, RunStarted
from refold.reducers.folds import fold
from refold.reducers.messages import TextCut, TokenCut
from refold.reducers.parser import parse
from refold.reducers.policy import Policy
from refold.reducers.sizes import measured, misfit, refuse_unmeasured_cuts, sized
from refold.reducers.state import NEW
from refold.reducers.vocabulary import Role
from refold.reducers.window import MessageRef, Window, append
from refold.testing.strategies.driver import Driver, drive
from refold.testing.strategies.logs import choices
from support.plans import plan_of

O200K = "bpe:o200k_base"
TEXTS = st.text(st.sampled_from("ab日é \n😀1'<|>é旗"), max_size=80)


def step(cap: int | None, **more: Any) -> dict[str, Any]:
    return {"do": "trim_messages", "cap": cap, "codec": O200K, "marker": "beside", **more}


def trims(*caps: int) -> Policy:
    return parse({"history": [step(cap, name=f"trim {cap}") for cap in caps]})


def test_each_cap_is_measured() -> None:
    """The body says for each cap that the message exceeds where head and tail end, in characters, and how
    many tokens go.
    """
    words = "alpha beta gamma delta"  # a token a word, each with the space before it
    assert (
        TokenCut(codec=O200K, cap=2, cuts=(TextCut(head=5, tail=6, removed=2),)),
        TokenCut(codec=O200K, cap=3, cuts=(TextCut(head=5, tail=6, removed=2),)),
    ) == measured(trims(2, 3, 4), words).token_cuts
    assert () == measured(parse({}), words).token_cuts


def test_text_and_reasoning_share_a_cap() -> None:
    """Each part keeps half of its share at each end; one within its share is not cut."""
    size = measured(trims(4), " a" * 6, reasoning=" b" * 2)
    assert (
        TokenCut(
            codec=O200K,
            cap=4,
            cuts=(TextCut(head=2, tail=2, removed=4), TextCut(part="reasoning", head=0, tail=0, removed=2)),
        ),
    ) == size.token_cuts


@given(text=TEXTS, cap=st.integers(1, 30))
def test_a_cut_keeps_whole_characters_and_no_more_than_the_cap(text: str, cap: int) -> None:
    """Head and tail are text of the message, together within the cap, and one more character each would
    exceed it.
    """
    tokens = encode(O200K, text)
    cuts = measured(trims(cap), text).token_cuts
    assert bool(cuts) == (len(tokens) > cap)
    for cut in (cut for each in cuts for cut in each.cuts):
        half = cap // 2
        spoken = text.encode()
        spent = [len(text[: cut.head].encode()), len(text[len(text) - cut.tail :].encode())]
        room = [_bytes(tokens[:half]), _bytes(tokens[len(tokens) - half :])]
        assert all(used <= most for used, most in zip(spent, room, strict=True))
        assert spent[0] + len(text[cut.head].encode()) > room[0]
        assert spent[1] + len(text[-cut.tail - 1].encode()) > room[1]
        assert sum(room) <= len(spoken)


def _bytes(tokens: list[int]) -> int:
    from splintr import Tokenizer

    return len(Tokenizer.from_pretrained("o200k_base").decode_bytes(tokens))


def test_the_plan_reads_what_was_measured() -> None:
    """A message is cut where its body says; twice is once; another cap that nobody measured cuts nothing."""
    size = measured(trims(2), "alpha beta gamma delta", digest="1")
    scene = append(Window(), MessageRef(number=1, role=Role.USER, seq=1, unit=1, size=size))
    plan = plan_of(step(2), scene)
    assert plan is not None
    assert (TextCut(head=5, tail=6, removed=2),) == plan.shorter[0].cuts
    assert plan_of(step(3), scene) is None
    assert plan_of(step(2, codec="bpe:cl100k_base"), scene) is None


RUNS = st.builds(
    drive,
    st.just({"history": [step(3, roles=["user", "assistant", "tool"])], "end_of_turn": "continue"}),
    choices,
)


@given(run=RUNS)
def test_what_is_recorded_is_what_is_measured(run: Driver) -> None:
    """The cuts in the body of each fact are those of its content."""
    state = NEW
    for event in run.log:
        state = fold([event], state)
        assert not isinstance(event, Fact) or event == sized(event, state.policy)


def test_a_forged_cut_is_found() -> None:
    """A body that says of its message that it is cut elsewhere does not fit its content."""
    begun = drive({"history": [step(2)]}, [0] * 4).log[0]
    assert isinstance(begun, RunStarted)
    (*others, last) = begun.messages
    forged = replace(last, size=replace(last.size, token_cuts=(TokenCut(codec=O200K, cap=2, cuts=()),)))
    assert "token_cuts" in misfit(NEW, replace(begun, messages=(*others, forged)))


def test_a_fork_under_a_cap_that_was_not_measured() -> None:
    """A fork that names a cap which a message of its window may exceed is refused, with the message and the
    way out.
    """
    run = drive({}, [0] * 4)
    long = max(ref.whole.chars for chunk in run.state.window.chunks for ref in chunk)
    with pytest.raises(
        PolicyError, match=r"cap 1 and codec bpe:o200k_base: message \d+, of \d+ characters.*chars4"
    ):
        refuse_unmeasured_cuts(run.state, trims(1))
    refuse_unmeasured_cuts(run.state, trims(4 * long))
    refuse_unmeasured_cuts(run.state, parse({}))
