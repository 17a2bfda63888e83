"""Assigned secrets: values that look like secrets after names such as `password`.

After the name of a secret, code and text mostly have a variable, a call, a type or a placeholder. These rules
decide by the value alone.

One grammar finds values: a *name*, a *joint* between the name and its value, and the *extent* of the value.
`find` searches a whole text. `find_open` searches a text that may continue: an assignment that reaches the
end of the text is still open.

Search time is linear in the text: only the first characters of a value are judged, and a found value is not
searched again.
"""

import re
from collections.abc import Iterator
from functools import cache
from string import ascii_letters, digits
from typing import Literal, NamedTuple

NAMES = ("token", "secret", "credential", "credentials", "key")
"""Ends of names of keys: a value in code with such an end is a name, as `keys.Ed25519X448PrivateKey`."""

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
_MIN_CHOSEN = 8
_MIN_PHRASE = 16


def is_random(value: str, *, code: bool, quoted: bool = False) -> bool:
    """Return whether a value was machine-generated: long enough, with a piece that is not a word.

    Args:
        value: the text of the value, without its quotes.
        code: whether it may be code; a type such as `Pkcs7Key` does not count then.
        quoted: whether it was in quotes; it may contain any character then.
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
    """Return whether a value has this length and this many different characters, and is not a placeholder."""
    return len(value) >= length and len(set(value)) >= characters and not is_placeholder(value)


def is_chosen(value: str, *, code: bool) -> bool:
    """Return whether a value looks like a chosen password: 8 characters or more, with a digit or a sign."""
    if not _NO_LETTER.search(value) or not _is_varied(value, _MIN_CHOSEN, 5):
        return False
    if "/" in value or _has_words(value):
        return not _ADDRESS.match(value) and any(map(_is_mixed, _words(value)))
    if not _SIGNS.isdisjoint(value) and any(map(str.isalpha, value)):
        return True
    if code and ("." in value or not _is_strange(value, code=False)):
        return False
    return has_digits_and_letters(value)


def is_phrase(value: str) -> bool:
    """Return whether the value is a passphrase of three words or more."""
    words = [word for word in _PLAIN_WORD.split(value) if word]
    return (
        len(value) >= _MIN_PHRASE
        and len(words) >= 3
        and all(map(str.isalnum, words))
        and not is_placeholder(value)
    )


def has_digits_and_letters(value: str) -> bool:
    """Return whether the value has a digit and a letter."""
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


def is_placeholder(value: str) -> bool:
    """Return whether the value is a placeholder: a variable, a template, `your-password-here`."""
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
    """Return whether a piece is neither a word with a number after it, nor a number, nor (`code`) a type."""
    pieces = (piece for piece in _PIECE.split(value) if len(piece) >= 8)
    return any(not (_TYPE if code else _ORDINARY).fullmatch(piece) for piece in pieces)


def _is_mixed_of_all(value: str) -> bool:
    kinds = (str.islower, str.isupper, str.isdigit, _SIGNS.__contains__)
    return len(value) >= 16 and all(any(map(kind, value)) for kind in kinds)


def _has_words(value: str) -> bool:
    return any(map(_divides, value)) if not value.isascii() else _BLANK.search(value) is not None


def _divides(character: str) -> bool:
    """Return whether the character separates words: a blank, or a letter of a script without blanks."""
    if character.isspace():
        return True
    return character > "\x7f" and character.isalpha() and character.lower() == character.upper()


def _words(value: str) -> list[str]:
    return _PLAIN_WORD.split("".join([" " if _divides(character) else character for character in value]))


def _is_mixed(word: str) -> bool:
    word = word.strip(_PUNCTUATION)
    return len(word) >= 4 and has_digits_and_letters(word) and not _ORDINARY.fullmatch(word)


PASSWORDS = ("password", "passwd", "passphrase", "pwd", "_pass", "bindpw", "requirepass")
"""Ends of names, in lower case, of values chosen by a user."""

PHRASES = ("psk", "passphrase", "mnemonic", "seedphrase")
"""Ends of names whose secret may be words only; `psk` is a whole name."""

KEYS = (
    "token", "secret", "credential", "credentials", "apikey", "accesskey", "secretkey", "privatekey", "authkey",
    "accountkey", "encryptionkey", "signingkey", "masterkey", "licensekey", "servicekey", "storagekey", "keybase",
    "clientkey", "appkey", "applicationkey", "subscriptionkey", "clientkeydata",
)  # fmt: skip
"""Ends of names of machine-generated values; `api_key`, `api-key` and `apiKey` are the same."""

_WHOLE_NAMES = frozenset({"auth", "_auth", "authorization"})

# Pagination tokens are not secret, and callers need them.
_NO_KEYS = tuple(
    f"{word}token"
    for word in ("page", "next", "continuation", "sync", "cursor", "resume", "watermark", "change")
)

ESCAPES = r"\\{0,15}"
"""Backslashes before a quotation mark: JSON in JSON doubles them and adds one, up to four levels."""

_MAX_NAME = 64
_MAX_VALUE = 512
_JUDGED = 128  # characters of a value; chosen passwords are shorter
_OPEN_REACH = 3 * _MAX_NAME + _MAX_VALUE
_OF_NAMES = f"{ascii_letters}{digits}_.-"
_COUNTING = "_-0123456789"

# The joint: the end of the name, a sign, and the start of a YAML block; or only blanks, as in a command.
_CLOSING = r"[\"'`\\\] \t:?]{0,64}"
_VERBS = ("is", "was", "to")
_SIGN = rf"[:=]>?|(?<=[ \t])\||(?<=[ \t])(?:{'|'.join(_VERBS)})(?=[ \t:])"
_BLOCK = r"(?:[ \t]*[|>][+-]?[0-9]?[ \t]*\r?\n)?"
_JOINT = rf"(?:{_CLOSING}({_SIGN}):?{_BLOCK}|[\"'`\\]{{0,2}}(>)|[\"'`]?,?(?=[ \t]{{1,4}}[^ \t]))[ \t]{{0,32}}"
_BEFORE_JOINT_ENDS = r"[\"'`\\\] \t:?=>|,+\r\n0-9-]*"  # each prefix of a joint

# The beginning of a possible secret: a digit, or a sign that words do not have. Cheap to test, and rarely
# true.
_ODD = r"0-9!#$%&*?@^~\\"
_PREFIX = r"(?:[bBrRuU@$L]{1,2}(?=[\"'`]))?"
_QUOTED = "|".join(rf"{quote}(?=[^\n{quote}{_ODD}]{{0,64}}[{_ODD}])" for quote in "\"'`")
_BARE = rf"(?![=:\"'`])(?=[^\s\"'`{_ODD}]{{0,64}}[{_ODD}])[^\s\"'`]{{8}}"
_VALUED = rf"(?={_PREFIX}{ESCAPES}(?:{_QUOTED})|{_BARE})"

# The extent of a value. Without quotes it ends where a word in code ends; environment values may be longer.
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
"""Each name contains one of these, in lower case, followed by `_REST_OF_NAME` at most."""
_OF_PHRASES = frozenset({"psk", "mnemonic", "phrase"})
_ASSIGNED = rf"(?i){_REST_OF_NAME}(){_JOINT}{_VALUED}"
_NAME_ENDS = rf"(?i){_REST_OF_NAME}"
_ASSIGNED_PHRASE = rf"(?i){_REST_OF_NAME}(){_JOINT}"
_LINE_OF_BLOCK = r"[|>][+-]?[0-9]?[ \t]*\r?\n\Z"

Kind = Literal["password", "phrase", "key", ""]


class Name(NamedTuple):
    """The kind of value that a name implies, and whether it is an environment variable or an option."""

    kind: Kind
    environment: bool = False
    option: bool = False


class Extent(NamedTuple):
    """Where a value begins and ends, whether it is quoted, and whether more text could extend it."""

    begin: int
    end: int
    quoted: bool
    open: bool


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Return the pattern, compiled on first use to keep imports cheap."""
    return re.compile(pattern)


def find(text: str) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of values that are secrets by their name and their look."""
    low = _lower(text)
    for word in [word for word in _WORDS if word in low]:
        pattern = _compiled(_ASSIGNED_PHRASE if word in _OF_PHRASES else _ASSIGNED)
        place = low.find(word)
        while place >= 0:
            place += len(word)
            joint = pattern.match(text, place)
            span = _find_secret_after(text, joint) if joint else None
            if span:
                yield span
                place = span[1]
            place = low.find(word, place)


def find_open(text: str) -> int | None:
    """Return where an assignment begins that more text could continue, or None.

    The text must end after a blank or a non-ASCII character, so that no ASCII word is split.
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
    """Return whether the text from `place`, after the word of a name, ends in the joint or in the value."""
    joint = _compiled(_ASSIGNED_PHRASE).match(text, place)
    end = joint.start(1) if joint else _match_end(_NAME_ENDS, text, place)
    if not _read_name(text, end).kind:
        return False
    if _match_end(_BEFORE_JOINT_ENDS, text, end, len(text)) == len(text):
        return True
    return joint is not None and (
        _measure(text, joint.end(), environment=True).open
        or (joint[3] is not None and _measure(text, joint.end(), markup=True).open)
    )


def _lower(text: str) -> str:
    """Lower-case the text without moving characters."""
    low = text.lower()
    return low if len(low) == len(text) else text.replace("\u0130", "i").lower()


def _find_secret_after(text: str, joint: re.Match[str]) -> tuple[int, int] | None:
    name = _read_name(text, joint.start(1))
    sign, markup, place = joint[2], joint[3] is not None, joint.end()
    blank = not markup and (sign is None or sign.lower() in _VERBS)
    if not name.kind or (blank and not name.option and (name.kind == "key" or "," in joint[0])):
        return None
    environment = name.environment and sign == "=" and text[place - 1] == "="
    extent = _measure(text, place, environment=environment, markup=markup)
    code = not (extent.quoted or environment or "\n" in joint[0])
    return _pick_secret(text, extent, name.kind, code=code, blank=blank, environment=environment)


def _pick_secret(
    text: str, extent: Extent, kind: Kind, *, code: bool, blank: bool, environment: bool
) -> tuple[int, int] | None:
    if not extent.quoted and not environment and text[extent.end : extent.end + 1] in ("(", "[", "{"):
        return None  # a call
    content, key, _ = text[extent.begin : extent.end].partition("-----")  # a private key may follow
    for value in dict.fromkeys(_list_candidates(content, quoted=extent.quoted)):
        if value and _is_secret(value, kind, code=code, quoted=extent.quoted, blank=blank):
            long = value == content and len(content) == _MAX_VALUE and not key
            end = _match_end(_WORD, text, extent.end, len(text)) if long else extent.begin + len(value)
            return extent.begin, end
    return None


def _list_candidates(content: str, *, quoted: bool) -> Iterator[str]:
    """Yield possible values: the whole text, with or without the signs at its end, and its first word."""
    if quoted or len(content) == _MAX_VALUE:
        yield content
    else:
        yield content.rstrip(_ENDS_SENTENCE)
        if has_digits_and_letters(content):
            yield content
    yield content[: _match_end(_WORD, content, 0)].rstrip(".?!")


def _is_secret(value: str, kind: Kind, *, code: bool, quoted: bool, blank: bool) -> bool:
    if kind == "phrase" and not code and not blank and is_phrase(value):
        return True
    if blank and not has_digits_and_letters(value):
        return False
    code, value = code or blank, value[:_JUDGED]
    return is_random(value, code=code, quoted=quoted) or (kind != "key" and is_chosen(value, code=code))


def _measure(text: str, place: int, *, environment: bool = False, markup: bool = False) -> Extent:
    """Return the extent of the value that begins at `place`, without its opening quote.

    A quoted value ends at the closing quote on its line: at the same depth of escapes, not before a letter or
    digit. Without a closing quote, it ends like an unquoted value.
    """
    if markup:
        end = _match_end(_IN_MARKUP, text, place)
        return Extent(place, end if text.startswith("</", end) else place, quoted=True, open=end == len(text))
    opening = _compiled(_OPENING).match(text, place)
    assert opening is not None  # it may match nothing
    begin, quote = opening.end(), opening[2]
    if quote is None:
        end = _match_end(_IN_ENVIRONMENT if environment else _IN_CODE, text, begin)
        return Extent(begin, end, quoted=False, open=end == len(text))
    return _measure_quoted(text, begin, quote, len(opening[1]))


def _measure_quoted(text: str, begin: int, quote: str, depth: int) -> Extent:
    for stop in _compiled(_QUOTE_OR_LINE[quote]).finditer(text, begin, begin + _MAX_VALUE):
        if stop[1] is None:  # the end of the line
            break
        closes = len(stop[1]) < depth or (len(stop[1]) - depth) % (2 * depth + 2) == 0
        if closes and not text[stop.end() : stop.end() + 1].isalnum():
            return Extent(begin, stop.start(), quoted=True, open=stop.end() == len(text))
    else:
        end = _match_end(_IN_CODE, text, begin)
        return Extent(begin, end, quoted=True, open=len(text) < begin + _MAX_VALUE or end == len(text))
    return Extent(begin, _match_end(_IN_CODE, text, begin), quoted=True, open=False)


def _match_end(pattern: str, text: str, place: int, limit: int | None = None) -> int:
    found = _compiled(pattern).match(text, place, place + _MAX_VALUE if limit is None else limit)
    assert found is not None  # it may match nothing
    return found.end()


def _read_name(text: str, end: int) -> Name:
    """Return what the name that ends at `end` implies."""
    before = text[max(0, end - _MAX_NAME) : end].rstrip(_COUNTING)
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
