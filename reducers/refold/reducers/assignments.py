r"""Secrets that only their name gives away: `DB_PASSWORD=...`, `"api_key": "..."`, `X-Vault-Token: ...`.

What stands behind such a name in code and prose is mostly no secret: a variable, a call, a type, a place holder. So a
value counts only if it looks as nobody writes words: `_random` for keys and tokens, `_chosen` for passwords.

Takes time in proportion to the text: a value is judged by its first characters, and what was found is not looked through
again.
"""

import re
from collections.abc import Iterator
from string import ascii_letters, digits

PASSWORDS = ("password", "passwd", "passphrase", "pwd", "_pass")
"""Ends of names, in lower case, behind which somebody's own choice stands."""

KEYS = (
    "token", "secret", "credential", "credentials", "apikey", "accesskey", "secretkey", "privatekey", "authkey",
    "accountkey", "encryptionkey", "signingkey", "masterkey", "licensekey", "servicekey", "storagekey", "keybase",
    "clientkey", "appkey", "applicationkey", "subscriptionkey",
)  # fmt: skip
"""Ends of names behind which something stands that a machine has made: `api_key`, `api-key` and `apiKey` are one."""

# A token with which one asks for the rest is no secret, and whoever asks needs it.
_NO_KEYS = tuple(
    f"{word}token" for word in ("page", "next", "continuation", "sync", "cursor", "resume", "watermark")
)
_WORDS = (
    "example", "sample", "placeholder", "changeme", "change_me", "your", "dummy", "xxxx", "redacted", "insert",
    "replace", "0123456789", "abcdef", "1234567890",
)  # fmt: skip

_VALUE_CHARACTERS = r"\w!#$%*+./?@^~-"
_LONGEST_NAME = 64
ESCAPES = r"\\{0,15}"
"""What stands before a quotation mark: at each depth of JSON in JSON twice as much and one more, to the fourth."""
_JUDGED = 512

# A sign of an assignment, and a value with a digit or a sign that words do not have: as in a shell, JSON (escaped too),
# YAML, code, or a header.
_VALUED = rf"(?=[ \t]{{0,2}}(?:{ESCAPES}[\"'`])?(?=[A-Za-z_./=+-]{{0,64}}[0-9!#$%*?@^~])(?!=)[={_VALUE_CHARACTERS}]{{8}})"
_SIGNS = tuple((sign, re.compile(f"{sign}>?{_VALUED}", re.ASCII)) for sign in "=:")
_VALUE = re.compile(rf"[ \t]{{0,2}}({ESCAPES}[\"'`])?([={_VALUE_CHARACTERS}]{{8,{_JUDGED}}})", re.ASCII)
_REST = re.compile(rf"[={_VALUE_CHARACTERS}]*", re.ASCII)
_OPEN = re.compile(
    rf"[\w.-]+(?:{ESCAPES}[\"'`]\]?)?[ \t]{{0,2}}(?:[:=]>?[ \t]{{0,2}}{ESCAPES}[\"'`]?)?\Z", re.ASCII
)
_OF_NAMES = f"{ascii_letters}{digits}_.-"
_ENDINGS = frozenset(word[-3:] for word in (*PASSWORDS, *KEYS, "auth", "_key"))
_MACHINE_MADE = re.compile(r"[\w.~+/=%-]{12,}", re.ASCII)
_PIECE = re.compile(r"[_.~+/=-]+")
_ORDINARY = re.compile(r"[A-Za-z]*[0-9]{0,4}|[0-9]+")
_TYPE = re.compile(r"[A-Za-z]*[0-9]*[A-Za-z]*")


def found(text: str) -> Iterator[tuple[int, int]]:
    """Where values stand that are secrets by their name and their looks."""
    for character, signs in _SIGNS:
        done = 0
        for sign in signs.finditer(text) if character in text else ():
            span = _value_of(text, sign) if sign.start() >= done else None
            if span is not None:
                yield span
                done = span[1]


def _value_of(text: str, sign: re.Match[str]) -> tuple[int, int] | None:
    kind, environment = _named(text[max(0, sign.start() - _LONGEST_NAME) : sign.start()])
    value = _VALUE.match(text, sign.end()) if kind else None
    if value is None or text[value.end() : value.end() + 1] in ("(", "[", "{"):
        return None
    said, key, _ = value[2].partition("-----")  # a private key may follow
    said = said.rstrip(".?!")
    # Neither quoted nor as a shell has it: as code may be.
    plain = value[1] is None and not (environment and value.start(2) == sign.end())
    if not (_random(said, plain=plain) or (kind == "password" and _chosen(said, plain=plain))):
        return None
    begin = value.start(2)
    rest = _REST.match(text, value.end()) if len(value[2]) == _JUDGED and not key else None
    return begin, rest.end() if rest else begin + len(said)


def opened(text: str) -> int | None:
    """Where an assignment begins with which the text ends, so that a secret may follow; None if there is none."""
    begun = _OPEN.search(text, max(text.rfind("\n") + 1, len(text) - _LONGEST_NAME))
    if begun is None or not _named(begun[0].rstrip("\"'`\\ \t").rstrip(":=> \t"))[0]:
        return None
    return begun.start()


def _named(before: str) -> tuple[str, bool]:
    """What a name says of its value: "password", "key", or ""; and whether it is one of an environment."""
    name = before.rstrip("\"'`\\] \t:?").rstrip("_-0123456789")
    if name[-3:].lower() not in _ENDINGS:
        return "", False
    name = name[len(name.rstrip(_OF_NAMES)) :]
    low, shouted = name.lower(), name.isupper()
    if low.endswith(PASSWORDS):
        return "password", shouted
    joined = _joined(low)
    key = joined.endswith(KEYS) or low in ("auth", "_auth") or (shouted and low.endswith("_key"))
    return ("key", shouted) if key and not joined.endswith(_NO_KEYS) else ("", False)


def _joined(name: str) -> str:
    return name.replace("_", "").replace("-", "")


def _random(value: str, *, plain: bool) -> bool:
    """Whether a machine has made it: of some length, and with a piece that is no word."""
    made = _MACHINE_MADE.fullmatch(value) and len(set(value)) >= 8 and _both(value)
    return bool(made) and not _placeholder(value) and _strange(value, plain=plain)


def _chosen(value: str, *, plain: bool) -> bool:
    """Whether somebody has chosen it as a password."""
    if len(value) < 8 or len(set(value)) < 5 or _placeholder(value) or "/" in value:
        return False
    if any(sign in value for sign in "!#$%*?@^~") and any(map(str.isalpha, value)):
        return True
    return _both(value) and (not plain or ("." not in value and _strange(value, plain=False)))


def _strange(value: str, *, plain: bool) -> bool:
    """Whether a piece of it is neither a word with a number behind it nor a number; `plain`: nor a type, as `Pkcs7Key`.

    `plain`: nor is all of it the name of a secret, as `keys.Ed25519X448PrivateKey`.
    """
    if plain and _joined(value.lower()).endswith(KEYS):
        return False
    pieces = (piece for piece in _PIECE.split(value) if len(piece) >= 8)
    return any(not (_TYPE if plain else _ORDINARY).fullmatch(piece) for piece in pieces)


def _both(value: str) -> bool:
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


def _placeholder(value: str) -> bool:
    low = value.lower()
    return value[0] in "$%*" or any(word in low for word in _WORDS)
