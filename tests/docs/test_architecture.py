"""The page that says how refold is built, and the words that it uses, are true of the code."""

import ast
import re
from collections import Counter
from functools import cache
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

from refold.reducers import state
from refold.reducers.events import KINDS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
GLOSSARY = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
PACKAGES = ("reducers", "store", "engine", "importers", "replay", "testing", "console")

_ROW = re.compile(r"^\| (?!---|word)([a-z ]+) \| .+ \| `([\w.]+)` \|$", re.MULTILINE)
_PROGRESS = re.compile(r"^\| `(\w+)` \| `(\w+)` \| ", re.MULTILINE)
_PART = re.compile(r"^\| (?:`(\w+)`)? *\| (`[^|]+`) \| ", re.MULTILINE)


@cache
def classes() -> Counter[str]:
    """The public classes of the five packages, by name."""
    found: Counter[str] = Counter()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            nodes = ast.parse(path.read_text(encoding="utf-8")).body
            found.update(node.name for node in nodes if isinstance(node, ast.ClassDef))
    return found


def test_there_are_forty_words() -> None:
    """Few enough to be known: a word more is another word less."""
    words = [word for word, _ in _ROW.findall(GLOSSARY)]
    assert (40, sorted(set(words))) == (len(words), words)


@pytest.mark.parametrize(("word", "name"), _ROW.findall(GLOSSARY))
def test_a_word_is_one_thing(word: str, name: str) -> None:
    """What the glossary says a word is called in the code is there, once."""
    if name[0].isupper():
        assert 1 == classes()[name], word
    else:
        import_module(f"refold.{name}")


@pytest.mark.parametrize(("field", "struct"), _PROGRESS.findall(PAGE))
def test_what_is_in_no_event(field: str, struct: str) -> None:
    """Each field that the page says is the state's own is there, and no event has one of this name that it
    could be.
    """
    assert field in getattr(state, struct).__struct_fields__
    kept: object = getattr(state, struct)
    event = next(
        (each.type for each in msgspec.inspect.type_info(kept).fields if each.name == "event"),  # type: ignore
        None,
    )
    if isinstance(event, msgspec.inspect.StructType) and event.tag in KINDS:
        assert field not in KINDS[str(event.tag)].__struct_fields__


def test_the_parts_are_there() -> None:
    """Each file and folder that the page calls a part is one of its package."""
    package = ""
    for named, parts in _PART.findall(PAGE.split("## ")[3]):
        package = named or package
        for part in re.findall(r"`([\w/.]+)`", parts):
            assert (ROOT / package / "refold" / package / part).exists(), part
    assert "console" == package


def test_it_is_one_page() -> None:
    """What does not fit on it belongs elsewhere."""
    assert 120 > len(PAGE.splitlines())
