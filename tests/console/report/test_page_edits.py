"""A page that somebody edited: each of its parts is held against the digest that was written with it."""

import base64
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.report.conftest import Opened
from console.report.test_page_rows import DRAWN, GREENS
from support.pages import LISTS, edited, read

Look = Callable[..., Opened]

WORDS = {
    "turns": ('"look"', '"rm -rf /"'),
    "events": ('"look', '"rm -rf /'),
    "calls": ("scripted", "gpt"),
    "records": ("a.md", "z.md"),
    "derived": ("WAITING_FOR_TOOL", "COMPLETED"),
    "shown": ('"tool"', '"user"'),
}
"""A word of each list, and what somebody writes in its stead."""


def element(text: str, name: str) -> str:
    """The element with an id, as it stands in a page."""
    start = text.rindex("<script", 0, text.index(f' id="{name}">'))
    return text[start : text.index("</script>", start) + len("</script>")]


def rewritten(file: Path, to: Path, name: str, change: Callable[[str], str]) -> Path:
    """The page with the text in one element changed, and nothing else; of a part that is what it unpacks
    to.
    """
    text = file.read_text(encoding="utf-8")
    before = element(text, name)
    head, _, rest = before.partition(">")
    inside = rest.removesuffix("</script>")
    if "octet-stream" not in head:
        made = change(inside)
    else:
        said = change(zlib.decompress(base64.b64decode(inside), wbits=-15).decode())
        packer = zlib.compressobj(wbits=-15)
        made = base64.b64encode(packer.compress(said.encode()) + packer.flush()).decode()
    assert made != inside
    to.write_text(text.replace(before, f"{head}>{made}</script>"), encoding="utf-8")
    return to


def assert_told(opened: Opened, name: str) -> None:
    """The bar names the part; nothing on the page is green, nothing "ok", and the chain is not said to be
    whole.
    """
    assert f"This page was edited after it was made: part {name}." in opened.page.inner_text(".alarm")
    assert opened.page.get_attribute("header", "data-chain") in {"edited", "broken"}
    for tab in "12345":
        opened.page.keyboard.press(tab)
        opened.page.evaluate(DRAWN)
        assert [] == opened.page.evaluate(GREENS)
    assert "ok" not in [each.inner_text() for each in opened.page.query_selector_all(".mark")]
    assert [] == [each for each in opened.said if not each.startswith("file://")]


@pytest.mark.parametrize("name", LISTS)
def test_a_word_that_was_replaced_in_a_part_is_told(
    name: str, ordinary: Path, tmp_path: Path, look: Look
) -> None:
    """Whoever unpacks a part, writes another word into it and packs it again is found out, whatever the part
    is of.
    """
    old, new = WORDS[name]
    file = rewritten(ordinary, tmp_path / "edited.html", f"{name}-0", lambda text: text.replace(old, new))
    assert_told(look(file), f"{name}-0")


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        pytest.param("data", "Look at", "Delete", id="the task"),
        pytest.param("data", '"did":"', '"did":"100 rm, ', id="what it did"),
        pytest.param("sum", "", "0", id="the digest of the data"),
    ],
)
def test_data_that_was_edited_is_told(
    name: str, old: str, new: str, ordinary: Path, tmp_path: Path, look: Look
) -> None:
    """What the page says of the run as a whole is bound as its parts are: by the digest that stands beside
    it.
    """
    assert_told(
        look(rewritten(ordinary, tmp_path / "edited.html", name, lambda text: text.replace(old, new))), "data"
    )


def test_a_part_that_is_gone_is_told(ordinary: Path, tmp_path: Path, look: Look) -> None:
    """A part that somebody took out is named, though the list can be shown without it."""
    text = ordinary.read_text(encoding="utf-8")
    file = tmp_path / "cut.html"
    file.write_text(text.replace(element(text, "shown-0"), ""), encoding="utf-8")
    assert_told(look(file), "shown-0")


def test_who_computes_the_digests_anew_is_not_found_out(ordinary: Path, tmp_path: Path, look: Look) -> None:
    """What the how-to says cannot be shown is not: a page whose digests are those of its edited rows is
    called whole.
    """

    def other(turns: list[Any]) -> list[Any]:
        return list(json.loads(json.dumps(turns).replace('"look"', '"rm -rf /"')))

    opened = look(edited(ordinary, tmp_path / "edited.html", turns=other))
    assert "intact" == opened.page.get_attribute("header", "data-chain")
    assert "rm -rf /" in opened.page.inner_text(".list")
    assert read(ordinary).data["checked"]["hash"] in opened.page.text_content("header")
