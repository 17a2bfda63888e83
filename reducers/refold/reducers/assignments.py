"""Assigned secrets: names that give a secret away, and values that look like one.

Behind the name of a secret, code and prose mostly have no secret but a variable, a call, a type or a
placeholder. These rules decide on the value alone.

One grammar decides where a value stands: a *name*, a *joint* between the name and its value, and the
*extent* of the value. `find` reads it in a whole text. `find_open` reads it in a text that may go on: an
assignment that the grammar reads to the end of the text is still open.

A value counts only if it looks like a secret: see `secret_values`. The search takes time in proportion to
the text: a value is judged by its first characters, and a found value is not searched again.
"""

import re
from collections.abc import Iterator
from functools import cache
from string import ascii_letters, digits
from typing import Literal, NamedTuple

NAMES = ("token", "secret", "credential", "credentials", "key")
"""Ends of the names of keys: a value in code that ends so is a name, as `keys.Ed25519X448PrivateKey`."""

_PLAIN_WORDS = (
    "example", "sample", "placeholder", "changeme", "change_me", "your", "dummy", "xxxx", "redacted", "insert",
    "replace", "0123456789", "abcdef", "1234567890",
)  # fmt: skip
_TEMPLATE = re.compile(r"[$#%]\{[^}]{1,64}\}|\{\{.{1,64}\}\}|[%$]\([^)]{1,64}\)")
_MACHINE_MADE = re.compile(r"[\w.~+/=%-]{12,}", re.ASCII)
_ADDRESS = re.compile(r"\w{2,16}://|arn:|\.{0,2}/|~/", re.ASCII)
_PIECE = re.compile(r"[_.~+/=-]+")
_PLAIN_WORD = re.compile(r"[\s/_.~+=-]+")
_ORDINARY = re.compile(r"[A-Za-z]*[0-9]{0,4}|[0-9]+")
_TYPE = re.compile(r"[A-Za-z]*[0-9]*[A-Za-z]*")
_BLANK = re.compile(r"\s")
_NO_LETTER = re.compile(r"[\d!#$%&*?@^~]")
_SIGNS = frozenset("!#$%&*?@^~")
_PUNCTUATION = ".,:;!?()[]{}<>\"'"
_SHORTEST = 8
_SHORTEST_PHRASE = 16


def is_random(value: str, *, code: bool, quoted: bool = False) -> bool:
    """Whether a machine made the value: it is long enough, and one of its pieces is not a word.

    Args:
        value: the text of the value, without its quotes.
        code: whether the value stands where code could stand; a type such as `Pkcs7Key` does not count then.
        quoted: whether it stood in quotes; it may hold any sign then.
    """
    if not has_digits_and_letters(value) or not _is_varied(value, 12, 8):
        return False
    if code and value.lower().replace("_", "").replace("-", "").endswith(NAMES):
        return False
    if _MACHINE_MADE.fullmatch(value):
        return _is_strange(value, code=code)
    return (
        quoted
        and not any(map(str.isspace, value))
        and not _ADDRESS.match(value)
        and (_is_strange(value, code=code) or _is_mixed_of_all(value))
    )


def _is_varied(value: str, length: int, characters: int) -> bool:
    """Whether it is as long as that, has that many different characters, and is no placeholder."""
    return len(value) >= length and len(set(value)) >= characters and not is_placeholder(value)


def is_chosen(value: str, *, code: bool) -> bool:
    """Whether a person chose the value as a password: 8 characters or more, with a digit or a sign."""
    if not _NO_LETTER.search(value) or not _is_varied(value, _SHORTEST, 5):
        return False
    if "/" in value or _has_words(value):
        return not _ADDRESS.match(value) and any(map(_is_mixed, _words(value)))
    if not _SIGNS.isdisjoint(value) and any(map(str.isalpha, value)):
        return True
    if code and ("." in value or not _is_strange(value, code=False)):
        return False
    return has_digits_and_letters(value)


def is_phrase(value: str) -> bool:
    """Whether the value is a passphrase of three words or more."""
    words = [word for word in _PLAIN_WORD.split(value) if word]
    return (
        len(value) >= _SHORTEST_PHRASE
        and len(words) >= 3
        and all(map(str.isalnum, words))
        and not is_placeholder(value)
    )


def has_digits_and_letters(value: str) -> bool:
    """Whether the value holds a digit and a letter."""
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


def is_placeholder(value: str) -> bool:
    """Whether the value stands for another: a variable, a template, `your-password-here`."""
    low = value.lower()
    return (
        value[0] in "$%*"
        or (value[0] == "<" and value[-1] == ">")
        or _TEMPLATE.search(value) is not None
        or any(word in low for word in _PLAIN_WORDS)
        or "0-9" in value  # a pattern
        or value.endswith(("...", "\u2026"))  # cut off
    )


def _is_strange(value: str, *, code: bool) -> bool:
    """Whether a piece of it is neither a word with a number behind it nor a number; `code`: nor a type."""
    pieces = (piece for piece in _PIECE.split(value) if len(piece) >= 8)
    return any(not (_TYPE if code else _ORDINARY).fullmatch(piece) for piece in pieces)


def _is_mixed_of_all(value: str) -> bool:
    kinds = (str.islower, str.isupper, str.isdigit, _SIGNS.__contains__)
    return len(value) >= 16 and all(any(map(kind, value)) for kind in kinds)


def _has_words(value: str) -> bool:
    return any(map(_divides, value)) if not value.isascii() else _BLANK.search(value) is not None


def _divides(character: str) -> bool:
    """Whether the character divides words: a blank, or a letter of a script without blanks and cases."""
    if character.isspace():
        return True
    return character > "\x7f" and character.isalpha() and character.lower() == character.upper()


def _words(value: str) -> list[str]:
    return _PLAIN_WORD.split("".join([" " if _divides(character) else character for character in value]))


def _is_mixed(word: str) -> bool:
    word = word.strip(_PUNCTUATION)
    return len(word) >= 4 and has_digits_and_letters(word) and not _ORDINARY.fullmatch(word)


PASSWORDS = ("password", "passwd", "passphrase", "pwd", "_pass", "bindpw", "requirepass")
"""Ends of names, in lower case, behind which somebody's own choice stands."""

PHRASES = ("psk", "passphrase", "mnemonic", "seedphrase")
"""Ends of names behind which words alone are a secret; `psk` is no end but a whole name."""

KEYS = (
    "token", "secret", "credential", "credentials", "apikey", "accesskey", "secretkey", "privatekey", "authkey",
    "accountkey", "encryptionkey", "signingkey", "masterkey", "licensekey", "servicekey", "storagekey", "keybase",
    "clientkey", "appkey", "applicationkey", "subscriptionkey", "clientkeydata",
)  # fmt: skip
"""Ends of names behind which something stands that a machine has made: `api_key`, `api-key` and `apiKey` are
one.
"""

_WHOLE_NAMES = frozenset({"auth", "_auth", "authorization"})

# A token with which one asks for the rest is no secret, and whoever asks needs it.
_NO_KEYS = tuple(
    f"{word}token"
    for word in ("page", "next", "continuation", "sync", "cursor", "resume", "watermark", "change")
)

ESCAPES = r"\\{0,15}"
"""What stands before a quotation mark: at each depth of JSON in JSON twice as much and one more, to the
fourth.
"""

_LONGEST_NAME = 64
_LONGEST_VALUE = 512
_JUDGED = 128  # characters of a value: nobody chooses a longer password
_OPEN_REACH = 3 * _LONGEST_NAME + _LONGEST_VALUE
_OF_NAMES = f"{ascii_letters}{digits}_.-"
_COUNTING = "_-0123456789"

# The joint: what closes the name, a sign, and what opens a block of YAML; or blanks alone, as in a command.
_CLOSING = r"[\"'`\\\] \t:?]{0,64}"
_VERBS = ("is", "was", "to")
_SIGN = rf"[:=]>?|(?<=[ \t])\||(?<=[ \t])(?:{'|'.join(_VERBS)})(?=[ \t:])"
_BLOCK = r"(?:[ \t]*[|>][+-]?[0-9]?[ \t]*\r?\n)?"
_JOINT = rf"(?:{_CLOSING}({_SIGN}):?{_BLOCK}|[\"'`\\]{{0,2}}(>)|[\"'`]?,?(?=[ \t]{{1,4}}[^ \t]))[ \t]{{0,32}}"
_BEFORE_JOINT_ENDS = r"[\"'`\\\] \t:?=>|,+\r\n0-9-]*"  # each of its beginnings

# The beginning of a value that may be a secret: it has a digit, or a sign that words do not have. This
# condition is cheap, and few values meet it.
_ODD = r"0-9!#$%&*?@^~\\"
_PREFIX = r"(?:[bBrRuU@$L]{1,2}(?=[\"'`]))?"
_QUOTED = "|".join(rf"{quote}(?=[^\n{quote}{_ODD}]{{0,64}}[{_ODD}])" for quote in "\"'`")
_BARE = rf"(?![=:\"'`])(?=[^\s\"'`{_ODD}]{{0,64}}[{_ODD}])[^\s\"'`]{{8}}"
_VALUED = rf"(?={_PREFIX}{ESCAPES}(?:{_QUOTED})|{_BARE})"

# The extent of a value. Without quotes it ends before what ends a word in code; an environment takes more.
_NO_VALUE = "\\s\\x00-\\x20\\x7f-\\xa0\\u2000-\\u206f\\u3000-\\u303f\\ufe00-\\ufeff"
_OPENING = rf"(?:{_PREFIX}({ESCAPES})([\"'`]))?"
_QUOTE_OR_LINE = {quote: rf"(\\*){quote}|\n" for quote in "\"'`"}
_PLAIN = rf"[^\"'`\\&,;<>()\[\]{{}}|{_NO_VALUE}]"
_DIVIDING = rf"[&,;](?![\w.-]{{1,64}}[=:])(?=[^\"'`\\&,;<>()\[\]{{}}|{_NO_VALUE}])"
_IN_ENV_TOO = rf"[<>()\[\]{{}}|]|[\"'`](?=\w)|\\(?=[^\w\"'`\\{_NO_VALUE}])"
_IN_CODE = rf"(?a:(?:{_PLAIN}+|{_DIVIDING})*)"
_IN_ENVIRONMENT = rf"(?a:(?:{_PLAIN}+|{_DIVIDING}|{_IN_ENV_TOO})*)"
_IN_MARKUP = r"[^<\n]*"
_WORD = r"(?a:[\w=!#$%*+./?@^~-]*)"
_ENDS_SENTENCE = ".,:;?!)]}>|&"

_REST_OF_NAME = r"(?:word|wd|phrase|s|orization|[_-]?base|[_-]?data)?[0-9_-]*"
_WORDS = ("pass", "pwd", "indpw", "token", "secret", "credential", "key", "auth", "psk", "mnemonic", "phrase")
"""One of these stands in each name, in lower case, and behind it `_REST_OF_NAME` at most."""
_OF_PHRASES = frozenset({"psk", "mnemonic", "phrase"})
_ASSIGNED = rf"(?i){_REST_OF_NAME}(){_JOINT}{_VALUED}"
_NAME_ENDS = rf"(?i){_REST_OF_NAME}"
_ASSIGNED_PHRASE = rf"(?i){_REST_OF_NAME}(){_JOINT}"
_LINE_OF_BLOCK = r"[|>][+-]?[0-9]?[ \t]*\r?\n\Z"

Kind = Literal["password", "phrase", "key", ""]


class Name(NamedTuple):
    """What a name says of its value, and whether it is one of an environment or an option of a command."""

    kind: Kind
    environment: bool = False
    option: bool = False


class Extent(NamedTuple):
    """Where a value begins and ends, whether it stood in quotes, and whether more text could make it
    longer.
    """

    begin: int
    end: int
    quoted: bool
    open: bool


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """The pattern, compiled when it is first needed: importing must cost little."""
    return re.compile(pattern)


def find(text: str) -> Iterator[tuple[int, int]]:
    """Find the values that are secrets by their name and their looks, as pairs of beginning and end."""
    low = _lower(text)
    for word in [word for word in _WORDS if word in low]:
        pattern = _compiled(_ASSIGNED_PHRASE if word in _OF_PHRASES else _ASSIGNED)
        place = low.find(word)
        while place >= 0:
            place += len(word)
            joint = pattern.match(text, place)
            span = _secret_behind(text, joint) if joint else None
            if span:
                yield span
                place = span[1]
            place = low.find(word, place)


def find_open(text: str) -> int | None:
    """Find where the assignment begins that more text could continue, or None.

    The text must end behind a blank or a character that is not ASCII: no ASCII word is divided.
    """
    begin = text.rfind("\n") + 1
    if _compiled(_LINE_OF_BLOCK).search(text, max(0, begin - 16), begin):
        begin = text.rfind("\n", 0, begin - 1) + 1
    begin = max(begin, len(text) - _OPEN_REACH)
    low = _lower(text[begin:])
    for word in _WORDS:
        place = low.find(word)
        while place >= 0:
            if _is_open(text, begin + place + len(word)):
                return begin + place
            place = low.find(word, place + 1)
    return None


def _is_open(text: str, place: int) -> bool:
    """Whether the text behind the word of a name, from `place`, ends in the joint or in the value."""
    joint = _compiled(_ASSIGNED_PHRASE).match(text, place)
    end = joint.start(1) if joint else _end(_NAME_ENDS, text, place)
    if not _name_at(text, end).kind:
        return False
    if _end(_BEFORE_JOINT_ENDS, text, end, len(text)) == len(text):
        return True
    return joint is not None and (
        _extent(text, joint.end(), environment=True).open
        or (joint[3] is not None and _extent(text, joint.end(), markup=True).open)
    )


def _lower(text: str) -> str:
    """The text in lower case, with each character in its place."""
    low = text.lower()
    return low if len(low) == len(text) else text.replace("\u0130", "i").lower()


def _secret_behind(text: str, joint: re.Match[str]) -> tuple[int, int] | None:
    name = _name_at(text, joint.start(1))
    sign, markup, place = joint[2], joint[3] is not None, joint.end()
    blank = not markup and (sign is None or sign.lower() in _VERBS)
    if not name.kind or (blank and not name.option and (name.kind == "key" or "," in joint[0])):
        return None
    environment = name.environment and sign == "=" and text[place - 1] == "="
    extent = _extent(text, place, environment=environment, markup=markup)
    code = not (extent.quoted or environment or "\n" in joint[0])
    return _secret_in(text, extent, name.kind, code=code, blank=blank, environment=environment)


def _secret_in(
    text: str, extent: Extent, kind: Kind, *, code: bool, blank: bool, environment: bool
) -> tuple[int, int] | None:
    if not extent.quoted and not environment and text[extent.end : extent.end + 1] in ("(", "[", "{"):
        return None  # a call
    said, key, _ = text[extent.begin : extent.end].partition("-----")  # a private key may follow
    for value in dict.fromkeys(_candidates(said, quoted=extent.quoted)):
        if value and _is_secret(value, kind, code=code, quoted=extent.quoted, blank=blank):
            long = value == said and len(said) == _LONGEST_VALUE and not key
            end = _end(_WORD, text, extent.end, len(text)) if long else extent.begin + len(value)
            return extent.begin, end
    return None


def _candidates(said: str, *, quoted: bool) -> Iterator[str]:
    """What of a text may be the value: all of it, with or without the signs at its end, or its first word."""
    if quoted or len(said) == _LONGEST_VALUE:
        yield said
    else:
        yield said.rstrip(_ENDS_SENTENCE)
        if has_digits_and_letters(said):
            yield said
    yield said[: _end(_WORD, said, 0)].rstrip(".?!")


def _is_secret(value: str, kind: Kind, *, code: bool, quoted: bool, blank: bool) -> bool:
    if kind == "phrase" and not code and not blank and is_phrase(value):
        return True
    if blank and not has_digits_and_letters(value):
        return False
    code, value = code or blank, value[:_JUDGED]
    return is_random(value, code=code, quoted=quoted) or (kind != "key" and is_chosen(value, code=code))


def _extent(text: str, place: int, *, environment: bool = False, markup: bool = False) -> Extent:
    """Where the value ends that begins at `place`, behind its quotation mark.

    A value in quotes goes to the mark that closes it, on its line: at the same depth of escapes, and not
    before a letter or digit. Without such a mark, it ends as a value without quotes.
    """
    if markup:
        end = _end(_IN_MARKUP, text, place)
        return Extent(place, end if text.startswith("</", end) else place, quoted=True, open=end == len(text))
    opening = _compiled(_OPENING).match(text, place)
    assert opening is not None  # it may match nothing
    begin, quote = opening.end(), opening[2]
    if quote is None:
        end = _end(_IN_ENVIRONMENT if environment else _IN_CODE, text, begin)
        return Extent(begin, end, quoted=False, open=end == len(text))
    return _quoted_extent(text, begin, quote, len(opening[1]))


def _quoted_extent(text: str, begin: int, quote: str, depth: int) -> Extent:
    for stop in _compiled(_QUOTE_OR_LINE[quote]).finditer(text, begin, begin + _LONGEST_VALUE):
        if stop[1] is None:  # the end of the line
            break
        closes = len(stop[1]) < depth or (len(stop[1]) - depth) % (2 * depth + 2) == 0
        if closes and not text[stop.end() : stop.end() + 1].isalnum():
            return Extent(begin, stop.start(), quoted=True, open=stop.end() == len(text))
    else:
        end = _end(_IN_CODE, text, begin)
        return Extent(begin, end, quoted=True, open=len(text) < begin + _LONGEST_VALUE or end == len(text))
    return Extent(begin, _end(_IN_CODE, text, begin), quoted=True, open=False)


def _end(pattern: str, text: str, place: int, limit: int | None = None) -> int:
    found = _compiled(pattern).match(text, place, place + _LONGEST_VALUE if limit is None else limit)
    assert found is not None  # it may match nothing
    return found.end()


def _name_at(text: str, end: int) -> Name:
    """What the name says that ends at `end`."""
    before = text[max(0, end - _LONGEST_NAME) : end].rstrip(_COUNTING)
    begin = len(before.rstrip(_OF_NAMES))
    name = before[begin:]
    if before[begin - 1 : begin] == "\\" and name[:1] in ("n", "r", "t"):  # the end of a line, in source code
        name = name[1:]
    low, capitals, option = name.lower(), name.isupper(), name.startswith("--")
    joined = low.replace("_", "").replace("-", "")
    if low == "psk" or joined.endswith(PHRASES[1:]):
        return Name("phrase", capitals, option)
    if low.endswith(PASSWORDS):
        return Name("password", capitals, option)
    key = joined.endswith(KEYS) or low in _WHOLE_NAMES or (capitals and low.endswith("_key"))
    return Name("key" if key and not joined.endswith(_NO_KEYS) else "", capitals, option)
