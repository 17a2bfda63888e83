"""What models, tools and logs say must not act on a terminal."""

import json
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.conftest import EVIL, Refold
from refold.console import descriptions

ANYTHING = st.text(st.characters(exclude_categories=()), max_size=60)


def dangerous(text: str) -> set[str]:
    """The characters of a text that could act on a terminal or hide from a reader, line ends and tabs
    aside.
    """
    kept = "\n\t\u200c\u200d"
    return {char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - set(kept)


def test_a_character_is_shown_alike_wherever_it_stands() -> None:
    """What is hidden beside a control character is hidden in a text of its own, also what Python calls
    printable.
    """
    letters = [chr(code) for code in range(sys.maxunicode + 1)]
    beside = (descriptions.line(f"\x00{letter}").removeprefix("\\x00") for letter in letters)
    assert [] == [
        letter for letter, shown in zip(letters, beside, strict=True) if descriptions.line(letter) != shown
    ]
    assert "\\U000e0101" == descriptions.line("\U000e0101")


@given(ANYTHING)
def test_no_dangerous_character_passes(text: str) -> None:
    """Whatever is shown holds no control, format or half character."""
    assert set() == dangerous(descriptions.block(text))
    assert set() == dangerous(descriptions.line(text))
    assert not {"\n", "\t"} & set(descriptions.line(text))


@given(ANYTHING)
def test_json_keeps_its_value(text: str) -> None:
    """Escaping JSON text changes no value in it."""
    plain = text.encode(errors="replace").decode()
    shown = descriptions.json_text(json.dumps([plain], ensure_ascii=False))
    assert [plain] == json.loads(shown)
    assert set() == dangerous(shown)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("plain, ünï, 漢, 👩‍🚀", "plain, ünï, 漢, 👩‍🚀", id="ordinary text is not touched"),
        pytest.param("\x1b[2J", "\\x1b[2J", id="an escape sequence is shown"),
        pytest.param("\x9b2J", "\\x9b2J", id="so is one of a single byte"),
        pytest.param("a\u202eb", "a\\u202eb", id="the reading order stays"),
        pytest.param("a\U000e0041b", "a\\U000e0041b", id="invisible letters show"),
        pytest.param("a\rb", "a\\x0db", id="a line is not written over"),
    ],
)
def test_each_is_shown_as_its_escape(text: str, shown: str) -> None:
    """A character that is not printed leaves its number."""
    assert shown == descriptions.block(text)


def test_a_line_is_one() -> None:
    """A line end or a tab in what is one line shows as its escape."""
    assert "a\\nb\\tc" == descriptions.line("a\nb\tc")


@pytest.mark.parametrize("most", [1, 2, 10])
def test_a_line_is_cut(most: int) -> None:
    """A long text ends in an ellipsis."""
    assert most == len(descriptions.line("x" * 20, most))
    assert descriptions.line("x" * 20, most).endswith("…")


COMMANDS = [
    ["ls"],
    ["show", "aa11"],
    ["show", "aa11", "--all"],
    ["show", "aa11", "--raw"],
    ["view", "aa11@t3"],
    ["view", "aa11@t3", "-o", "json"],
    ["state", "aa11"],
    ["state", "aa11", "-o", "json"],
    ["verify", "aa11"],
    ["audit", "aa11"],
    ["audit", EVIL],
    ["show", EVIL],
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: ascii(" ".join(words)))
def test_no_command_passes_it_on(words: list[str], refold: Refold, store: object, finished: str) -> None:
    """A log full of escape sequences is shown without one of them, and so is one on the command line."""
    ran = refold(*words, "--store", str(store))
    assert set() == dangerous(ran.out + ran.err)


def test_a_message_cannot_pretend_to_be_another(refold: Refold, store: object, finished: str) -> None:
    """What a message says is indented, our own lines are not."""
    ran = refold("view", "aa11@t2", "--store", str(store))
    ours = [line for line in ran.out.splitlines() if line and not line.startswith("  ")]
    assert ["run", "---", "---", "---", "---", "tools", "settings", "sent"] == [
        line.split()[0] for line in ours
    ]
