"""What the page makes of what was said: markdown, edits, hits of a filter, and what its clipboard gets."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.conftest import record
from console.report.conftest import MARKUP, Opened, apart, page_text
from refold.engine import call, say
from support.page_scripts import evaluated

pytestmark = pytest.mark.slow  # a browser of its own; the quick tier looks at pages in test_report_browser

Look = Callable[..., Opened]
Keep = Callable[[Any, str], None]

SAID = """# The plan

It is **bold**, *leaning* and `code`; see [the docs](javascript:alert) or https://example.org.

- one
  - two
1. first

> quoted

| name | size |
|------|-----:|
| a.md | 3 |

```python
x = [1, "*not leaning*"]
```
"""
EDIT = {"file": "a.py", "old_string": "one\ntwo\nthree", "new_string": "one\n2\nthree", "all": True}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run that edits, and ends with a text in markdown."""
    folder = tmp_path_factory.mktemp("written")
    lines = [
        call("edit", **EDIT),
        call("write", path="a.md", text=f"{MARKUP}\n# no title"),
        say(SAID + MARKUP),
    ]
    apart(lambda: record(folder / "runs.db", lines, "Write it down.", run_id="written"))
    file = folder / "written.html"
    file.write_text(page_text(folder / "runs.db", "written"), encoding="utf-8")
    return file


def answer(opened: Opened) -> None:
    """Show the last thing that the model said."""
    opened.page.click(".row.turn >> nth=-1")
    opened.page.wait_for_selector(".inspector .prose")


def test_what_a_model_says_is_rendered_and_stays_text(written: Path, look: Look, keep: Keep) -> None:
    """Headings, lists, tables, code and emphasis look like it; no link can be followed, and no markup of
    theirs is markup.
    """
    opened = look(written)
    answer(opened)
    texts = {
        part: opened.page.inner_text(f".inspector .prose {part}")
        for part in (".title.h1", "strong", "em", "code", "blockquote", "th", "td", "pre", ".item.d1")
    }
    expected = {
        ".title.h1": "The plan",
        "strong": "bold",
        "em": "leaning",
        "code": "code",
        "blockquote": "quoted",
        "th": "name",
        "td": "a.md",
    }
    assert expected == {part: text.strip() for part, text in texts.items() if part in expected}
    assert 'x = [1, "*not leaning*"]' in texts["pre"]
    assert "two" in texts[".item.d1"]
    assert 0 == opened.page.evaluate("document.querySelectorAll('.prose a, img, .prose script').length")
    assert "the docs (javascript:alert" in opened.page.inner_text(".inspector .prose")
    assert "<img src=x" in opened.page.inner_text(".inspector .prose")
    keep(opened.page, "rendered")
    opened.page.hover(".inspector .prose")
    opened.page.click(".inspector .turn")
    assert "| a.md | 3 |" in opened.page.inner_text(".inspector pre.text")
    assert [] == [each for each in opened.said if not each.startswith("file://")]


def test_an_edit_is_shown_as_what_it_changes(written: Path, look: Look, keep: Keep) -> None:
    """Of an edit the lines that went and came are told from those that stayed, and all that was written is at
    hand.
    """
    opened = look(written)
    opened.page.click(".row.call >> nth=0")
    opened.page.wait_for_selector(".inspector .diff")
    assert "  one\n- two\n+ 2\n  three" == opened.page.inner_text(".diff").rstrip().replace("\n\n", "\n")
    assert "- two" == opened.page.inner_text(".diff .went").strip()
    assert "a.py" in opened.page.inner_text(".asked")
    opened.page.click(".asked summary")
    assert '"old_string"' in opened.page.inner_text(".asked .json")
    keep(opened.page, "edit")


def test_what_a_filter_found_is_marked(written: Path, look: Look) -> None:
    """Each hit of a filter is marked where it is read, whatever its case; what is not wanted is not."""
    opened = look(written)
    answer(opened)
    for asked, hits in (
        ("LEANING", {"leaning"}),
        ('text~"quot[a-z]+"', {"quoted"}),
        ("type:model", set[str]()),
        (r'text~"(?P<w>qu)oted" text~"(?P<w>lean)ing" bold', {"quoted", "leaning", "bold"}),
        (r'text~"lean\-?ing"', {"leaning"}),
        ("-text:bold", set[str]()),
    ):
        opened.page.fill(".filter", asked)
        opened.page.wait_for_function(f"refold.parse({asked!r}, refold.model.fields).empty === false")
        opened.page.evaluate(
            "async () => { for (let i = 0; i < 3; i++) await new Promise(requestAnimationFrame); }"
        )
        found = {each.inner_text() for each in opened.page.query_selector_all(".inspector mark")}
        assert hits == found, asked


def test_a_clipboard_gets_what_is_seen(written: Path, look: Look) -> None:
    """What is copied is the text as it is shown: a mark that nobody sees would be pasted into somebody's
    terminal.
    """
    opened = look(written, "#e1")
    opened.page.evaluate("navigator.clipboard.writeText = async text => { window.copied = text; }")
    opened.page.click(".heading .copy")
    assert "written@e1" == opened.page.evaluate("window.copied")
    answer(opened)
    opened.page.hover(".inspector .prose")
    opened.page.click(".inspector .box .copy")
    copied = opened.page.evaluate("window.copied")
    assert copied.startswith("# The plan\n")
    assert "\x1b" not in copied
    assert "\\x1b[31mred" in copied


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        pytest.param("a\nb", "a\nb", "  ", id="nothing"),
        pytest.param("", "a", "+", id="all of it came"),
        pytest.param("a", "", "-", id="all of it went"),
        pytest.param("a\nb\nc", "a\nx\nc", " -+ ", id="one of three"),
        pytest.param("a\nb\nc\nd", "c\nd\na", "--  +", id="what moved went and came"),
        pytest.param("a\na\na", "a\na", "  -", id="one of the same"),
    ],
)
def test_two_texts_are_compared_line_by_line(before: str, after: str, changed: str) -> None:
    """A comparison says of each line whether it stayed, went or came; what stayed and went is the old text,
    what stayed and came the new.
    """
    lines = evaluated(
        "({before, after}) => refold.changed(before, after)", {"before": before, "after": after}
    )
    assert changed == "".join(sign for sign, _ in lines)
    assert before == "\n".join(line for sign, line in lines if sign != "+")
    assert after == "\n".join(line for sign, line in lines if sign != "-")
