"""Which keys are found, behind what, and by what name."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers import key_shapes, secrets
from refold.reducers.key_shapes import SHAPES, Shape
from refold.reducers.secrets import REDACTED, Redactor, shape
from support.known_keys import EXAMPLES, FRAMED, HEX, UUID, X

KNOWN = Redactor()
KEYS = {name: text for name, (text, secret) in EXAMPLES.items() if text == secret and "\n" not in text}

each_example = pytest.mark.parametrize(
    ("text", "secret"), [pytest.param(*pair, id=name) for name, pair in EXAMPLES.items()]
)


@each_example
def test_each_key_is_hidden(text: str, secret: str) -> None:
    """Nothing of the key is left, in a text and in JSON, and what stands around it stays."""
    assert text.replace(secret, REDACTED) == KNOWN.text(text)
    assert secret not in KNOWN.text(f"It is ({text}).\n")
    assert json.dumps(secret)[1:-1] not in KNOWN.json(json.dumps({"a": text}))


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(f"dp.st.a1B2c3.{'a1B2c3D4e5' * 8}", id="Doppler"),
        pytest.param(f"dt0c01.a1B2c3.{'a1B2c3D4e5' * 8}", id="Dynatrace"),
        pytest.param(f"dt0c01.{HEX * 5}", id="Dynatrace, not Airtable"),
        pytest.param(f"pat{X[:13]}s.{HEX * 4}", id="Airtable, not Vault"),
    ],
)
def test_what_could_be_the_sign_of_another_key_hides_no_sign(key: str) -> None:
    """Where a key of one service has periods as that of another has them, it is found as what it is."""
    assert REDACTED == KNOWN.text(key)


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in SHAPES])
def test_each_shape_has_an_example(row: Shape) -> None:
    """No pattern could be removed without a key that is no longer found."""
    assert any(shape(row.pattern).search(text) for text, _ in EXAMPLES.values())


UNLIKELY = {  # chance makes none of these, or only after long
    "cookies of a client",
    "key of MaxMind",
    "old token of Vault",
    "key of Beamer, GoCardless or Lob",
    "signing key of Mailgun",
    "key of Yandex for storage",
    "API token of Okta",
    "access key of AWS, old",
    "access token of Twitter",
}
BY_CHANCE = [row for row in key_shapes._FRAMES if row.name not in UNLIKELY]


@given(data=st.data())
@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in BY_CHANCE])
def test_what_a_pattern_takes_has_a_sign(row: Shape, data: st.DataObject) -> None:
    """Whatever a pattern matches is searched for: no frame that it allows is without a sign."""
    text = data.draw(st.from_regex(shape(row.pattern)))
    spans = [found.span() for found in shape(row.pattern).finditer(text)]
    assert set(spans) <= set(secrets._find_known(text, whole=True))


@pytest.mark.parametrize("depth", range(5))
def test_a_frame_may_be_quoted_at_any_depth(depth: int) -> None:
    """JSON in JSON in JSON: its escapes part no key from what it is known by, also where nobody reads it as
    JSON.
    """
    for name, (text, secret) in FRAMED.items():
        written, inner = text, secret
        for _ in range(depth):
            written, inner = json.dumps({"a": written}), json.dumps(inner)[1:-1]
        assert inner in written
        assert inner not in KNOWN.text(written), name


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(r"\n", id="the end of a line, in source code"),
        pytest.param(r"\\n", id="the same in a string in a string"),
        pytest.param(r"\t", id="a tab"),
        pytest.param(r"\r\n", id="two of them"),
        pytest.param(r"\x0a", id="by its number"),
        pytest.param(r"\012", id="in octal"),
        pytest.param(r"\u000a", id="of JSON"),
        pytest.param(r"\u001b[31m", id="a colour, in JSON"),
        pytest.param("\x1b[31m", id="a colour"),
        pytest.param("\x1b[0m", id="its end"),
        pytest.param("\x1b[1;38;5;208m", id="one of many"),
        pytest.param("\x1b[m\x1b[K", id="what grep writes"),
        pytest.param(r"\033[1m", id="as a shell writes it"),
        pytest.param("%0A", id="in a URL"),
        pytest.param("%22", id="a quotation mark in a URL"),
        pytest.param("%250A", id="twice in a URL"),
        pytest.param("&quot;", id="of HTML"),
        pytest.param("&#10;", id="of HTML, by its number"),
        pytest.param(r"\"", id="a quotation mark in a string"),
        pytest.param("=3D", id="of a mail"),
    ],
)
def test_an_escape_is_a_boundary(before: str) -> None:
    """A key that stands behind an escape is found: its last letter is no part of a word."""
    for name, key in KEYS.items():
        shown = KNOWN.text(f"a{before}{key}")
        assert key not in shown, name
        assert shown.startswith("a"), name


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        pytest.param("BILLING_API_KEY=4f9a8b7c6d5e4f3a2b1c", "4f9a8b7c6d5e4f3a2b1c", id="an environment"),
        pytest.param("export DB_PASSWORD=hunter2x", "hunter2x", id="a password in an environment"),
        pytest.param('{"password": "hunter2-hunter2"}', "hunter2-hunter2", id="JSON"),
        pytest.param(r'{\"passwd\": \"hunter2-hunter2\"}', "hunter2-hunter2", id="JSON in a string"),
        pytest.param("password: p@ssw0rd-of-mine", "p@ssw0rd-of-mine", id="YAML"),
        pytest.param("client_secret: '8f14e45fceea167a5a36'", "8f14e45fceea167a5a36", id="YAML with marks"),
        pytest.param("api_key := `4f9a8b7c6d5e4f3a2b1c`", "4f9a8b7c6d5e4f3a2b1c", id="code"),
        pytest.param("apiKey => '4f9a8b7c6d5e4f3a2b1c'", "4f9a8b7c6d5e4f3a2b1c", id="another code"),
        pytest.param(f"HEROKU_API_KEY={UUID}", UUID, id="a UUID that its name gives away"),
        pytest.param(f"X-Vault-Token: {HEX}{HEX}", HEX + HEX, id="a header"),
        pytest.param(f"?access_token={X}{X}&a=b", X + X, id="an address"),
        pytest.param(f"API_KEY_2={X}", X, id="the second of its kind"),
        pytest.param(f"//registry.example/:_authToken={X}", X, id="npm's"),
        pytest.param("//registry.example/:_auth=YWxpY2U6aHVudGVyMi1odW50ZXIy", "YWxpY2U6aHVudGVyMi1odW50ZXIy", id="npm's old"),
        pytest.param(f"settings['api_key'] = '{X}'", X, id="an item"),
        pytest.param(rf"line\nAPI_TOKEN={X}", X, id="behind an escape"),
        pytest.param(f"OPENSSL_KEY={X}", X, id="a key of an environment"),
        pytest.param(f"awssecretaccesskey={X}{X}", X + X, id="a name without separators"),
        pytest.param(f'"privateKey": "{X}"', X, id="a name of JSON"),
        pytest.param(f"encryption-key: {X}", X, id="a name of YAML"),
        pytest.param(f"SIGNINGKEY={X}", X, id="a name in capitals"),
        pytest.param(rf'\\\"apiKey\\\": \\\"{X}\\\"', X, id="JSON in JSON in a string"),
    ],
)  # fmt: skip
def test_a_secret_that_its_name_gives_away(text: str, secret: str) -> None:
    """What looks like made at random, or chosen as a password, is hidden behind such a name, and the name
    stays.
    """
    assert text.replace(secret, REDACTED) == KNOWN.text(text)


@pytest.mark.parametrize(
    "text",
    [
        "password = get_password2()",
        "password=self.password1",
        "token = next_token_id_0",
        "max_tokens=4096, tokens: 128000",
        "api_key=os.environ['OPENAI_API_KEY_2']",
        "api_key = YOUR_API_KEY_1234567890",
        "API_KEY=${OPENAI_API_KEY_2}",
        "password: $DB_PASSWORD_1",
        "password: '********'",
        "def f(password: str = '', token: Optional[str] = None): ...",
        "private_key: x25519.X25519PrivateKey",
        "X448X25519PrivateKey = keys.hybrid.X448X25519PrivateKey",
        "nextPageToken=CAUQAA0a1b2c3d4e5f6g7",
        f"next_page_token: {X}",
        f"next-page-token: {X}; monkey={X}",
        f"cache_key: {HEX}{HEX}",
        f"primary_key={UUID}",
        f"commit: {HEX}{HEX}{HEX[:8]}",
        f"sha256:{HEX * 4}",
        f"integrity=sha512-{X * 4}==",
        f"id={UUID}",
        "model: claude-3-5-sonnet-20241022",
        "/usr/lib/python3.11/site-packages/a_b/c-1.2.3.dist-info/RECORD",
        "tests/api/test_sk_live_of_a_long_name_2.py::test_ghp_is_a_prefix",
        "the password is: swordfish-and-others",
        "secret: the quick brown fox",
        "token_count: 1234567890123456",
        "curl -u $USER:$PASSWORD https://h; docker run -u 1000:1000 x; curl -u name https://h",
        "s.getSomeVeryLongMethodName and s.aVeryLongNameOfAMethod2()",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
        "dapi is a prefix, SK and AC too; EAAA begins pictures",
        r"C:\new\temp\users\name\ghp",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    """Code, place holders, pages of a list, hashes, paths and names are left alone."""
    assert text == KNOWN.text(text)
