"""The page's header: what is to be read first, in two lines, and what folds out of it."""

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from console.report.conftest import Opened, apart, page_text
from refold.engine import Agent, ScriptedModel, say
from support.pages import read

pytestmark = pytest.mark.slow  # a browser of its own; the quick tier looks at pages in test_report_browser

Look = Callable[..., Opened]


def test_the_header_takes_four_lines_and_one_once_scrolled(ordinary: Path, look: Look) -> None:
    """What is to be read first leaves the screen to what happened; more of it folds out."""
    opened = look(ordinary)
    height = "document.querySelector('header').getBoundingClientRect().height"
    opened.page.set_viewport_size({"width": 1400, "height": 500})
    first = opened.page.evaluate(height)
    assert first < 125
    lines = [
        opened.page.query_selector(f"header > .{name}").bounding_box()
        for name in ("first", "who", "outcome", "second")
    ]
    assert all(above["y"] + above["height"] <= below["y"] for above, below in pairwise(lines))
    opened.page.evaluate("document.querySelector('.list').scrollTop = 0")  # it opens at the end
    opened.page.wait_for_timeout(200)
    opened.page.evaluate("document.querySelector('.list').scrollTop = 1000")
    opened.page.wait_for_selector(".page.small")
    assert opened.page.evaluate(height) < first
    opened.page.evaluate("document.querySelector('.list').scrollTop = 0")
    opened.page.wait_for_selector(".page:not(.small)")
    assert not opened.page.is_visible(".unproved")
    opened.page.click("button.details")
    assert "what this cannot prove" in opened.page.inner_text(".about")
    assert read(ordinary).data["checked"]["hash"] in opened.page.inner_text(".about")


def test_a_link_does_not_shrink_the_header(imported: Path, look: Look) -> None:
    """Who follows an address far down has read nothing yet: the header is whole until they scroll by
    themselves.
    """
    middle = len(read(imported).data["events"]) // 2
    opened = look(imported, f"#e{middle}")
    opened.page.wait_for_function("document.querySelector('.list').scrollTop > 500")
    opened.page.wait_for_timeout(100)
    assert opened.page.is_visible("header .did")
    row, box = (opened.page.query_selector(each).bounding_box() for each in (".row.selected", ".list"))
    assert box["y"] <= row["y"]
    assert row["y"] + row["height"] <= box["y"] + box["height"] + 1
    opened.page.evaluate("document.querySelector('.list').scrollTop -= 50")
    opened.page.wait_for_selector("header .did", state="hidden")


def test_hashes_and_labels_are_folded(tmp_path: Path, look: Look) -> None:
    """Neither a hash nor a label takes room before somebody asks for details; then both are there."""
    agent = Agent(model=ScriptedModel([say("Done.")]), store=tmp_path / "runs.db")
    apart(lambda: agent.run_sync("Go.", run_id="labelled", labels={"ticket": "INC-4711"}))
    file = tmp_path / "labelled.html"
    file.write_text(page_text(tmp_path / "runs.db", "labelled"), encoding="utf-8")
    opened = look(file)
    head = read(file).data["checked"]["hash"]
    assert not re.search(f"INC-4711|{head[:16]}", opened.page.inner_text("header"))
    opened.page.click("button.details")
    said = opened.page.inner_text("header")
    assert "INC-4711" in said
    assert head in said
    opened.page.click("button.details")
    assert "INC-4711" not in opened.page.inner_text("header")


def test_the_line_counts_every_call(imported: Path) -> None:
    """What the line of the header counts are the calls that the page has, by their tools, and those that
    failed.
    """
    data = read(imported).data
    calls = [call for turn in data["turns"] for call in turn["calls"]]
    turns, *others = data["figures"]["did"].split(", ")
    tools = [each for each in others if each.split()[1] not in ("failed", "refused", "without")]
    failed = next(each for each in others if each.endswith(" failed"))
    assert f"{len(data['turns'])} turns" == turns
    assert len(calls) == sum(int(each.split()[0]) for each in tools)
    assert f"{sum(call['failed'] is True for call in calls)} failed" == failed
