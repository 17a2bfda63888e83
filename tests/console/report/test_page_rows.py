"""The page's rows and header as a reader meets them, on a desk and on a telephone: what each says, and what
it never says.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from bench.big_run import write
from bench.workload import RUN
from console.report.conftest import Opened, apart, page_text
from console.test_listings import tamper
from support.pages import read

pytestmark = pytest.mark.slow  # a browser of its own; the quick tier looks at pages in test_report_browser

PageOf = Callable[..., Path]
Look = Callable[..., Opened]
Keep = Callable[[Any, str], None]

NARROW = {"width": 390, "height": 844}

# Every colour on the page that is more green than anything else.
GREENS = """() => [...document.querySelectorAll("body, body *")].flatMap(node => {
    const style = getComputedStyle(node);
    return [style.color, style.backgroundColor, style.borderLeftColor].filter(colour => {
        const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number);
        return a > 0 && g > r + 20 && g > b + 20;
    }).map(colour => `${node.className} ${colour}`);
})"""

DRAWN = "async () => { for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame); }"


def rows(opened: Opened, form: str) -> list[str]:
    """What the rows of a form say, white space made single."""
    return [" ".join(row.inner_text().split()) for row in opened.page.query_selector_all(f".row.{form}")]


def test_a_turn_has_its_calls_and_their_results(ordinary: Path, look: Look) -> None:
    """The list is a group a turn: its number and words, then each call with its argument, and how it ended in
    the same row.
    """
    opened = look(ordinary)
    numbers = [each.inner_text() for each in opened.page.query_selector_all(".row .number")]
    turns = read(ordinary).data["turns"]
    assert [*(str(turn["step"]) for turn in turns), "end"] == numbers
    assert 1 == sum("I look, and act." in each for each in rows(opened, "turn"))
    calls = rows(opened, "call")
    assert 1 == sum(
        "look b.md ok" in each for each in calls
    )  # beside another call, and either may be done first
    assert [each for each in calls if " raised " in each] == [each for each in calls if " act " in each]
    assert rows(opened, "end") == [each for each in rows(opened, "end") if "end COMPLETED: " in each]
    said = read(ordinary).data["figures"]["did"]
    assert said in opened.page.inner_text("header")
    assert re.fullmatch(r"\d+ turns, 5 look, 1 act, 1 failed", said)


FIGURES = """() => [...document.querySelectorAll(".row")].flatMap(row => [...row.querySelectorAll(".figure")].filter(node => node.innerText).map(node => {
    const [box, style] = [node.getBoundingClientRect(), getComputedStyle(node)];
    return {name: node.classList[1], right: Math.round(box.right), text: node.innerText, align: style.textAlign, colour: style.color,
        ink: getComputedStyle(row).color};
}))"""


def test_figures_stand_in_columns(tmp_path: Path, look: Look) -> None:
    """Tokens, cost and time end at the same place in every row, and are paler than what is to be read
    first.
    """
    apart(lambda: anyio.run(write, tmp_path / "runs.db", 40))
    (tmp_path / "priced.html").write_text(page_text(tmp_path / "runs.db", RUN), encoding="utf-8")
    opened = look(tmp_path / "priced.html")
    found = opened.page.evaluate(FIGURES)
    columns = {
        each["name"]: {other["right"] for other in found if other["name"] == each["name"]} for each in found
    }
    assert {"tokens", "cost", "time"} <= {*columns}
    assert {1} == {len(rights) for rights in columns.values()}
    assert max(columns["tokens"]) < max(columns["cost"]) < max(columns["time"])
    assert all("right" == each["align"] and each["colour"] != each["ink"] for each in found)


def test_both_ends_of_an_argument_are_seen(ordinary: Path, look: Look) -> None:
    """Of an argument that has no room the middle is missing, not the end, in which a path has its file."""
    opened = look(ordinary)
    tail = opened.page.query_selector(".row.call .tail")
    assert tail.inner_text().endswith("/a.md")
    row, box = tail.query_selector("xpath=ancestor::a").bounding_box(), tail.bounding_box()
    assert box["x"] + box["width"] <= row["x"] + row["width"]


def test_a_call_without_a_result_is_not_called_ok(ordinary: Path, page_of: PageOf, look: Look) -> None:
    """Where nothing came back the row says so, with a question mark, and the page knows no good end."""
    kinds = [event[2] for event in read(ordinary).data["events"]]
    opened = look(page_of(f"ordinary@e{kinds.index('tool_returned')}"))
    assert "? open" in rows(opened, "call")[0]
    assert "the log continues" in rows(opened, "end")[0]
    assert "1 without a result" in opened.page.inner_text(".did")


def test_what_a_source_says_of_its_end_is_no_verdict_of_ours(imported: Path, look: Look, keep: Keep) -> None:
    """An import's last row is its source's sentence; that its decisions agree proves nothing, and is not
    green.
    """
    opened = look(imported)
    assert "derived at import" == opened.page.get_attribute("header", "data-audit")
    assert "good" not in opened.page.get_attribute(".chip.audit", "class").split()
    assert "good" not in opened.page.get_attribute(".state", "class").split()
    about = read(imported).data["about"]
    opened.page.keyboard.press("G")
    opened.page.wait_for_selector(".row.end")
    assert about["source_says"]
    assert about["source_says"] in rows(opened, "end")[0]
    keep(opened.page, "imported")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_damaged_run_has_no_green(
    scheme: str, store: Path, page_of: PageOf, ordinary: Path, look: Look, keep: Keep
) -> None:
    """A bar across the top says that the log is damaged, and nothing on the page looks well."""
    assert look(ordinary, color_scheme=scheme).page.evaluate(GREENS)
    tamper(store, "UPDATE event SET content = replace(content, 'a.md', 'z.md') WHERE key & 4294967295 = 6")
    opened = look(page_of("ordinary", 3), color_scheme=scheme)
    bar = opened.page.query_selector(".alarm").bounding_box()
    assert (0, 0, 1440) == (bar["x"], bar["y"], bar["width"])
    assert "at event 6" in opened.page.inner_text(".alarm")
    marks = [each.inner_text() for each in opened.page.query_selector_all(".row:is(.broken, .behind) .mark")]
    assert "ok" not in marks
    assert "6" == opened.page.get_attribute(".row.selected", "data-seq")
    assert "unknown after the damage" in opened.page.inner_text(".outcome .changed")
    for tab in "12345":
        opened.page.keyboard.press(tab)
        opened.page.evaluate(DRAWN)
        assert [] == opened.page.evaluate(GREENS)
    keep(opened.page, f"damaged-{scheme}")


def test_errors_and_prunes_are_a_press_away(ordinary: Path, look: Look) -> None:
    """The buttons say how many there are of each, and lead from one to the next and back, as the keys do."""
    opened = look(ordinary)
    tags = {"errors": "error", "history": "prune"}
    for kind, tag in tags.items():
        events = opened.page.evaluate(
            f"refold.model.events.filter(event => event.tag === '{tag}').map(event => event.seq)"
        )
        assert f"{kind} {len(events)}" == opened.page.inner_text(f".step.{kind} .many")
        opened.page.keyboard.press("g")
        opened.page.evaluate(DRAWN)
        visited = list[int]()
        while opened.page.is_enabled(f"[aria-label='next of {kind}']"):
            opened.page.click(f"[aria-label='next of {kind}']")
            opened.page.evaluate(DRAWN)
            visited.append(int(opened.page.inner_text(".inspector h2").split()[0][1:]))
        assert events == visited
        assert opened.page.is_enabled(f"[aria-label='previous of {kind}']") == (len(events) > 1)
    assert "guards 0" == opened.page.inner_text(".step.guards")


def test_a_telephone_shows_it_too(ordinary: Path, look: Look, keep: Keep) -> None:
    """At 390 pixels nothing is wider than the screen, what was said stands below, and an event comes up as a
    sheet.
    """
    opened = look(ordinary, viewport=NARROW)
    page = opened.page
    assert 390 == page.evaluate("document.documentElement.scrollWidth")
    assert page.query_selector(".list").bounding_box()["y"] < 844 / 2
    name, argument = (page.query_selector(f".row.call {part}").bounding_box() for part in (".tool", ".said"))
    assert argument["y"] >= name["y"] + name["height"] - 2
    keep(page, "telephone")
    assert not page.is_visible(".inspector")
    page.click(".row.call >> nth=1")
    page.wait_for_selector(".inspector.up >> visible=true")
    assert page.inner_text(".inspector h2").startswith(f"e{page.get_attribute('.row.selected', 'data-seq')} ")
    keep(page, "sheet")
    page.click(".inspector .close")
    page.wait_for_selector(".inspector", state="hidden")


def test_nothing_is_cut_off_on_a_telephone(imported: Path, look: Look) -> None:
    """Whatever event comes up as a sheet, in each of its tabs nothing reaches out of it to the side but what
    scrolls by itself.
    """
    opened = look(imported, viewport=NARROW)
    seqs = opened.page.evaluate(
        "refold.model.turns.flatMap(turn => turn.calls.map(call => call.seq)).filter(Boolean)"
    )
    assert len(seqs) > 3
    for seq in seqs[:12]:
        for tab in ("event", "state", "seen", "why", "raw"):
            opened.page.evaluate(f"location.hash = '#e{seq}/{tab}'")
            opened.page.wait_for_selector(
                f".inspector:has(h2:has-text('e{seq} ')) [data-tab={tab}].on", state="attached"
            )
            wide = opened.page.evaluate(
                "(({scrollWidth, clientWidth}) => [scrollWidth, clientWidth])(document.querySelector('.inspector .body'))"
            )
            assert wide[0] <= wide[1], (seq, tab)
