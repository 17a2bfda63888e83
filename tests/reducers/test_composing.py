"""Facts from what the world said: sizes, ids, digests, and cleaning."""

import hashlib

import pytest

from refold.reducers import codec, composition
from refold.reducers.errors import WrongUse
from refold.reducers.events import Answer, Call, ModelFailed, ModelResponded, RunStarted, ToolReturned
from refold.reducers.messages import Message, MessageCall, ReplyCall
from refold.reducers.parser import parse
from refold.reducers.policy import Policy
from refold.reducers.rules.order import RULES
from refold.reducers.vocabulary import FailureClass, Role, StopReason
from support.scenario import SALT, START, TOOLS, Scenario

USER = Message(role=Role.USER, text="do it")


def responded(scenario: Scenario, text: str, *calls: ReplyCall, reasoning: str = "") -> ModelResponded:
    fact = ModelResponded(at=START, request=2, stop=StopReason.END_TURN)
    return composition.responded(scenario.state, fact, Answer(text=text, reasoning=reasoning), calls, SALT)


def started(*messages: Message, policy: Policy | None = None) -> RunStarted:
    fact = RunStarted(
        format=1, at=START, run="r1", rules=RULES, policy=policy or parse({}), model="m", tools=TOOLS
    )
    return composition.started(fact, messages, SALT)


@pytest.mark.parametrize(
    ("text", "blank"),
    [
        pytest.param("", True, id="nothing"),
        pytest.param(" \t\n", True, id="white space"),
        pytest.param("\u00a0\u2003", True, id="white space beyond ASCII"),
        pytest.param(".", False, id="a dot"),
    ],
)
def test_blank(text: str, blank: bool) -> None:
    """An answer is blank if its text holds nothing but white space."""
    assert blank == responded(Scenario(), text).blank


def test_sizes_of_an_answer() -> None:
    """Characters of the text and of the reasoning; tokens of text, reasoning, names and arguments
    together.
    """
    fact = responded(Scenario(), "abcd", ReplyCall(name="look", arguments='{"a":1}'), reasoning="wxyz!")
    assert (4, 5, 5) == (fact.size.chars, fact.size.reasoning, fact.size.tokens)  # ceil((4 + 5 + 4 + 7) / 4)
    assert 7 == fact.size.arguments
    assert (Call(id="c1", name="look", complete=True),) == fact.calls


def test_call_ids_are_unique_in_the_run() -> None:
    """Ids count on over the whole run; the provider's, which may repeat, stand beside."""
    scenario = Scenario()
    same = ReplyCall(name="look", arguments="{}", provider_id="call_0")
    first = responded(scenario, "", same, same)
    scenario.feed(first)
    scenario.result("c1")
    scenario.result("c2")
    second = composition.responded(
        scenario.state,
        ModelResponded(at=START, request=scenario.state.seq, stop=StopReason.TOOL_USE),
        Answer(),
        [same],
        SALT,
    )
    assert ["c1", "c2", "c3"] == [call.id for call in (*first.calls, *second.calls)]
    assert {"call_0"} == {call.provider_id for call in (*first.calls, *second.calls)}


def test_arguments_stay_as_the_model_wrote_them() -> None:
    """What the model wrote is judged, not edited: broken JSON, blanks and order are kept."""
    written = ['{"b" : 1,"a":2}', "{broken", ""]
    fact = responded(Scenario(), "", *[ReplyCall(name="look", arguments=text) for text in written])
    assert fact.content is not None
    assert tuple(written) == fact.content.arguments
    assert [True, False, True] == [call.complete for call in fact.calls]


def test_the_digest_is_of_salt_and_content() -> None:
    """The digest in the body is the SHA-256 of the framed salt and the stored bytes of the content."""
    fact = responded(Scenario(), "hello")
    stored = codec.encode(fact).content
    assert b'{"text":"hello"}' == stored
    assert hashlib.sha256(b"4:salt" + b'{"text":"hello"}').hexdigest() == fact.size.digest


LONE = "a\ud800"
CLEAN = "a\ufffd"


def test_lone_surrogates_never_reach_an_event() -> None:
    """Whatever a model, a tool or a provider says can be written as UTF-8 JSON."""
    scenario = Scenario()
    made = ReplyCall(name=LONE, arguments=LONE, provider_id=LONE)
    answer = responded(scenario, LONE, made, reasoning=LONE)
    failure = composition.failed(
        ModelFailed(at=START, request=2, failure=FailureClass.OTHER), LONE, LONE, SALT
    )
    result = composition.returned(scenario.state, ToolReturned(at=START, call="c1"), LONE, "look", "", SALT)
    for fact in (answer, failure, result):
        encoded = codec.encode(fact)
        assert encoded.content is not None
        assert CLEAN.encode() in encoded.content
    assert (CLEAN, CLEAN) == (answer.calls[0].name, answer.calls[0].provider_id)


def test_lone_surrogates_in_earlier_messages() -> None:
    """Messages that were there from the start are cleaned too: texts, names, arguments and ids."""
    call = MessageCall(LONE, LONE, LONE)
    reply = Message(role=Role.ASSISTANT, text=LONE, reasoning=LONE, calls=(call,), provider_data=LONE)
    fact = started(USER, reply, Message(role=Role.TOOL, text=LONE, call=LONE, name=LONE))
    content = codec.encode(fact).content
    assert content is not None
    assert 7 == content.count(CLEAN.encode())  # the ids of the calls are ours


def test_earlier_calls_get_ids_of_their_own() -> None:
    """An earlier conversation whose calls are named as ours would be, or alike, is told apart from the run's
    own.
    """
    made = (MessageCall("c1", "look", "{}"), MessageCall("c1", "look", "{}"))
    reply = Message(role=Role.ASSISTANT, calls=made)
    result = Message(role=Role.TOOL, call="c1")
    again = Message(role=Role.ASSISTANT, calls=(MessageCall("c1", "look", "{}"),))
    fact = started(USER, reply, result, result, again, result)
    assert fact.content is not None
    said = fact.content.messages
    assert [["e1", "e2"], ["e3"]] == [[call.id for call in said[place].calls] for place in (1, 4)]
    assert ["e1", "e2", "e3"] == [said[place].call for place in (2, 3, 5)]


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        pytest.param(
            (USER, Message(role=Role.TOOL, call="x")), r"messages\[1\].*'x'", id="a result without a call"
        ),
        pytest.param(
            (Message(role=Role.ASSISTANT, calls=(MessageCall("x", "look", "{}"),)), USER),
            r"messages\[1\]: call 'x' has no result",
            id="a call without a result, and a message after it",
        ),
        pytest.param(
            (Message(role=Role.ASSISTANT, calls=(MessageCall("x", "look", "{}"),)),),
            r"call 'x' has no result",
            id="a call without a result at the end",
        ),
        pytest.param(
            (
                Message(role=Role.ASSISTANT, calls=(MessageCall("x", "look", "{}"),)),
                Message(role=Role.TOOL, call="x"),
                Message(role=Role.TOOL, call="x"),
            ),
            r"messages\[2\].*'x'",
            id="a second result",
        ),
        pytest.param(
            (USER, Message(role=Role.TOOL)), r"messages\[1\].*names the call", id="a result of nothing"
        ),
    ],
)
def test_earlier_messages_that_no_provider_would_take(messages: tuple[Message, ...], problem: str) -> None:
    """A call without its result, or a result without its call, is refused before the run begins."""
    with pytest.raises(WrongUse, match=problem):
        started(*messages)


def test_earlier_messages_become_units() -> None:
    """A reply with its results is one unit; every other message is its own."""
    reply = Message(
        role=Role.ASSISTANT, calls=(MessageCall("x", "look", "{}"), MessageCall("y", "look", "{}"))
    )
    fact = started(USER, reply, Message(role=Role.TOOL, call="y"), Message(role=Role.TOOL, call="x"), USER)
    assert [0, 1, 1, 1, 4] == [size.unit for size in fact.messages]


@pytest.mark.parametrize(
    ("size", "cut", "kept"),
    [
        pytest.param(16384, False, 16384, id="equal to the cap"),
        pytest.param(16385, True, 16384, id="one byte more"),
    ],
)
def test_the_output_cap_of_the_policy(size: int, cut: bool, kept: int) -> None:
    """An output of more than 16 KiB is cut, its own size and digest recorded."""
    scenario = Scenario()
    fact = composition.returned(
        scenario.state, ToolReturned(at=START, call="c1"), "x" * size, "look", None, SALT
    )
    assert (size, cut) == (fact.output_bytes, fact.cut)
    assert fact.content is not None
    assert hashlib.sha256(b"x" * size).hexdigest() == fact.content.sha256
    assert fact.size.chars == len(fact.content.output)
    marker = f"\n[harness: this output of look was cut here; it was {size} bytes in all]\n"
    assert kept + (len(marker) if cut else 0) == fact.size.chars
    assert cut == (marker in fact.content.output)


def test_no_cap() -> None:
    """With `tool_output: null` nothing is cut."""
    scenario = Scenario({"tool_output": None})
    fact = composition.returned(
        scenario.state, ToolReturned(at=START, call="c1"), "x" * 100_000, "look", "", SALT
    )
    assert (100_000, False, 25_000) == (fact.output_bytes, fact.cut, fact.size.tokens)
