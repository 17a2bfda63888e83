"""The named estimators: a row a rule, then what holds between one message, its part and its list."""

from collections.abc import Sequence
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers.estimate import ESTIMATORS
from refold.reducers.messages import Message, MessageCall
from refold.reducers.policy import EstimatorName, Policy
from refold.reducers.sizes import measured_message
from refold.reducers.vocabulary import Role

O200K, CL100K = TOKENIZED = ("bpe:o200k_base", "bpe:cl100k_base")
NAMES = ("chars4", "chars4_total", "chars4_joined", "cjk", "bytes4", *TOKENIZED)


def user(text: str) -> Message:
    return Message(role=Role.USER, text=text)


def reply(text: str, *calls: tuple[str, str], reasoning: str = "") -> Message:
    made = tuple(MessageCall(f"c{place}", *call) for place, call in enumerate(calls))
    return Message(role=Role.ASSISTANT, text=text, reasoning=reasoning, calls=made)


MESSAGES = [
    pytest.param("chars4", user(""), 0, id="chars4, nothing"),
    pytest.param("chars4", user("abcd"), 1, id="chars4, four characters"),
    pytest.param("chars4", user("abcde"), 2, id="chars4, rounded up"),
    pytest.param("chars4", user("😀😀😀😀"), 1, id="chars4, characters, not bytes"),
    pytest.param("chars4", reply("ab", reasoning="cde"), 2, id="chars4, text and reasoning"),
    pytest.param("chars4", reply("", ("look", '{"a":1}')), 3, id="chars4, names and arguments"),
    pytest.param("chars4_total", user("abc"), 0, id="total, one below four"),
    pytest.param("chars4_total", user("abcd"), 1, id="total, four"),
    pytest.param("chars4_total", user("abcdefg"), 1, id="total, rounded down"),
    pytest.param("chars4_total", reply("a", ("look", "123"), reasoning="abcd"), 1, id="total, text and arguments"),
    pytest.param("chars4_joined", user(""), 0, id="joined, nothing"),
    pytest.param("chars4_joined", user("a"), 1, id="joined, rounded up"),
    pytest.param("chars4_joined", user("abcd"), 1, id="joined, four"),
    pytest.param("chars4_joined", user("abcde"), 2, id="joined, five"),
    pytest.param("chars4_joined", reply("abcd", ("look", "{}"), reasoning="abcdefgh"), 1, id="joined, text only"),
    pytest.param("chars4_joined", reply("", reasoning="abcdefgh"), 2, id="joined, reasoning without text"),
    pytest.param("cjk", user(""), 4, id="cjk, nothing is four"),
    pytest.param("cjk", user("日"), 5, id="cjk, one"),
    pytest.param("cjk", user("日日日"), 6, id="cjk, three are two tokens"),
    pytest.param("cjk", user("日日日日"), 7, id="cjk, two thirds rounded up"),
    pytest.param("cjk", user("日a"), 6, id="cjk, each sum rounded by itself"),
    pytest.param("cjk", user("abcde"), 6, id="cjk, others at four"),
    pytest.param("cjk", user("\u3000\u30ff\u3400\u4dbf\u4e00\u9fff\uac00\ud7af\uf900\ufaff"), 11, id="cjk, the ends"),
    pytest.param("cjk", user("\u2fff\u3100\u33ff\u4dc0\u4dff\ua000\uabff\ud7b0\uf8ff\ufb00"), 7, id="cjk, beyond"),
    pytest.param("cjk", reply("", ("look", "{}"), reasoning="abcd"), 4 + 20 + 1 + 1, id="cjk, a call"),
    pytest.param("cjk", reply("", ("look", "")), 4 + 20 + 1 + 1, id="cjk, no arguments are {}"),
    pytest.param("cjk", reply("", ("a", '{ "b" : 1,\n "a" : [1, 2] }')), 4 + 20 + 1 + 5, id="cjk, compact"),
    pytest.param("cjk", reply("", ("a", '{"a":"\\u65e5"}')), 4 + 20 + 1 + 1 + 2, id="cjk, the character itself"),
    pytest.param("cjk", reply("", ("a", "{ no  JSON ")), 4 + 20 + 1 + 3, id="cjk, what is no JSON as it is"),
    pytest.param("cjk", reply("", ("a", "[" * 4000)), 4 + 20 + 1 + 1000, id="cjk, far too deep as it is"),
    pytest.param("cjk", reply("", ("a", '{"a":' + "9" * 4994 + "}")), 4 + 20 + 1 + 1250, id="cjk, a number of any size"),
    pytest.param("bytes4", user(""), 4, id="bytes4, nothing is four"),
    pytest.param("bytes4", user("abc"), 4, id="bytes4, rounded down"),
    pytest.param("bytes4", user("abcd"), 5, id="bytes4, four"),
    pytest.param("bytes4", user("😀"), 5, id="bytes4, bytes"),
    pytest.param("bytes4", reply("abcd", ("look", '{"a":1}'), reasoning="abcd"), 5, id="bytes4, text only"),
    pytest.param(O200K, user(""), 0, id="o200k, nothing"),
    pytest.param(O200K, user("hello world"), 2, id="o200k, two words"),
    pytest.param(O200K, user("日本語"), 2, id="o200k, Japanese"),
    pytest.param(O200K, reply("ab", reasoning="cde"), 3, id="o200k, text and reasoning apart"),
    pytest.param(O200K, reply("ab", ("look", '{"a":1}'), reasoning="cde"), 3 + 1 + 5, id="o200k, a call"),
    pytest.param(CL100K, user("hello world"), 2, id="cl100k, two words"),
    pytest.param(CL100K, user("日本語"), 4, id="cl100k, Japanese"),
    pytest.param(CL100K, reply("ab", ("look", '{"a":1}'), reasoning="cde"), 3 + 1 + 5, id="cl100k, a call"),
]  # fmt: skip


@pytest.mark.parametrize(("estimator", "message", "tokens"), MESSAGES)
def test_a_message(estimator: EstimatorName, message: Message, tokens: int) -> None:
    """Each estimator weighs a message by its row of the table, beside the characters of its text."""
    size = measured_message(Policy(estimator=estimator), message)
    assert (len(message.text), tokens) == (size.chars, size.tokens)


def part(estimator: EstimatorName, message: Message) -> int:
    return ESTIMATORS[estimator].part(message.role, measured_message(Policy(estimator=estimator), message))


def weight(estimator: EstimatorName, messages: Sequence[Message]) -> int:
    return ESTIMATORS[estimator].total(sum(part(estimator, each) for each in messages), len(messages))


SYSTEM = Message(role=Role.SYSTEM, text="abcdefgh")
LISTS = [
    pytest.param("chars4", [SYSTEM, user("a"), user("a")], 4, id="chars4: the sum"),
    pytest.param("cjk", [SYSTEM, user("a"), user("a")], 6 + 5 + 5, id="cjk: the sum"),
    pytest.param("bytes4", [SYSTEM, user("a"), user("a")], 6 + 4 + 4, id="bytes4: the sum"),
    pytest.param("chars4_total", [user("abc"), user("abc")], 1, id="total: of all characters, not the sum"),
    pytest.param("chars4_total", [user("abc"), user("abcde")], 2, id="total: eight are two"),
    pytest.param("chars4_total", [SYSTEM, user("abcd")], 1, id="total: without the system prompt"),
    pytest.param("chars4_total", [SYSTEM, user("abc")], 0, id="total: without a character of it"),
    pytest.param(
        "chars4_total", [reply("ab", ("look", "{}"), reasoning="abcd")], 1, id="total: with arguments"
    ),
    pytest.param("chars4_joined", [], 0, id="joined: nothing"),
    pytest.param("chars4_joined", [user("abcd")], 1, id="joined: one has nothing between"),
    pytest.param("chars4_joined", [user("abcd"), user("abc")], 2, id="joined: a newline between two"),
    pytest.param("chars4_joined", [user("abcd"), user("abcd")], 3, id="joined: nine are three"),
    pytest.param("chars4_joined", [SYSTEM, user("abc")], 3, id="joined: with the system prompt"),
    pytest.param("chars4_joined", [reply("ab", reasoning="abcdefgh")], 1, id="joined: text before reasoning"),
    pytest.param("chars4_joined", [reply("", reasoning="abcdefgh")], 2, id="joined: reasoning without text"),
]


@pytest.mark.parametrize(("estimator", "messages", "tokens"), LISTS)
def test_a_list(estimator: EstimatorName, messages: list[Message], tokens: int) -> None:
    """Each estimator adds a list up by its row of the table."""
    assert tokens == weight(estimator, messages)


@pytest.mark.parametrize(
    ("estimator", "tokens"),
    [
        ("chars4", 3),
        ("chars4_total", 0),
        ("chars4_joined", 3),
        ("cjk", 1 + 1 + 2 + 20),
        ("bytes4", 1 + 2 + 1 + 10),
        (O200K, 1 + 1 + 5),
        (CL100K, 1 + 1 + 5),
    ],
)
def test_a_tool(estimator: EstimatorName, tokens: int) -> None:
    """A tool is weighed by name, description and schema, each estimator in its own way."""
    assert tokens == ESTIMATORS[estimator].tool("a", "é", '{"a":1}')


def test_a_tool_of_bytes() -> None:
    """`bytes4` divides the bytes of the schema only, and rounds down."""
    bytes4 = ESTIMATORS["bytes4"]
    assert [14, 15] == [bytes4.tool("a", "bcd", schema) for schema in ("abc", "abcd")]


def test_no_estimator_is_missing() -> None:
    """The estimators are those of the policy language."""
    assert set(NAMES) == set(ESTIMATORS) == set(get_args(EstimatorName))


TEXTS = st.text(st.sampled_from("ab日é \n😀"), max_size=12)
REPLIES = st.builds(
    reply,
    TEXTS,
    st.tuples(st.just("look"), st.sampled_from(("", "{}", '{"b": 1, "a": "é"}', "{"))),
    reasoning=TEXTS,
)
ANY = st.lists(st.one_of(st.builds(user, TEXTS), REPLIES, st.just(SYSTEM)), max_size=6)


@given(estimator=st.sampled_from(NAMES), messages=ANY, more=ANY)
def test_a_longer_list_weighs_no_less(
    estimator: EstimatorName, messages: list[Message], more: list[Message]
) -> None:
    """Estimates never fall when messages are added, and are never below zero."""
    assert 0 <= weight(estimator, messages) <= weight(estimator, messages + more)


@given(messages=ANY)
def test_joined_is_the_text_itself(messages: list[Message]) -> None:
    """`chars4_joined` is a quarter of the joined texts, rounded up, though it never joins them."""
    joined = "\n".join(message.text or message.reasoning for message in messages)
    assert -(-len(joined) // 4) == weight("chars4_joined", messages)


@given(first=TEXTS, second=TEXTS)
def test_keys_in_any_order_weigh_the_same(first: str, second: str) -> None:
    """`cjk` weighs what arguments say, not how they are laid out."""
    key, other = (text.translate({0x0A: None}) for text in (first, second))
    there, back = f'{{"x{key}":1,"y{other}":2}}', f'{{ "y{other}" : 2 , "x{key}" : 1 }}'
    assert (
        measured_message(Policy(estimator="cjk"), reply("", ("a", there))).tokens
        == measured_message(Policy(estimator="cjk"), reply("", ("a", back))).tokens
    )
