r"""Secrets that only their name gives away: `DB_PASSWORD=...`, `"api_key": "..."`, `--token ...`, `<password>...`.

One grammar decides where a value stands: a *name*, what may stand *between* a name and its value (`BETWEEN`, with
`_JOINING` words), and the *extent* of the value. `find` reads it for a whole text. `find_open` reads it for a text that
may go on: whatever the grammar reads to the end of the text is still open.

A value counts only if it looks like a secret: see `secret_values`. Takes time in proportion to the text: a value is
judged by its first characters, and what was found is not searched again.
"""

import re
from collections.abc import Iterator
from string import ascii_letters, digits
from typing import Literal, NamedTuple

from refold.reducers.secret_values import (
    has_digits_and_letters,
    is_chosen,
    is_phrase,
    is_random,
)

PASSWORDS = ("password", "passwd", "passphrase", "pwd", "_pass", "bindpw", "requirepass")
"""Ends of names, in lower case, behind which somebody's own choice stands."""

PHRASES = ("psk", "passphrase", "mnemonic", "seedphrase")
"""Ends of names behind which words alone are a secret; `psk` is no end but a whole name."""

KEYS = (
    "token", "secret", "credential", "credentials", "apikey", "accesskey", "secretkey", "privatekey", "authkey",
    "accountkey", "encryptionkey", "signingkey", "masterkey", "licensekey", "servicekey", "storagekey", "keybase",
    "clientkey", "appkey", "applicationkey", "subscriptionkey", "clientkeydata",
)  # fmt: skip
"""Ends of names behind which something stands that a machine has made: `api_key`, `api-key` and `apiKey` are one."""

_WHOLE_NAMES = frozenset({"auth", "_auth", "authorization"})

# A token with which one asks for the rest is no secret, and whoever asks needs it.
_NO_KEYS = tuple(
    f"{word}token" for word in ("page", "next", "continuation", "sync", "cursor", "resume", "watermark")
)

BETWEEN = "\"'`\\] \t:=?>|,"
"""Characters that may stand between a name and its value."""

ESCAPES = r"\\{0,15}"
"""What stands before a quotation mark: at each depth of JSON in JSON twice as much and one more, to the fourth."""

_JOINING = "is|was|to"  # words between a name and its value, in prose
_LONGEST_NAME = 64  # with what stands between the name and the sign behind it
_JUDGED = 512
_OPEN_REACH = 4 * _LONGEST_NAME + _JUDGED
_OF_NAMES = f"{ascii_letters}{digits}_.-"
_BEFORE_SIGN = "\"'`\\] \t:?"
_COUNTING = "_-0123456789"
_LAST_LETTERS = frozenset(word[-3:] for word in (*PASSWORDS, *PHRASES, *KEYS, *_WHOLE_NAMES, "_key"))

# The beginning of a value that may be a secret: it has a digit, or a sign that words do not have. This condition is
# cheap, and few assignments meet it.
_ODD = r"0-9!#$%&*?@^~\\"
_PREFIX = r"(?:[bBrRuU@$L]{1,2}(?=[\"'`]))?"
_QUOTED = "|".join(rf"{quote}(?=[^\n{quote}{_ODD}]{{0,64}}[{_ODD}])" for quote in "\"'`")
_BARE = rf"(?![=:\"'`])(?=[^\s\"'`{_ODD}]{{0,64}}[{_ODD}])[^\s\"'`]{{8}}"
_VALUED = rf"(?=[ \t]{{0,16}}(?:{_PREFIX}{ESCAPES}(?:{_QUOTED})|{_BARE}))"

# The extent of a value. Without quotes it ends before what ends a word in code; an environment takes more.
_BLANK = "\\s\\x00-\\x20\\x7f-\\xa0\\u2000-\\u206f\\u3000-\\u303f\\ufe00-\\ufeff"
_OPENING = re.compile(rf"[ \t]{{0,16}}(?:{_PREFIX}({ESCAPES})([\"'`]))?")
_QUOTE_OR_LINE = {quote: re.compile(rf"(\\*){quote}|\n") for quote in "\"'`"}
_PLAIN = rf"[^\"'`\\&,;<>()\[\]{{}}|{_BLANK}]"
_DIVIDING = rf"[&,;](?![\w.-]{{1,64}}[=:])(?=[^\"'`\\&,;<>()\[\]{{}}|{_BLANK}])"
_SHELL = rf"[<>()\[\]{{}}|]|[\"'`](?=\w)|\\(?=[^\w\"'`\\{_BLANK}])"
_IN_CODE = re.compile(rf"(?:{_PLAIN}|{_DIVIDING}){{0,{_JUDGED}}}", re.ASCII)
_IN_SHELL = re.compile(rf"(?:{_PLAIN}|{_DIVIDING}|{_SHELL}){{0,{_JUDGED}}}", re.ASCII)
_IN_MARKUP = re.compile(rf"[^<\n]{{0,{_JUDGED}}}")
_REST = re.compile(r"[\w=!#$%*+./?@^~-]*", re.ASCII)
_ENDS_SENTENCE = ".,:;?!)]}>|&"
_BLOCK = r"[|>][+-]?[0-9]?[ \t]{0,4}\r?\n[ \t]{1,32}"

Kind = Literal["password", "phrase", "key", ""]
Style = Literal["sign", "markup", "cell", "blank", "phrase"]

_JOINED = rf"[\"'`]?,?[ \t]{{1,4}}(?:(?:{_JOINING})[ \t:]{{1,4}})?(?![ \t])"
_PLACES: tuple[tuple[Style, str, re.Pattern[str]], ...] = (
    ("sign", "=", re.compile(rf"()=>?{_VALUED}")),
    ("sign", ":", re.compile(rf"():(?:>|[ \t]{{1,4}}{_BLOCK})?{_VALUED}")),
    ("markup", "</", re.compile(rf"()>(?<=[A-Za-z0-9\"]>)(?=[^\s<>{_ODD}]{{0,64}}[{_ODD}])")),
    ("cell", " |", re.compile(rf"()\|(?<=[ \t]\|){_VALUED}")),
    ("blank", "--", re.compile(rf"--(?<![\w-]--)[A-Za-z][\w-]{{2,40}}(){_JOINED}{_VALUED}", re.ASCII)),
    *(
        ("blank", word, re.compile(rf"{word}(){_JOINED}{_VALUED}"))
        for word in ("assword", "ASSWORD", "asswd", "indpw", "equirepass")
    ),
    *(
        ("phrase", word, re.compile(rf"{word}()[\"'`\\\]]{{0,4}}[ \t]{{0,4}}[=:](?!=)"))
        for word in ("psk", "assphrase", "ASSPHRASE", "nemonic", "NEMONIC", "ed_phrase", "ED_PHRASE", "edPhrase")
    ),
)  # fmt: skip
"""How a value follows its name: the style, a text that each such place holds, and a pattern of the place.

The pattern's empty group is the end of the name; the value begins at the end of the match.
"""

_OPEN_NAME = re.compile(f"(?:{'|'.join(sorted(_LAST_LETTERS))})[0-9_-]*", re.ASCII | re.IGNORECASE)
_STEMS = ("pass", "pwd", "psk", "indpw", "token", "secret", "credential", "key", "mnemonic", "phrase", "auth")  # of all names
_BETWEEN = f"[{re.escape(BETWEEN)}]"
_JOINT = re.compile(
    rf"{_BETWEEN}*(?:(?:{_JOINING}){_BETWEEN}+)?(?:(?<=[|>])[+-]?[0-9]?[ \t]*\r?\n[ \t]*|(?<=[|>][ \t])[ \t]*\r?\n[ \t]*)?"
)
_BLOCK_BEGINS = re.compile(r"[|>][+-]?[0-9]?[ \t]{0,4}\r?\n\Z")


class Name(NamedTuple):
    """What a name says of its value, and whether it is one of an environment, in capitals."""

    kind: Kind
    environment: bool


class Extent(NamedTuple):
    """Where a value begins and ends, whether it stood in quotes, and whether more text could make it longer."""

    begin: int
    end: int
    quoted: bool
    open: bool


def find(text: str) -> Iterator[tuple[int, int]]:
    """Find the values that are secrets by their name and their looks, as pairs of beginning and end."""
    for style, sign, places in _PLACES:
        done = 0
        for place in places.finditer(text) if sign in text else ():
            span = _secret_at(text, place.start(1), place.end(), style) if place.start() >= done else None
            if span:
                yield span
                done = span[1]


def find_open(text: str) -> int | None:
    """Find the name of the assignment with which the text ends and which more text could go on; None: there is none.

    The text ends behind a blank or a character that is not ASCII: no ASCII word is divided.
    """
    line = text.rfind("\n") + 1
    if _BLOCK_BEGINS.search(text, max(0, line - 16), line):
        line = text.rfind("\n", 0, line - 1) + 1
    line = max(line, len(text) - _OPEN_REACH)
    low = text[line:].lower()
    for name in _OPEN_NAME.finditer(text, line) if any(word in low for word in _STEMS) else ():
        if _name_at(text, name.end()).kind and _is_open(text, name.end()):
            return name.start()
    return None


def _is_open(text: str, place: int) -> bool:
    """Whether the text behind a name, from `place`, is the beginning of a value, or of what stands before one."""
    joint = _JOINT.match(text, place)
    if joint is None or joint.end() == len(text):
        return True
    if ">" in joint[0] and _extent(text, joint.end(), markup=True).open:
        return True
    return joint.end() > place and _extent(text, place + len(joint[0].rstrip("\"'`\\")), shell=True).open


def _secret_at(text: str, name_end: int, place: int, style: Style) -> tuple[int, int] | None:
    name = _name_at(text, name_end)
    if not name.kind:
        return None
    shell = name.environment and style in ("sign", "phrase") and text[place : place + 1] not in (" ", "\t")
    extent = _extent(text, place, shell=shell, markup=style == "markup")
    if not extent.quoted and not shell and text[extent.end : extent.end + 1] in ("(", "[", "{"):
        return None  # a call
    said, key, _ = text[extent.begin : extent.end].partition("-----")  # a private key may follow
    code = not (extent.quoted or shell or "\n" in text[name_end:place])
    for value in dict.fromkeys(_candidates(said, quoted=extent.quoted)):
        if value and _is_secret(value, name.kind, style, code=code, quoted=extent.quoted):
            long = value == said and len(said) >= _JUDGED and not extent.quoted and not key
            return extent.begin, _end(_REST, text, extent.end) if long else extent.begin + len(value)
    return None


def _candidates(said: str, *, quoted: bool) -> Iterator[str]:
    """What of a text may be the value: all of it, without the signs that end a sentence, or its first word."""
    if quoted:
        yield said
    else:
        yield said.rstrip(_ENDS_SENTENCE)
        if has_digits_and_letters(said):
            yield said
    word = _REST.match(said)
    assert word is not None  # it may match nothing
    yield word[0].rstrip(".?!")


def _is_secret(value: str, kind: Kind, style: Style, *, code: bool, quoted: bool) -> bool:
    if style == "phrase":
        return kind == "phrase" and not code and is_phrase(value)
    if style == "blank" and not has_digits_and_letters(value):
        return False
    code = code or style == "blank"
    return is_random(value, code=code, quoted=quoted) or (kind != "key" and is_chosen(value, code=code))


def _extent(text: str, place: int, *, shell: bool = False, markup: bool = False) -> Extent:
    """Where the value ends that begins at `place`, behind blanks and its quotation mark.

    A value in quotes goes to the mark that closes it, on its line: at the same depth of escapes, and not before a
    letter or digit. If there is none, it ends as one without quotes.
    """
    if markup:
        end = _end(_IN_MARKUP, text, place)
        return Extent(place, end if text.startswith("</", end) else place, True, end == len(text))
    opening = _OPENING.match(text, place)
    assert opening is not None  # it may match nothing
    begin, quote = opening.end(), opening[2]
    if quote is None:
        end = _end(_IN_SHELL if shell else _IN_CODE, text, begin)
        return Extent(begin, end, False, end == len(text))
    depth = len(opening[1])
    for stop in _QUOTE_OR_LINE[quote].finditer(text, begin, begin + _JUDGED):
        if stop[1] is None:  # the end of the line
            break
        closes = len(stop[1]) < depth or (len(stop[1]) - depth) % (2 * depth + 2) == 0
        if closes and not text[stop.end() : stop.end() + 1].isalnum():
            return Extent(begin, stop.start(), True, stop.end() == len(text))
    else:
        end = _end(_IN_CODE, text, begin)
        return Extent(begin, end, True, len(text) < begin + _JUDGED or end == len(text))
    return Extent(begin, _end(_IN_CODE, text, begin), True, False)


def _end(pattern: re.Pattern[str], text: str, place: int) -> int:
    found = pattern.match(text, place)
    assert found is not None  # it may match nothing
    return found.end()


def _name_at(text: str, end: int) -> Name:
    """The name that ends before `end`, but for quotes and blanks."""
    before = text[max(0, end - _LONGEST_NAME) : end].rstrip(_BEFORE_SIGN).rstrip(_COUNTING)
    if before[-3:].lower() not in _LAST_LETTERS:
        return _NO_NAME
    begin = len(before.rstrip(_OF_NAMES))
    name = before[begin:]
    if before[begin - 1 : begin] == "\\" and name[0] in "nrt":  # the end of a line, in source code
        name = name[1:]
    low, capitals = name.lower(), name.isupper()
    joined = low.replace("_", "").replace("-", "")
    if low == "psk" or joined.endswith(PHRASES[1:]):
        return Name("phrase", capitals)
    if low.endswith(PASSWORDS):
        return Name("password", capitals)
    key = joined.endswith(KEYS) or low in _WHOLE_NAMES or (capitals and low.endswith("_key"))
    return Name("key", capitals) if key and not joined.endswith(_NO_KEYS) else _NO_NAME


_NO_NAME = Name("", environment=False)
