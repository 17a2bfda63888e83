"""The report in a real browser, opened from disk with no network: what a reader does, and what an attacker
hopes for.
"""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.report.conftest import MARKUP, Opened, apart, page_text
from console.report.test_page_rows import GREENS
from console.test_forged import forged, numbers_grown, waiting_for_ever
from console.test_listings import tamper
from refold.console import descriptions as screening
from refold.store.protocol import Record
from support.pages import edited, read

PageOf = Callable[..., Path]
Look = Callable[..., Opened]
Keep = Callable[[Any, str], None]


def loaded(opened: Opened) -> list[str]:
    """What the page said or asked for, beside itself."""
    return [each for each in opened.said if not each.startswith("file://")]


def selected(opened: Opened) -> tuple[str, str]:
    """The number of the selected event in the list and in the inspector."""
    return (
        opened.page.get_attribute(".row.selected", "data-seq"),
        opened.page.inner_text(".inspector h2").split()[0],
    )


def listed(opened: Opened) -> list[int]:
    return [int(row.get_attribute("data-seq")) for row in opened.page.query_selector_all(".row")]


def test_it_opens_from_disk_and_asks_nobody(ordinary: Path, look: Look, keep: Keep) -> None:
    """The page shows the run, has checked its chain, and neither reached out nor complained."""
    opened = look(ordinary)
    header = opened.page.query_selector("header")
    assert ("intact", "agrees") == (header.get_attribute("data-chain"), header.get_attribute("data-audit"))
    said = opened.page.inner_text("header")
    assert "COMPLETED" in said
    assert "Look at everything." in said
    assert opened.page.query_selector(".strip canvas")
    assert [] == loaded(opened)
    keep(opened.page, "ordinary")


def test_it_is_readable_in_the_dark(ordinary: Path, look: Look, keep: Keep) -> None:
    """Whoever's machine is dark gets a dark page, with the same things in it."""
    opened = look(ordinary, "#e4/why", color_scheme="dark")
    ground = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert all(int(part) < 60 for part in re.findall(r"\d+", ground))
    keep(opened.page, "dark")


def test_a_filter_leaves_what_fits(ordinary: Path, look: Look) -> None:
    """What is typed into the box is what `grep` means by it; half a filter is said, and changes nothing."""
    opened = look(ordinary)
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("type:tool error:true")
    opened.page.wait_for_selector(".counted:has-text('1 of')")
    (row,) = opened.page.query_selector_all(".row")
    assert "raised" in row.inner_text()
    opened.page.fill(".filter", "type:tool error:tru")
    assert "error is true or false (at character 17)" in opened.page.inner_text(".problem")
    assert 1 == len(opened.page.query_selector_all(".row"))
    opened.page.press(".filter", "Escape")
    assert "" == opened.page.input_value(".filter")
    assert len(opened.page.query_selector_all(".row")) > 10


def test_the_keys_step_through_it(ordinary: Path, look: Look) -> None:
    """j and k step, G and g go to the ends, n to the next turn, e to the next mark, b to the cause, t turns
    the tabs.
    """
    opened = look(ordinary)
    keys = opened.page.keyboard
    opened.page.click("[data-mode=all]")
    keys.press("g")
    assert ("1", "e1") == selected(opened)
    for key, seq in [("j", 2), ("j", 3), ("k", 2), ("n", 8), ("p", 2), ("G", None), ("g", 1)]:
        keys.press(key)
        assert seq is None or (str(seq), f"e{seq}") == selected(opened), key
    keys.press("e")
    error = selected(opened)[1]
    assert "error" in opened.page.get_attribute(".row.selected", "class")
    keys.press("j")
    assert error != selected(opened)[1]
    for tab in ("state", "seen", "why", "raw", "event"):
        keys.press("t")
        assert tab == opened.page.get_attribute(".tabs .on", "data-tab")
    keys.press("?")
    assert "next, previous event" in opened.page.inner_text(".help")
    assert "Apache License" in opened.page.inner_text(".help")
    keys.press("Escape")
    assert opened.page.query_selector(".help") is None


def test_an_address_leads_to_an_event(ordinary: Path, look: Look) -> None:
    """`#e8/why` opens there, a link goes on, stepping changes the address, and Back comes back."""
    opened = look(ordinary, "#e8/why")
    assert ("8", "e8") == selected(opened)
    assert "why" == opened.page.get_attribute(".tabs .on", "data-tab")
    opened.page.click(".inspector .body a[href='#e6']")
    assert "e6" == selected(opened)[1]
    opened.page.keyboard.press("j")
    opened.page.wait_for_url("**#e7/why")
    opened.page.evaluate("location.hash = '#e3'")
    opened.page.wait_for_selector(".inspector h2:has-text('e3 ')")
    opened.page.go_back()
    opened.page.wait_for_selector(".inspector h2:has-text('e7 ')")


def test_an_address_that_a_list_hides_is_shown_all_the_same(ordinary: Path, look: Look) -> None:
    """A decision that the compact list leaves out can be linked to: the list shows everything then."""
    opened = look(ordinary, "#e2/seen")
    assert ("2", "e2") == selected(opened)


WITHIN = """async () => {
    for (let frame = 0; frame < 4; frame++) await new Promise(requestAnimationFrame);
    const row = document.querySelector(".row.selected")?.getBoundingClientRect();
    const list = document.querySelector(".list").getBoundingClientRect();
    return row && list.top <= row.top + 1 && row.bottom <= list.bottom + 1;
}"""


def test_what_is_selected_can_be_seen(ordinary: Path, look: Look) -> None:
    """Wherever an address or a key leads, the row is within the list, not above or below what is shown of
    it.
    """
    last = len(read(ordinary).data["events"])
    opened = look(ordinary, f"#e{last}")
    assert opened.page.evaluate(WITHIN)
    for key in ("g", "G", "k", "m", "m", "p"):
        opened.page.keyboard.press(key)
        assert opened.page.evaluate(WITHIN), key


def test_an_address_is_seen_once_the_timeline_is_drawn(ordinary: Path, look: Look) -> None:
    """The list shrinks while the page is drawn: a row that was in sight before, near the end of it, is
    still.
    """
    for height in range(600, 1000, 60):
        opened = look(ordinary, "#e21/seen", viewport={"width": 1400, "height": height})
        opened.page.wait_for_selector(".spans")
        assert opened.page.evaluate(WITHIN), height


def signs(opened: Opened) -> list[str]:
    """What is said of each message of a comparison: that it came, went, or changed."""
    return [each.inner_text() for each in opened.page.query_selector_all(".message .sign")]


def test_two_views_are_compared(ordinary: Path, look: Look, keep: Keep) -> None:
    """What came, what went and what stayed between two requests is told, against any other turn."""
    data = read(ordinary).data
    added = {call["seq"]: {place for *_, new in call["splices"] for place in new} for call in data["calls"]}
    shorter = next(
        seq for seq, places in added.items() if any(data["shown"][place].get("cut") for place in places)
    )
    opened = look(ordinary, f"#e{shorter}/seen")
    assert {"+", "~"} <= set(signs(opened))
    assert "shortened" in opened.page.inner_text(".message.changed")
    last = data["calls"][-1]["seq"]
    opened = look(ordinary, f"#e{last}/seen")
    assert "in both" in opened.page.inner_text(".inspector .body")
    near = len(signs(opened))
    keep(opened.page, "seen")
    opened.page.fill("[name=against]", "1")
    opened.page.press("[name=against]", "Tab")
    opened.page.wait_for_selector(".choice a:has-text('e2')")
    assert len(signs(opened)) > near
    opened.page.click("button:has-text('all of it')")
    assert "Look at everything." in opened.page.inner_text(".inspector .body")


def test_the_state_says_what_changed(ordinary: Path, look: Look) -> None:
    """Of each changed field the page has the value before and after, and it has the other fields besides."""
    opened = look(ordinary, "#e8/state")
    rows = [row.inner_text().split("\t") for row in opened.page.query_selector_all("table.diff tbody tr")]
    told = {name.strip(): (before.strip(), after.strip()) for name, before, after in rows}
    assert ("1", "2") == told["spent.steps"]
    assert ("\u2013", "8") == told["request.seq"]
    body = opened.page.inner_text(".inspector .body")
    assert "setup.model" in body
    assert "as in e1" in body


def test_a_tampered_event_is_marked(store: Path, page_of: PageOf, look: Look, keep: Keep) -> None:
    """Of a log that somebody edited the first broken event is red, everything behind it is not believed."""
    tamper(
        store,
        "UPDATE event SET body = replace(body, '\"duration\"', '\"Duration\"') WHERE key & 4294967295 = 6",
    )
    tamper(store, "UPDATE event SET content = replace(content, 'a.md', 'z.md') WHERE key & 4294967295 = 6")
    opened = look(page_of("ordinary", 3), "#e6")
    opened.page.click("[data-mode=all]")
    assert "broken" == opened.page.get_attribute("header", "data-chain")
    assert "at event 6" in opened.page.inner_text("header")
    classes = {seq: opened.page.get_attribute(f".row[data-seq='{seq}']", "class") for seq in (5, 6, 7)}
    marks = {seq: {"broken", "behind"} & set(each.split()) for seq, each in classes.items()}
    assert {5: set(), 6: {"broken"}, 7: {"behind"}} == marks
    assert "Tampered with" in opened.page.inner_text(".inspector .body")
    keep(opened.page, "tampered")


@pytest.mark.parametrize(
    ("name", "column", "made"),
    [
        pytest.param("events", 1, lambda value: str(int(value) + 1), id="the instant"),
        pytest.param("events", 2, lambda value: f"{value}x", id="the kind"),
        pytest.param("events", 11, lambda value: not value, id="that nothing of it was erased"),
        pytest.param("records", 0, lambda value: f"{value} ", id="the body"),
        pytest.param("records", 1, lambda value: value.replace("a.md", "b.md"), id="the content"),
        pytest.param("records", 2, lambda value: value[::-1], id="the salt"),
        pytest.param("records", 3, lambda value: value[::-1], id="the hash"),
        pytest.param("records", 4, lambda value: value[::-1], id="the digest"),
    ],
)
def test_an_edited_page_shows_it(
    name: str, column: int, made: Callable[[Any], Any], ordinary: Path, tmp_path: Path, look: Look
) -> None:
    """Whoever edits the page instead of the log is found out by the page: it checks every byte that was
    hashed.
    """

    def change(values: list[Any]) -> list[Any]:
        row = values[5] + [False] * (column + 1 - len(values[5]))
        assert row[column] != made(row[column])
        return [*values[:5], [*row[:column], made(row[column]), *row[column + 1 :]], *values[6:]]

    opened = look(edited(ordinary, tmp_path / "edited.html", **{name: change}))
    assert "broken" == opened.page.get_attribute("header", "data-chain")
    assert "at event 6" in opened.page.inner_text("header")


def test_a_page_that_was_cut_shows_it(ordinary: Path, tmp_path: Path, look: Look) -> None:
    """A page whose last events somebody took out is not whole, though every hash that is left is right."""
    cut = {name: lambda values: values[:-1] for name in ("events", "records", "derived")}
    opened = look(edited(ordinary, tmp_path / "cut.html", **cut))
    assert "broken" == opened.page.get_attribute("header", "data-chain")
    assert "missing at its end" in opened.page.inner_text("header")


def broken_part(file: Path, to: Path, name: str) -> Path:
    """The page with the first letters of a part turned round: packed bytes that are none."""
    text = file.read_text(encoding="utf-8")
    at = text.index(f'id="{name}-0">') + len(f'id="{name}-0">')
    to.write_text(f"{text[:at]}{text[at : at + 40][::-1]}{text[at + 40 :]}", encoding="utf-8")
    return to


def test_a_part_that_cannot_be_read_is_not_believed(ordinary: Path, tmp_path: Path, look: Look) -> None:
    """Where bytes of the page are lost it says so, in the list's stead or at the events whose words are gone,
    in every tab.
    """
    opened = look(broken_part(ordinary, tmp_path / "records.html", "records"))
    assert "broken" == opened.page.get_attribute("header", "data-chain")
    assert "its record is not readable in this page" in opened.page.inner_text("header")
    assert [] == opened.page.evaluate(GREENS)
    for name in ("derived", "shown"):
        opened = look(broken_part(ordinary, tmp_path / f"{name}.html", name))
        for key in "12345":
            opened.page.keyboard.press(key)
        assert [] == loaded(opened), name


def test_a_page_without_its_list_says_so(ordinary: Path, tmp_path: Path, browser: Any) -> None:
    """A page whose rows cannot be read shows why, and nothing that looks like a run."""
    page = browser.new_page()
    page.goto(broken_part(ordinary, tmp_path / "events.html", "events").as_uri())
    assert (
        "edited after it was made: part events-0. This page is damaged and cannot be read"
        in page.inner_text(".alarm")
    )
    assert page.query_selector("header") is None
    page.close()


def test_a_hostile_transcript_does_nothing(hostile: Path, look: Look, keep: Keep) -> None:
    """In every list and every tab of an attack nothing runs, nothing is loaded, and every mark can be
    seen.
    """
    opened = look(hostile)
    watch = "document.addEventListener('securitypolicyviolation', e => console.error(e.violatedDirective))"
    opened.page.evaluate(watch)
    shown = ""
    for mode in ("raw", "conversation", "turns", "all"):
        opened.page.click(f"[data-mode={mode}]")
        shown += opened.page.inner_text(".list")
    count = len(read(hostile).data["events"])
    for seq in range(1, count + 1):
        opened.page.evaluate(f"location.hash = '#e{seq}'")
        opened.page.wait_for_selector(f".inspector h2:has-text('e{seq} ')")
        for key in "12345":
            opened.page.keyboard.press(key)
            shown += opened.page.inner_text(".inspector")
    shown += opened.page.inner_text("header")
    keep(opened.page, "hostile")
    assert [] == loaded(opened)
    assert "owned" not in opened.page.title()
    assert 0 == opened.page.evaluate("document.querySelectorAll('img, iframe, object, svg').length")
    assert "<img src=x" in shown
    assert [] == [letter for letter in set(shown) if screening.block(letter) != letter]
    assert "\\u202e" in shown
    assert MARKUP.partition("\x1b")[0].strip() in shown


@pytest.mark.parametrize("edit", [numbers_grown, waiting_for_ever], ids=["all numbers", "a wait"])
def test_numbers_without_end_have_a_page(
    edit: Callable[[list[Record]], list[Record]], store: Path, tmp_path: Path, look: Look
) -> None:
    """A log whose numbers are as long as they can be is shown, in every tab, and the page does not
    stumble.
    """
    apart(lambda: forged(store, "ordinary", tmp_path / "forged.db", edit))
    file = tmp_path / "forged.html"
    file.write_text(page_text(tmp_path / "forged.db", "ordinary"), encoding="utf-8")
    opened = look(file)
    for _ in range(min(10, len(read(file).data["events"]))):
        opened.page.keyboard.press("j")
        for key in "12345":
            opened.page.keyboard.press(key)
    assert [] == loaded(opened)
    # The numbers are not those of its words, and that is told.
    assert "damaged" == opened.page.get_attribute("header", "data-chain")


def test_the_page_hides_what_the_terminal_hides(ordinary: Path, look: Look) -> None:
    """Every character there is is shown as the command line shows it: the two know the same marks."""
    opened = look(ordinary)
    found = opened.page.evaluate("""() => {
        const changed = {};
        for (let code = 0; code < 0x110000; code++) {
            const letter = String.fromCodePoint(code);
            const shown = refold.plain(letter);
            if (shown !== letter) changed[code] = shown;
        }
        return changed;
    }""")
    shown = ((code, screening.line(chr(code))) for code in range(0x110000))
    assert {str(code): text for code, text in shown if text != chr(code)} == found


def test_its_sums_are_those_of_the_standard_library(ordinary: Path, look: Look) -> None:
    """SHA-256 in the page is SHA-256, for every length around the ends of its blocks."""
    opened = look(ordinary)
    lengths = [*range(130), 1000, 4096]
    found = opened.page.evaluate(
        """lengths => lengths.map(length => {
            const bytes = Uint8Array.from({length}, (_, place) => (place * 7 + length) & 255);
            return Array.from(refold.sha256(bytes), byte => byte.toString(16).padStart(2, "0")).join("");
        })""",
        lengths,
    )
    data = [bytes((place * 7 + length) & 255 for place in range(length)) for length in lengths]
    assert [hashlib.sha256(each).hexdigest() for each in data] == found
