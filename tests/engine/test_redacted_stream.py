"""Secrets at the edge: which values of an environment are secret, and what of a stream may be shown when."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refold.engine.models.protocol import CallDelta, Delta, ReasoningDelta, TextDelta
from refold.engine.secrets import (
    RedactedStream,
    RedactedText,
    redactor_of,
    refuse_secret,
    secret_values,
)
from refold.reducers.errors import WrongUse
from refold.reducers.key_shapes import LONGEST_KEY
from refold.reducers.secrets import PLAIN, REDACTED, Redactor
from support.known_keys import EXAMPLES

KEY, _ = EXAMPLES["ghp_"]
PRIVATE, _ = EXAMPLES["private key"]


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        pytest.param("OPENAI_API_KEY", "abcd1234efgh", True, id="a key"),
        pytest.param("github_token", "abcd1234efgh", True, id="lower case"),
        pytest.param("AZURE_ACCOUNTKEY", "abcd1234efgh", True, id="no separator"),
        pytest.param("PGPASSWORD", "abcd1234efgh", True, id="no word of its own"),
        pytest.param("MYSQL_PWD", "abcd1234efgh", True, id="a short word"),
        pytest.param("SESSION_SECRET", "qwertyuiop", True, id="letters alone, of a secret"),
        pytest.param("API_KEY", "qwertyuiop", False, id="letters alone"),
        pytest.param("API_KEY", "qwertyuiopas", True, id="many letters"),
        pytest.param("DB_PASSWORD", "postgres", False, id="a common word"),
        pytest.param("DB_PASSWORD", "abc1234", False, id="too short"),
        pytest.param("MAX_TOKENS", "100000000", False, id="a number"),
        pytest.param("TOKENIZER", "gpt2-medium-x", False, id="not a token"),
        pytest.param("KEYBOARD", "abcd1234efgh", False, id="not a key"),
        pytest.param("SSH_AUTH_SOCK", "/tmp/ssh-1/agent.2", False, id="a path"),
        pytest.param("KEY_HOME", "C:\\Users\\me", False, id="a path of Windows"),
        pytest.param("SECRET_NAME", "my-app-secret", False, id="a name for it"),
        pytest.param("SSH_PUBLIC_KEY", "abcd1234efgh", False, id="public"),
        pytest.param("PATH", "abcd1234efgh", False, id="no such name"),
        pytest.param("AUTH_URL", "https://login.example", False, id="a URL"),
    ],
)
def test_values_of_the_environment(name: str, value: str, found: bool) -> None:
    """One row a rule; the id says the rule."""
    assert ((value,) if found else ()) == secret_values({name: value})


def test_passwords_in_urls() -> None:
    """Of a URL in any variable the password is secret, as it stands and as it is meant."""
    values = secret_values({"DATABASE_URL": "postgres://app:pa%2Fss1word@db/app", "X": "a"})
    assert {"pa%2Fss1word", "pa/ss1word", "pa%252Fss1word"} <= set(values)
    assert all("ss1word" in value for value in values)


def test_a_value_is_found_as_json_and_urls_write_it() -> None:
    """A value with quotes in it is hidden where it was written as JSON or as part of a URL, too."""
    redactor = redactor_of({"API_KEY": 'a"b\\c/é-12345'})
    for text in (json.dumps('a"b\\c/é-12345'), 'a"b\\c/é-12345', "a%22b%5Cc%2F%C3%A9-12345"):
        assert REDACTED in redactor.text(text)


def test_a_value_of_several_lines_is_found_by_its_lines() -> None:
    """Of a private key in a variable each line is secret, but for the first and the last."""
    values = secret_values({"DEPLOY_KEY": PRIVATE})
    assert set(PRIVATE.split("\n")[1:3]) == set(values)


def test_what_would_be_recorded_as_it_is_is_refused() -> None:
    """A secret in a setting is refused, by its place, without showing it."""
    with pytest.raises(WrongUse, match=r"settings\['x'\].*give it elsewhere") as raised:
        refuse_secret(Redactor(), "settings['x']", json.dumps({"a": KEY}), "give it elsewhere")
    assert KEY not in str(raised.value)
    refuse_secret(Redactor(), "settings['x']", '{"a": 0.5}', "give it elsewhere")


WORDS = Redactor(values=("hunter2-hunter2",))
SPACED = Redactor(values=("correct horse", "hunter2-hunter2"))
LINES = Redactor(patterns=(r"^E-.*\d$", "a b"))
KEYS_IN_A_ROW = (
    "AKIAIOSFODNN7EXAMPL3," * 33
)  # too long to stand between a command and its option, until they are hidden
ODDS = [text for text, _ in EXAMPLES.values()] + [
    "hunter2-hunter2", "correct horse", "E-1", "a b", "-----BEGIN", "-----END RSA", "Authorization: ", "Bearer ",
    "DB_PASSWORD = 'hunter2-x1'", '"api_key"', "token", ": ", " = ", "a1B2c3D4e5F6g7H8i9J0", '"', "curl -u a:b2c3 ", "\\n",
    "AKIAIOSFODNN7EXAMPL3", "curl -u a:b2c3!.", "mysql -pb2c3x", "password", "x/y ", "sk-", "://", ":", "@", "é", "the ", "word", ".", "\n", " ", "\t",
]  # fmt: skip
SOUP = st.lists(st.sampled_from(ODDS), max_size=14).map("".join)


@st.composite
def pieces(draw: st.DrawFn) -> list[str]:
    """A text, divided anywhere."""
    text = draw(SOUP)
    cuts = draw(st.lists(st.integers(0, len(text)), max_size=30).map(sorted))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@pytest.mark.parametrize("redactor", [WORDS, SPACED, LINES, PLAIN], ids=["words", "spaced", "lines", "plain"])
@given(pieces=pieces())
@example(pieces=[f"Authorization: Basic dXNlcjpwYXNz{PRIVATE}"])
@example(
    pieces=[
        f"aws_secret_access_key = {'a1B2' * 10}sk-proj-{'a1B2' * 10}Bearer sk-proj-{'a1B2' * 10}{PRIVATE}"
    ]
)
@example(pieces=[f"-----END RSA{PRIVATE}"])
@example(pieces=[f"curl {'a/' * 190}", " -u ", "alice:b2c3 ", "x"])
@example(pieces=[f"{PRIVATE} {PRIVATE}"])
@example(pieces=[*"AKIAIOSFODNN7EXAMPL3curl -u user:hunter2!."])
@example(pieces=[*f"{PRIVATE}AKIAIOSFODNN7EXAMPL3mysql -phunter2 x"])
@example(pieces=[f"curl https://h/{KEYS_IN_A_ROW}", " -u alice:b2c3x ", "x"])
def test_what_is_shown_is_the_redacted_whole(redactor: Redactor, pieces: list[str]) -> None:
    """However a text is divided, the pieces shown are, joined, what the log holds."""
    held = RedactedText(redactor)
    shown = [held.put(piece) for piece in pieces]
    assert redactor.text("".join(pieces)) == "".join([*shown, held.close()])


VALUES = (
    "q8ZxV2mN7pLw4RtY",
    "Gr4nite&moss",
    "Gr4nité moss47x",
    'Gr4\\"nite7x',
    "{a7:Gr4nite}",
    "密 Gr4nite7",
    "a b c",
)
NAMES = (
    "token",
    "DB_PASSWORD",
    "password",
    'x["token',
    "API_KEY_2",
    "secret",
    "--db-password",
    "<password",
    "PSK",
)
JOINTS = (
    "?: ", ":: ", "\\: ", " : = ", "\" ]: ", ": ", "=", " = ", " => ", "\": \"", " is ", " | ", " ", "\", \"", ">", ": |\n  ",
    " was: ", " : str = ", " :\t", "= b'", "\\\": \\\"", ":  `",
)  # fmt: skip
ENDS = ("", '"', "'", '\\"', "`", "</password>", "\n", " ", ", ", ";", "&a=b", ")", " and ", "é")
LED = (
    "Authorization: ",
    "Cookie: a=",
    "Set-Cookie : a=",
    "curl -u a:",
    "mysql -p",
    "redis-cli -a ",
    'Digest response="',
)


@st.composite
def assigned(draw: st.DrawFn) -> list[str]:
    """Values behind names, or behind what leads to a secret, in words; divided anywhere."""
    rows = st.tuples(
        st.sampled_from(NAMES), st.sampled_from(JOINTS), st.sampled_from(VALUES), st.sampled_from(ENDS)
    )
    led = st.tuples(st.sampled_from(LED), st.sampled_from(VALUES), st.sampled_from(ENDS))
    texts = st.one_of(
        rows.map("".join), led.map("".join), st.sampled_from(["the ", "é", "\n", "word ", "-", "1 "])
    )
    text = draw(st.lists(texts, min_size=1, max_size=4).map("".join))
    cuts = draw(st.lists(st.integers(0, len(text)), max_size=30).map(sorted))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@pytest.mark.parametrize("redactor", [WORDS, SPACED, LINES], ids=["words", "spaced", "lines"])
@given(pieces=assigned())
def test_what_is_shown_behind_a_name_is_the_redacted_whole(redactor: Redactor, pieces: list[str]) -> None:
    """However a name, its sign and its value are written and divided, the pieces shown are, joined, what the
    log holds.
    """
    held = RedactedText(redactor)
    shown = [held.put(piece) for piece in pieces]
    assert redactor.text("".join(pieces)) == "".join([*shown, held.close()])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("joint", JOINTS)
def test_every_division_behind_a_name(name: str, joint: str) -> None:
    """Word by word, and letter by letter, no part of a value is shown that the whole hides."""
    for value in VALUES:
        text = f"é {name}{joint}{value}' \"end\n"
        whole = WORDS.text(text)
        for size in (1, 2, 3, 5):
            held = RedactedText(WORDS)
            shown = [held.put(text[place : place + size]) for place in range(0, len(text), size)]
            assert whole == "".join([*shown, held.close()])


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, (text, _) in EXAMPLES.items()])
def test_every_division_of_each_key(text: str) -> None:
    """Wherever a text with a known key is divided, also where the key goes on with a letter that no key
    has.
    """
    middle = len(text) - 3
    for whole in (f"It is {text}\n", f"é {text[:middle]}é{text[middle:]} and"):
        shown = WORDS.text(whole)
        words = [place for place in range(1, len(whole)) if not "!" <= whole[place - 1] <= "~"]
        for place in {*words, *range(1, len(whole), 9)}:
            held = RedactedText(WORDS)
            assert shown == held.put(whole[:place]) + held.put(whole[place:]) + held.close(), whole[:place]


def test_every_division_of_a_private_key() -> None:
    """A private key among words is hidden wherever it is divided, letter by letter too."""
    text = f"Here: {PRIVATE} and {KEY}."
    for size in range(1, len(text)):
        held = RedactedText(WORDS)
        shown = [held.put(text[place : place + size]) for place in range(0, len(text), size)]
        assert f"Here: {REDACTED} and {REDACTED}." == "".join([*shown, held.close()])


def test_words_are_shown_as_they_come() -> None:
    """No more than the last word waits: a reader sees a text grow."""
    held = RedactedText(WORDS)
    shown = [held.put(piece) for piece in ("One t", "wo", " three\nfour", "")]
    assert ["One ", "", "two three\n", "", "four"] == [*shown, held.close()]


def test_what_only_begins_as_a_private_key_is_shown_in_the_end() -> None:
    """After as much as a key can be long, a text goes on being shown: what waits has a bound."""
    held = RedactedText(WORDS)
    shown = held.put("-----BEGIN CERTIFICATE REQUEST----- ")
    assert "" == shown
    shown = "".join(held.put("word " * 100) for _ in range(LONGEST_KEY // 100))
    assert len(shown) > LONGEST_KEY


def streamed(redactor: Redactor, *deltas: Delta) -> list[Delta]:
    """What is shown of these deltas."""
    shown: list[Delta] = []
    stream = RedactedStream(redactor, shown.append)
    for delta in deltas:
        stream.put(delta)
    stream.close()
    return shown


def test_text_and_reasoning_are_shown_in_order() -> None:
    """Whoever changes from reasoning to text has finished a word: nothing of it comes after the text."""
    shown = streamed(
        WORDS, ReasoningDelta("I th"), ReasoningDelta("ink"), TextDelta("So "), TextDelta("be it")
    )
    assert [
        ReasoningDelta("I "),
        ReasoningDelta("think"),
        TextDelta("So "),
        TextDelta("be "),
        TextDelta("it"),
    ] == shown


def test_calls_show_their_name_at_once_and_their_arguments_whole() -> None:
    """A call's arguments come at the end, redacted as JSON; its name when the arguments begin."""
    shown = streamed(
        WORDS,
        CallDelta(0, name="lo"),
        CallDelta(0, name="ok"),
        CallDelta(0, arguments=f'{{"a":"{KEY[:9]}'),
        CallDelta(1, name="act"),
        CallDelta(0, arguments=f'{KEY[9:]}"}}'),
    )
    assert [
        CallDelta(0, name="look"),
        CallDelta(0, arguments=f'{{"a":"{REDACTED}"}}'),
        CallDelta(1, name="act"),
    ] == shown


@given(
    pieces=st.lists(
        st.sampled_from(["word ", "wo", KEY[:7], KEY[7:], " ", "\n", "x"]), min_size=1, max_size=12
    ),
    cut=st.integers(0, 12),
)
def test_who_comes_later_sees_the_rest_of_the_redacted_whole(pieces: list[str], cut: int) -> None:
    """A secret that began before anybody watched is hidden from who comes in its middle."""
    deltas = [TextDelta(piece) for piece in pieces]
    shown: list[Delta] = []
    stream = RedactedStream(WORDS, shown.append)
    for count in range(cut + 1, len(deltas) + 1):
        stream.follow(deltas[:count])
    stream.close()
    whole, later = [
        "".join([delta.text for delta in each if isinstance(delta, TextDelta)])
        for each in (streamed(WORDS, *deltas), shown)
    ]
    assert whole.endswith(later)
    if cut == 0:
        assert whole == later


@given(
    pieces=st.lists(
        st.sampled_from(["word ", "wo", KEY[:7], KEY[7:], " ", "\n", "x"]), min_size=1, max_size=12
    ),
    watched=st.lists(st.booleans(), min_size=12, max_size=12),
)
@example(pieces=[KEY[:7], KEY[7:]], watched=[True] + [False] * 11)
def test_who_comes_and_goes_sees_parts_of_the_redacted_whole(pieces: list[str], watched: list[bool]) -> None:
    """A secret in whose middle somebody came or went is not shown by halves, neither then nor at the end."""
    arrived: list[Delta] = []
    shown: list[Delta] = []
    stream = RedactedStream(WORDS, shown.append)
    for piece, somebody in zip(pieces, watched, strict=False):
        arrived.append(TextDelta(piece))
        if somebody:
            stream.follow(arrived)
    stream.close()
    left = "".join([delta.text for delta in streamed(WORDS, *arrived) if isinstance(delta, TextDelta)])
    for delta in shown:
        assert isinstance(delta, TextDelta)
        assert delta.text in left
        left = left.partition(delta.text)[2]


def test_who_hides_nothing_passes_all_on() -> None:
    """Without anything to look for, deltas are shown as they come."""
    deltas: list[Delta] = [TextDelta("One t"), CallDelta(0, arguments="{"), TextDelta("wo")]
    assert deltas == streamed(PLAIN, *deltas)
