"""Whether a value looks like a secret: made by a machine, or chosen as a password.

Behind the name of a secret, code and prose mostly have no secret but a variable, a call, a type or a
placeholder. These rules decide on the value alone.
"""

import re

NAMES = ("token", "secret", "credential", "credentials", "key")
"""Ends of the names of keys: a value in code that ends so is a name, as `keys.Ed25519X448PrivateKey`."""

_WORDS = (
    "example", "sample", "placeholder", "changeme", "change_me", "your", "dummy", "xxxx", "redacted", "insert",
    "replace", "0123456789", "abcdef", "1234567890",
)  # fmt: skip
_TEMPLATE = re.compile(r"[$#%]\{[^}]{1,64}\}|\{\{.{1,64}\}\}|[%$]\([^)]{1,64}\)")
_MACHINE_MADE = re.compile(r"[\w.~+/=%-]{12,}", re.ASCII)
_ADDRESS = re.compile(r"\w{2,16}://|arn:|\.{0,2}/|~/", re.ASCII)
_PIECE = re.compile(r"[_.~+/=-]+")
_WORD = re.compile(r"[\s/_.~+=-]+")
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
    if len(value) < 12 or len(set(value)) < 8 or not has_digits_and_letters(value) or is_placeholder(value):
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


def is_chosen(value: str, *, code: bool) -> bool:
    """Whether a person chose the value as a password: 8 characters or more, with a digit or a sign."""
    if len(value) < _SHORTEST or not _NO_LETTER.search(value) or len(set(value)) < 5 or is_placeholder(value):
        return False
    if "/" in value or _has_words(value):
        return not _ADDRESS.match(value) and any(map(_is_mixed, _words(value)))
    if any(sign in _SIGNS for sign in value) and any(map(str.isalpha, value)):
        return True
    return has_digits_and_letters(value) and (
        not code or ("." not in value and _is_strange(value, code=False))
    )


def is_phrase(value: str) -> bool:
    """Whether the value is a passphrase of three words or more."""
    words = [word for word in _WORD.split(value) if word]
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
        or any(word in low for word in _WORDS)
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
    return _WORD.split("".join([" " if _divides(character) else character for character in value]))


def _is_mixed(word: str) -> bool:
    word = word.strip(_PUNCTUATION)
    return len(word) >= 4 and has_digits_and_letters(word) and not _ORDINARY.fullmatch(word)
