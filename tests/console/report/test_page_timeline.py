"""The page's timeline: how large each request was, and when each call began and ended."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.conftest import record
from console.report.conftest import Opened, apart, page_text
from refold.engine import call, say
from support.pages import read

Look = Callable[..., Opened]
Keep = Callable[[Any, str], None]

# What the bars say of themselves under a pointer that goes over all of them.
TITLES = """() => {
    const canvas = document.querySelector(".spans");
    const { left, top, width, height } = canvas.getBoundingClientRect();
    const found = new Set();
    for (let y = 4; y < height - 20; y += 6)
        for (let x = 0; x < width; x += 2) {
            canvas.dispatchEvent(new MouseEvent("mousemove", { clientX: left + x, clientY: top + y, bubbles: true }));
            found.add(canvas.title);
        }
    return [...found].filter(Boolean);
}"""
# How many pixels of a canvas have nearly this colour.
COLOURED = """([selector, name]) => {
    const canvas = document.querySelector(selector);
    const probe = document.createElement("i");
    probe.style.color = `var(--${name})`;
    document.body.append(probe);
    const [r, g, b] = getComputedStyle(probe).color.match(/\\d+/g).map(Number);
    probe.remove();
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let count = 0;
    for (let i = 0; i < data.length; i += 4)
        if (data[i + 3] > 200 && Math.abs(data[i] - r) + Math.abs(data[i + 1] - g) + Math.abs(data[i + 2] - b) < 30) count++;
    return count;
}"""


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run whose requests come near a limit; beside it `none.html`, of the same run without
    one.
    """
    folder = tmp_path_factory.mktemp("limits")
    limit = {"type": "token", "measure": "estimate", "value": 120}

    def made(name: str, *limits: dict[str, Any]) -> None:
        lines = [call("look", path="a.md"), call("look", path="b.md"), say("Both are there.")]
        record(folder / "runs.db", lines, "Look.", run_id=name, policy={"limits": limits})
        (folder / f"{name}.html").write_text(page_text(folder / "runs.db", name), encoding="utf-8")

    apart(lambda: made("near", limit))
    apart(lambda: made("none"))
    return folder / "near.html"


def test_each_call_has_a_bar_on_the_axis_of_time(ordinary: Path, look: Look, keep: Keep) -> None:
    """The page opens on the axis of time, on which every answer and result is a bar with its duration; a
    press leads to its event.
    """
    opened = look(ordinary)
    box = opened.page.wait_for_selector(".spans").bounding_box()
    keep(opened.page, "time")
    turns = read(ordinary).data["turns"]
    ends = {turn["answer"] for turn in turns} | {call["seq"] for turn in turns for call in turn["calls"]}
    assert ends == set(opened.page.evaluate("refold.spansOf(refold.model).map(bar => bar.seq)"))
    told = {title.split()[0]: title for title in opened.page.evaluate(TITLES) if title.startswith("e")}
    names = {f"e{call['seq']}": f"{call['name']}, " for turn in turns for call in turn["calls"]}
    assert {*told} & {*names}
    assert all(names.get(seq, "model_responded, ") in title for seq, title in told.items())
    opened.page.mouse.click(box["x"] + 2, box["y"] + 8)
    opened.page.wait_for_function(
        "document.querySelector('.inspector h2').innerText.includes('model_responded')"
    )
    opened.page.click("[data-axis=events]")
    assert opened.page.wait_for_selector(".uplot canvas")


def test_the_contexts_maximum_is_told(ordinary: Path, look: Look) -> None:
    """The legend says the most tokens of any request, and the limit: one that is far above all requests is
    not drawn.
    """
    opened = look(ordinary)
    opened.page.click("[data-axis=events]")
    data = read(ordinary).data
    seqs = {call["seq"] for call in data["calls"]}
    most = max(event[9]["tokens"] for event in data["events"] if event[0] in seqs)
    legend = opened.page.inner_text(".legend")
    assert f"at most {most:,} tokens" in legend
    assert ("limit 4,000, far above" if 4000 > 3 * most else "limit 4,000") in legend


def test_a_near_limit_is_drawn(near: Path, look: Look) -> None:
    """The limit that requests come near is a line above them; without one there is none of its colour."""
    drawn = {}
    for name in ("near", "none"):
        opened = look(near.with_name(f"{name}.html"))
        opened.page.click("[data-axis=events]")
        opened.page.wait_for_selector(".uplot canvas")
        opened.page.wait_for_timeout(100)
        drawn[name] = opened.page.evaluate(COLOURED, [".uplot canvas", "error"])
        assert ("limit 120" in opened.page.inner_text(".legend")) == (name == "near")
    assert drawn["near"] > 50
    assert 0 == drawn["none"]


def test_why_two_counts_differ_is_said(imported: Path, ordinary: Path, look: Look) -> None:
    """Where a provider counted, a press says why that is not the estimate, and what an import adds to it;
    else nothing is asked.
    """
    opened = look(imported)
    opened.page.click("[data-axis=events]")
    assert "tokenizer" not in opened.page.inner_text(".strip")
    opened.page.click("text=why they differ")
    said = opened.page.inner_text(".strip .why")
    assert "its own tokenizer" in said
    assert "what a transcript seldom has" in said
    opened.page.click("text=why they differ")
    assert not opened.page.query_selector(".strip .why")
    counted = any(turn["usage"].get("input") for turn in read(ordinary).data["turns"])
    opened = look(ordinary)
    opened.page.click("[data-axis=events]")
    assert counted == ("why they differ" in opened.page.inner_text(".legend"))
