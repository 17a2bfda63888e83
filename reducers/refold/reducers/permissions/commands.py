"""Conditions on one command: its first words, or a glob over all of them."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile

from refold.reducers.patterns import matches
from refold.reducers.permissions.wrappers import Words, base_name

Token = str | tuple[str, ...]
"""A word of a prefix, or alternatives for it."""


@lru_cache(maxsize=512)
def command_pattern(glob: str) -> str:
    """Return a glob over a command as a pattern: `*` is any text; a single ` *` at the end may be missing."""
    single = glob.endswith(" *") and glob.count("*") == 1
    head, blank, _ = glob.rpartition(" *") if single else (glob, "", "")
    escaped = ".*".join(map(_escape, head.split("*")))
    return f"(?s)^{escaped}{'(?: .*)?' if blank else ''}$"


def _escape(text: str) -> str:
    return "".join(
        letter if letter.isalnum() or letter in " _/" else f"\\x{{{ord(letter):x}}}" for letter in text
    )


def glob_matches(glob: str, words: Words, *, permits: bool) -> bool | None:
    """Return whether a glob matches a command; None: unknown. `permits`: see `prefix_matches`."""
    text, based, complete = _texts(words)
    head = literal_head(glob)
    if complete:
        if text.startswith(head) and matches(command_pattern(glob), text):
            return True
        also = not permits and based != text and based.startswith(head)
        return also and matches(command_pattern(glob), based)
    # What follows may be anything: certain only if the glob ends in any text and its head is there already.
    if glob.endswith("*") and text.startswith(head) and matches(command_pattern(glob), text):
        return True
    return None if not text or based.startswith(head) or head.startswith(based) else False


def known_texts(words: Words) -> tuple[str, str] | None:
    """Return a command, and the same without the program's folder; None if a word is unknown."""
    text, based, complete = _texts(words)
    return (text, based) if complete else None


@lru_cache(maxsize=256)  # each rule asks about the same few commands
def _texts(words: Words) -> tuple[str, str, bool]:
    """Return the command up to its first unknown word, the same without the program's folder, and whether no
    word is unknown.
    """
    known = [word for word in takewhile(lambda word: word is not None, words) if word is not None]
    text = " ".join(known)
    based = text[known[0].rfind("/") + 1 :] if known else ""
    return text, based, len(known) == len(words)


@lru_cache(maxsize=512)
def literal_head(glob: str) -> str:
    """Return the text with which every command that matches begins."""
    return glob.partition("*")[0].rstrip(" ")


def alternatives(token: Token) -> str:
    """Return a word of a prefix as messages write it."""
    return token if isinstance(token, str) else "|".join(token)


def prefix_matches(prefix: Sequence[Token], words: Words, *, permits: bool) -> bool | None:
    """Return whether a command begins with these words.

    To permit, it must begin with exactly them. To refuse or ask, the program may have a folder, and options
    may stand before a subcommand or in another order, which makes the result unknown if it cannot be told.
    """
    name = words[0] if words else None
    if name is None:
        return None
    if not _is_one_of(name, prefix[0]) and (permits or not _is_one_of(base_name(name), prefix[0])):
        return False
    rest = list(words[1:])
    if not permits and base_name(name) == "git":
        rest = _without_git_options(rest)
    for place, token in enumerate(prefix[1:]):
        if place >= len(rest):
            return False
        word = rest[place]
        if word is None:
            return None
        if _is_one_of(word, token):
            continue
        return False if permits else _may_follow(token, word, tuple(rest[place:]))
    return True


def _may_follow(token: Token, word: str, rest: Words) -> bool | None:
    """Return None if a later word may be the expected one: an option in another order, or after options."""
    choices = (token,) if isinstance(token, str) else token
    if any(each.startswith("-") for each in choices):
        return None if any(_may_be_given(each, rest) for each in choices) else False
    later = any(each is None or _is_one_of(each, token) for each in rest)
    return None if word.startswith("-") and later else False


def _may_be_given(option: str, rest: Words) -> bool:
    """Return whether these words may give an option: abbreviated, with a value, or in other clusters."""
    if None in rest:
        return True
    given = [word for word in rest if word is not None and word.startswith("-")]
    if option.startswith("--"):
        return any(
            word.startswith(f"{option}=") or (len(word) > 2 and option.startswith(word)) for word in given
        )
    letters = {letter for word in given if not word.startswith("--") for letter in word[1:]}
    return set(option[1:]) <= letters or any(word.startswith("--") and len(word) > 2 for word in given)


def _is_one_of(word: str, token: Token) -> bool:
    return word == token if isinstance(token, str) else word in token


_GIT_TAKES = frozenset(
    {"--attr-source", "-C", "-c", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--config-env"}
)


def _without_git_options(rest: list[str | None]) -> list[str | None]:
    """Return the arguments of git from its subcommand on."""
    place = 0
    while place < len(rest):
        word = rest[place]
        if word is None or not word.startswith("-"):
            break
        place += 2 if word in _GIT_TAKES else 1
    return rest[place:]
