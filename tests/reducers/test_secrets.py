"""Secrets in what is recorded: what is found, what is left alone, and the laws of taking it out."""

import json
import re
from pathlib import Path
from re import _parser  # type: ignore[attr-defined]  # pyright: ignore
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers import composition, secrets
from refold.reducers.assignments import KEYS, PASSWORDS
from refold.reducers.composition import approved
from refold.reducers.errors import PolicyError
from refold.reducers.events import ApprovalAnswered, CancelRequested, InputReceived, Manifest, RunStarted
from refold.reducers.key_shapes import SHAPES
from refold.reducers.messages import Message, MessageCall
from refold.reducers.parser import parse
from refold.reducers.rules.order import RULES
from refold.reducers.secrets import PLAIN, REDACTED, Redactor
from refold.reducers.text import clean
from refold.reducers.vocabulary import Role
from support.known_keys import EXAMPLES
from support.scenario import SALT, START, Scenario

ROOT = Path(__file__).resolve().parents[2]
KNOWN = Redactor()
VALUE = "hunter2-hunter2"
PATTERN = r"acme_[a-z0-9]{8}"
OWN = "acme_abcd1234"
ALL = Redactor(values=(VALUE,), patterns=(PATTERN,))
KEY, _ = EXAMPLES["ghp_"]
TOKENS = {name: text for name, (text, _) in EXAMPLES.items() if not set(' :"\n') & set(text)}

each_key = pytest.mark.parametrize(
    ("text", "secret"), [pytest.param(*pair, id=name) for name, pair in EXAMPLES.items()]
)


@each_key
def test_each_key_is_found_wherever_it_stands(text: str, secret: str) -> None:
    """A known key is taken out of prose, quotes, lists, assignments and JSON, and what stands around it
    stays.
    """
    for frame in ("{}", "It is {}.", "KEY={}", "'{}'", "<{}>", "({}),", "é{}é", "a\n{}\nb", "`{}`", "[{}]"):
        shown = KNOWN.text(frame.format(text))
        assert frame.format(text.replace(secret, REDACTED)) == shown
    assert secret not in KNOWN.json(json.dumps({"a": text, "b": 1}))


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, (text, _) in EXAMPLES.items()])
def test_a_key_of_which_half_is_missing_is_none(text: str) -> None:
    """What only begins as a key does is no key, and not hidden: a few characters say nothing."""
    assert text[:9] == KNOWN.text(text[:9])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("https://u:pa%20ss@h/p", "https://u:[REDACTED]@h/p", id="a URL"),
        pytest.param("redis://:pass@h:1", "redis://:[REDACTED]@h:1", id="a URL without a name"),
        pytest.param("psql postgres://{user}:{word}@h", None, id="a template is no password"),
        pytest.param("http://h:8080/@scope/x", None, id="a port is no password"),
        pytest.param("git@github.com:a/b.git, ssh://git@h:22/a", None, id="a name without a password"),
        pytest.param(
            '"authorization":"Basic dXNlcjpwYXNz"', '"authorization":"Basic [REDACTED]"', id="JSON header"
        ),
        pytest.param(
            r"{\"Authorization\": \"Token a1b2c3d4e5\"}",
            r"{\"Authorization\": \"Token [REDACTED]\"}",
            id="an escaped header",
        ),
        pytest.param("Authorization: basic understanding", None, id="prose about authorisation"),
        pytest.param("the bearer of internationalisation", None, id="prose about a bearer"),
        pytest.param("risk-free, task-ant-hill, sk-loading-spinner-large", None, id="words with sk-"),
        pytest.param("0123456789abcdef" * 4, None, id="a hash"),
        pytest.param("123e4567-e89b-12d3-a456-426614174000", None, id="a UUID"),
        pytest.param("AKIA is a prefix; eyJ begins JSON; hf_hub_download(x)", None, id="prefixes alone"),
        pytest.param('if "-----BEGIN RSA PRIVATE KEY-----" in text:', None, id="code about private keys"),
        pytest.param(
            "-----BEGIN PRIVATE KEY-----\nMIIEvAIBADANBgkqh\n\nand", "[REDACTED]", id="a private key cut off"
        ),
        pytest.param(
            r'"-----BEGIN PRIVATE KEY-----\nMIIEvAIBADANBgkqh\n-----END PRIVATE KEY-----\n"',
            r'"[REDACTED]\n"',
            id="a private key in JSON",
        ),
    ],
)
def test_what_is_known_by_its_frame(text: str, shown: str | None) -> None:
    """Of a URL or a header only the secret is hidden; what only looks a little like one is left alone."""
    assert (text if shown is None else shown) == KNOWN.text(text)


def test_a_short_text_without_a_colon_holds_no_secret() -> None:
    """What is known at once to be none by its length is none: no shape without a colon, and no assignment, is
    shorter.
    """
    least = {row.pattern: _parser.parse(row.pattern, re.ASCII).getwidth()[0] for row in SHAPES}
    short = [pattern for pattern, width in least.items() if width < secrets._MIN_CHARS]
    assert all(pattern.startswith("://") for pattern in short)
    assert secrets._MIN_CHARS == min(map(len, (*PASSWORDS, *KEYS, "auth"))) + len("=") + len("hunter!2")
    assert f"pwd={REDACTED}" == KNOWN.text("pwd=hunter!2")


def test_ordinary_texts_stay() -> None:
    """Nothing in this project's own documents, code and recorded conversations is taken for a secret."""
    texts = [
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("reducers/**/*.py"),
        *ROOT.glob("tests/conformance/cases/**/*"),
    ]
    texts += [*ROOT.glob("tests/golden/*"), ROOT / "README.md", ROOT / "LICENSE"]
    own = {"key_shapes.py", "keep-secrets-out-of-the-log.md"}  # which show what is found
    for path in texts:
        if path.is_file() and path.name not in own:
            text = path.read_text(encoding="utf-8")
            assert text == KNOWN.text(text), path


def test_a_picture_in_base64_stays() -> None:
    """The characters of a picture hold no key by chance."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    number = 1
    picture: list[str] = []
    for _ in range(200_000):
        number = number * 6364136223846793005 % (1 << 64) or 1
        picture.append(letters[number >> 58])
    text = "data:image/png;base64," + "".join(picture)
    assert text == KNOWN.text(text)


def test_values_and_patterns() -> None:
    """A value is found anywhere, a pattern in each line by itself, with case as it is written."""
    assert f"x{REDACTED}y {REDACTED}" == ALL.text(f"x{VALUE}y {OWN}")
    assert OWN.upper() == ALL.text(OWN.upper())
    lines = Redactor(patterns=("^a.*b$", r"c\nd"))
    assert f"{REDACTED}\nab c\n{REDACTED}\nc\nd" == lines.text("a1b\nab c\na2b\nc\nd")


def test_what_overlaps_is_one() -> None:
    """Two finds that overlap leave one mark, and nothing of either."""
    assert f"<{REDACTED}>" == Redactor(values=("abcdefgh", "efghijkl")).text("<abcdefghijkl>")


def test_a_long_line_is_searched_in_pieces() -> None:
    """Wherever it stands in a long line, and however long it is, a match is found."""
    for place in (0, 250, 256, 500, 512, 3000, 4990):
        line = "x" * place + OWN + "x" * (5000 - place)
        assert OWN not in ALL.text(line)
    assert f"{'é' * 700}{REDACTED}!{REDACTED}" == Redactor(patterns=("<a+>?",)).text(
        f"{'é' * 700}<{'a' * 2000}>!<{'a' * 2000}"
    )


@pytest.mark.parametrize(
    "pattern", [pytest.param(".", id="anything"), pytest.param("[A-Z]+", id="the mark's own letters")]
)
def test_a_mark_is_never_hidden_again(pattern: str) -> None:
    """However greedy a pattern is, a text that is all marks stays as it is."""
    assert f"{REDACTED} {REDACTED}" == Redactor(patterns=(r"\w",)).text(f"{REDACTED} {REDACTED}")
    once = Redactor(patterns=(pattern,)).text("ABC def")
    assert once == Redactor(patterns=(pattern,)).text(once)


def test_a_pattern_that_goes_on_for_ever_loses_its_line() -> None:
    """Where each find makes the next, the line goes as a whole: the text is not searched once for each."""
    assert f"one\n{REDACTED}" == Redactor(patterns=(r"\ba",)).text("one\n" + "a" * 1000)


ODDS = st.sampled_from(
    [
        *TOKENS.values(),
        VALUE,
        OWN,
        REDACTED,
        "sk-",
        "eyJ",
        "://",
        ":",
        "@",
        "-----BEGIN",
        "a",
        "A1",
        "_",
        "-",
        ".",
    ]
    + [text for text, _ in EXAMPLES.values() if text not in TOKENS.values()]
)
SOUP = st.lists(st.one_of(ODDS, st.sampled_from([" ", "\n", '"', "\\", "é", ", "])), max_size=12).map("".join)


@given(text=SOUP)
def test_hiding_is_idempotent(text: str) -> None:
    """Hiding what was hidden changes nothing, and a text grows to ten times its length at most."""
    once = ALL.text(text)
    assert once == ALL.text(once)
    assert len(once) <= 10 * len(text)


JSONS: st.SearchStrategy[Any] = st.recursive(
    st.one_of(SOUP, st.integers(), st.booleans(), st.none(), st.floats(allow_nan=False)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(SOUP, inner, max_size=3)),
    max_leaves=6,
)


def strings(value: object) -> list[str]:
    """Every string in a JSON value, keys and strings that are JSON themselves included."""
    if isinstance(value, dict):
        pairs = cast("dict[str, object]", value).items()
        return [text for pair in pairs for each in pair for text in strings(each)]
    if isinstance(value, list):
        return [text for each in cast("list[object]", value) for text in strings(each)]
    if not isinstance(value, str):
        return []
    try:
        inner: object = json.loads(value)
    except ValueError:
        return [value]
    return [value, *(strings(cast("object", inner)) if isinstance(inner, dict | list) else [])]


@given(value=JSONS, ascii_only=st.booleans(), nested=st.booleans())
def test_json_stays_json(value: object, ascii_only: bool, nested: bool) -> None:
    """Valid JSON stays valid, none of its strings shows a secret, and doing it again changes nothing."""
    written = json.dumps(value, ensure_ascii=ascii_only)
    if nested:
        written = json.dumps({"inner": written}, ensure_ascii=ascii_only)
    shown = ALL.json(written)
    for text in strings(json.loads(shown)):
        assert text == ALL.text(text)
    assert shown == ALL.json(shown)


@given(text=st.text())
def test_any_text_is_taken_for_json_as_it_is(text: str) -> None:
    """What is no JSON, and what holds no secret, stays byte for byte."""
    assert text == KNOWN.json(text)


ESCAPED = "".join(f"\\u{ord(char):04x}" for char in KEY)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        pytest.param('{ "a" :1.0,"a": "\\u00e9\\/" }', None, id="as it was: blanks, numbers, escapes, twice a key"),
        pytest.param(f'{{ "a" : "{KEY}" }}', f'{{ "a" : "{REDACTED}" }}', id="a value"),
        pytest.param(f'{{"{KEY}":1}}', f'{{"{REDACTED}":1}}', id="a key"),
        pytest.param(f'{{"a":"x {ESCAPED}"}}', f'{{"a":"x {REDACTED}"}}', id="behind escapes"),
        pytest.param(f'{{"a":"{ESCAPED}', f'{{"a":"{REDACTED}', id="in a string that is cut off"),
        pytest.param(f'{{"a":"\\n{KEY}"', f'{{"a":"\\n{REDACTED}"', id="cut off behind a string"),
        pytest.param('{"a":acme_abcd1234', f'{{"a":"{REDACTED}"', id="no JSON"),
        pytest.param(
            json.dumps({"a": f'{{"b": "{ESCAPED}"}}'}), json.dumps({"a": f'{{"b": "{REDACTED}"}}'}), id="JSON in JSON"
        ),
        pytest.param('{"a": [4000111122223333, 1]}', f'{{"a": ["{REDACTED}", 1]}}', id="a number"),
        pytest.param('{"user": "x", "word": "y"}', f'"{REDACTED}"', id="what spans values takes all with it"),
        pytest.param("", None, id="nothing"),
        pytest.param("[" * 5000, None, id="nested without end"),
    ],
)  # fmt: skip
def test_json(written: str, shown: str | None) -> None:
    """One row a rule; the id says the rule."""
    redactor = Redactor(patterns=(PATTERN, r"\b4\d{15}\b", '"user": "x", "word"'))
    assert (written if shown is None else shown) == redactor.json(written)


def test_what_only_its_adapter_reads_goes_whole() -> None:
    """Opaque data with a secret in it is dropped, for half of it is of no use; other data stays."""
    assert "" == KNOWN.opaque(f'{{"a":"{KEY}"}}')
    assert '{"a":"b"}' == KNOWN.opaque('{"a":"b"}')


@given(text=st.text(st.characters(exclude_categories=())))
def test_without_anything_to_look_for_text_is_cleaned(text: str) -> None:
    """The redactor of those who give none cleans text of lone surrogates, and changes nothing else."""
    assert clean(text) == PLAIN.text(text) == PLAIN.json(text) == PLAIN.opaque(text)


def test_a_redactor_does_not_show_what_it_hides() -> None:
    """An error that quotes a redactor quotes no secret."""
    assert "Redactor(1 values, 1 patterns, known=True)" == repr(ALL)


@pytest.mark.parametrize(
    ("redact", "path", "problem"),
    [
        pytest.param(["a", "("], "redact[1]", "not a valid RE2 pattern", id="no expression"),
        pytest.param(["a", "b", "a(?=b)"], "redact[2]", "look-around", id="look-around"),
        pytest.param(["x" * 1001], "redact[0]", "longer than 1000", id="too long"),
        pytest.param(["a*"], "redact[0]", "matches the empty string", id="matches nothing"),
        pytest.param([r"\b"], "redact[0]", "matches the empty string", id="matches a place"),
        pytest.param(["a"] * 101, "redact", "100 patterns at most", id="too many"),
    ],
)
def test_patterns_that_cannot_work(redact: list[str], path: str, problem: str) -> None:
    """A pattern that could not be searched for is refused when the policy is read, by its place."""
    with pytest.raises(PolicyError, match=problem) as raised:
        parse({"redact": redact})
    assert path == raised.value.path


def leaks(fact: object) -> bool:
    """Whether anything of a fact shows a secret."""
    return any(secret in repr(fact) for secret in (KEY, VALUE, OWN))


SAID = f"{KEY} {VALUE} {OWN}"


def test_the_opening_of_a_run() -> None:
    """Task, system prompt, earlier messages, tools, labels and the agent's name are recorded without
    secrets.
    """
    call = MessageCall(SAID, SAID, json.dumps({"a": SAID}))
    reply = Message(role=Role.ASSISTANT, text=SAID, reasoning=SAID, calls=(call,), provider_data=f'"{SAID}"')
    said = [
        Message(role=Role.SYSTEM, text=SAID),
        reply,
        Message(role=Role.TOOL, text=SAID, call=SAID, name=SAID),
        Message(role=Role.USER, text=SAID),
    ]
    tool = Manifest(name="look", description=SAID, schema=json.dumps({"default": SAID}))
    fact = RunStarted(
        format=1,
        at=START, run="r1", rules=RULES, policy=parse({"redact": [PATTERN]}), model="m", tools=(tool,),
        labels={SAID: SAID}, agent=SAID,
    )  # fmt: skip
    shown = composition.started(fact, said, SALT, Redactor(values=(VALUE,)))
    assert not leaks(shown)
    assert shown.content is not None
    hidden = " ".join([REDACTED] * 3)
    assert hidden == shown.content.messages[3].text
    assert len(hidden) == shown.messages[3].size.chars  # sizes are those of what is recorded


def test_what_people_say() -> None:
    """Messages, names, notes, reasons and edited arguments are recorded without secrets."""
    scenario = Scenario({"approvals": {"chain": [{"approver": "human", "tools": ["*"]}]}})
    told = composition.received(scenario.state, InputReceived(at=START, by=SAID), SAID, SALT, ALL)
    assert not leaks(told)
    assert not leaks(composition.cancelled(CancelRequested(at=START, by=SAID), SAID, ALL))
    scenario.answer("", ("look", "{}"))
    edited = approved(
        scenario.state, ApprovalAnswered(at=START, by=SAID), {"c1": "edit"}, {"c1": f'{{"a":"{SAID}"}}'}, SAID, SALT, ALL
    )  # fmt: skip
    assert not leaks(edited)
