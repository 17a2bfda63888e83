"""Pages of all runs of a store, with an index over them; and what a page is called where nobody says."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from console.conftest import Refold, record
from console.report.conftest import Opened, apart
from console.report.test_report_page import hostile_marks
from console.test_listings import tamper
from refold.console.report.page import IndexEntry, index, page_name
from refold.engine import say
from refold.reducers.events import Parent
from refold.replay.summary import RunSummary
from refold.replay.timeline import Effects
from refold.store import SqliteStore
from support.families import CHILD, PARENT, boss, hand_on, writer
from support.pages import Read, read

Look = Callable[..., Opened]
Keep = Callable[[Any, str], None]


@pytest.fixture
def refold(refold: Refold) -> Refold:
    """The command, which runs an event loop of its own beside a browser's."""
    return lambda *words: apart(lambda: refold(*words))


def table(file: Path) -> list[tuple[str, list[str]]]:
    """The rows of an index: what each says, and where it leads."""
    text = file.read_text(encoding="utf-8")
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", text.partition("<tbody>")[2], re.DOTALL)
    return [(re.sub(r"<[^>]+>", " ", row), re.findall(r'href="([^"]*)"', row)) for row in rows]


def test_the_index_names_what_was_changed(tmp_path: Path) -> None:
    """A row has the verbs of its run's changes, so that a search for one finds the run; a run without calls
    has none.
    """
    changes = Effects(calls=3, made=(("git push", 1, 5), ("> a", 2, 6)), harmful=1)
    runs = {"pushed": changes, "idle": Effects(), "unread": None}
    entries = [
        IndexEntry(about=RunSummary(run=run, agent_state="COMPLETED"), changes=made)
        for run, made in runs.items()
    ]
    file = tmp_path / "index.html"
    file.write_text(index(entries), encoding="utf-8")
    rows = [row for row, _ in table(file)]
    assert [True, False, False] == [
        "changed 1 git push, 1 file written by redirection" in row for row in rows
    ]
    assert [True, False, False] == ["changed" in row for row in rows]


def test_each_run_has_its_page_and_a_row(refold: Refold, store: Path, tmp_path: Path) -> None:
    """A folder has a page for each run of a store, whatever the run is called, and an index that leads to all
    of them.
    """
    apart(lambda: record(store, [say("Well.")], "<b>bold</b>", run_id="../odd<b>/Run"))
    folder = tmp_path / "pages"
    ran = refold("report", "--all", "--out", folder, "--store", store)
    assert 0 == ran.code, ran.err
    found = table(folder / "index.html")
    linked = {each for _, links in found for each in links}
    assert {path.name for path in folder.iterdir()} == {*linked, "index.html"}
    assert {"ordinary", "hostile", "../odd<b>/Run"} == {
        read(folder / name).data["about"]["run"] for name in linked
    }
    text = (folder / "index.html").read_text(encoding="utf-8")
    assert {
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "h1",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "a",
        "code",
        "p",
        "form",
        "input",
        "select",
        "option",
        "label",
        "span",
        "button",
        "script",
    } >= {tag for tag, _ in Read(text).tags if tag[0] != "/"}
    assert "" == hostile_marks(text)
    assert "default-src 'none'" in text


def test_what_is_damaged_comes_first(
    refold: Refold, store: Path, tmp_path: Path, look: Look, keep: Keep
) -> None:
    """An index says above all how many runs cannot be believed, and begins with them; so does `ls`, and so
    does `show`.
    """
    tamper(store, "UPDATE event SET body = '{}' WHERE key & 4294967295 = 9 AND key < 8589934592")
    folder = tmp_path / "pages"
    ran = refold("report", "--all", "--out", folder, "--store", store)
    assert 3 == ran.code
    (said, _), *others = table(folder / "index.html")
    assert "damaged" in said
    assert not [other for other, _ in others if "damaged" in other]
    assert "1 run damaged or not fully readable" in (folder / "index.html").read_text(encoding="utf-8")
    (run, *_) = re.findall("ordinary|hostile", said)
    assert refold("ls", "--store", store).err.startswith(f"run {run}: DAMAGED: run {run} event 9: ")
    assert refold("show", run, "--store", store).out.startswith("damaged ")


def test_a_folder_is_not_written_over_unasked(refold: Refold, store: Path, tmp_path: Path) -> None:
    """Where an index stands already nothing is written without `--force`."""
    (tmp_path / "index.html").write_text("mine")
    ran = refold("report", "--all", "--out", tmp_path, "--store", store)
    assert (2, "mine") == (ran.code, (tmp_path / "index.html").read_text())
    told = json.loads(
        refold("-o", "json", "report", "--all", "--out", tmp_path, "--force", "--store", store).out
    )
    assert {"ordinary", "hostile"} == {page["run"] for page in told["pages"]}
    assert {} == told["unwritten"]


def test_a_page_is_called_after_its_run(
    refold: Refold, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a name the page goes where the reader is, under the id of its run; without a run nothing is
    meant.
    """
    monkeypatch.chdir(tmp_path)
    assert 0 == refold("report", "ordinary@e9", "--store", store).code
    assert 9 == len(read(tmp_path / "ordinary.html").data["events"])
    assert 2 == refold("report", "--store", store).code
    assert 2 == refold("report", "ordinary", "--all", "--store", store).code


def test_no_two_runs_have_one_page() -> None:
    """Names differ where ids do, also on a file system that takes capitals for small letters; none leads out
    of its folder.
    """
    runs = ["a", "A", "a/b", "a-b", "../a", ".", "", "a" * 300, "a" * 301, "con\n", "\ud800", "index"]
    names = {page_name(run).lower() for run in runs}
    assert len(runs) == len(names)
    assert "index.html" not in names
    assert all(re.fullmatch(r"[a-z0-9_-]+\.html", name) for name in names)


@pytest.fixture
def family(refold: Refold, tmp_path: Path) -> Path:
    """The folder of a store in which a run began another."""
    store, folder = tmp_path / "family.db", tmp_path / "pages"

    async def driven() -> None:
        async with await SqliteStore.open(store) as opened:
            script, scribe = [hand_on(), say("Done.")], writer(say("Written."))
            await boss(*script, to=[scribe], store=opened).run("Go.", run_id=PARENT)

    apart(lambda: anyio.run(driven))
    assert 0 == refold("report", "--all", "--out", folder, "--store", store).code
    return folder


def test_runs_of_a_family_lead_to_each_other(family: Path) -> None:
    """The page of a run knows the pages of the runs that its calls began and of the one that began it."""
    parent, child = (read(family / page_name(run)).data for run in (PARENT, CHILD))
    assert {CHILD: page_name(CHILD)} == parent["pages"]
    assert {PARENT: page_name(PARENT)} == child["pages"]


def test_a_child_stands_below_the_call_that_began_it(family: Path, look: Look) -> None:
    """In the list a call is followed by the run that it began: its task, how it ended, and a press leads to
    its page and back.
    """
    opened = look(family / page_name(PARENT))
    forms = [each.get_attribute("class").split()[1] for each in opened.page.query_selector_all(".row")]
    assert 1 == forms.count("child")
    assert "call" == forms[forms.index("child") - 1]
    row = opened.page.query_selector(".row.child")
    assert re.search(r"child run\s+Write it\.\s+COMPLETED", row.inner_text())
    assert "child ended" not in opened.page.inner_text(".list")
    row.click()
    opened.page.wait_for_url(f"**/{page_name(CHILD)}")
    opened.page.wait_for_selector("[data-chain=intact]")
    opened.page.click("button.details")
    opened.page.click(".kin a")
    opened.page.wait_for_url(f"**/{page_name(PARENT)}")


def test_a_child_without_a_page_leads_to_its_call(family: Path, look: Look, refold: Refold) -> None:
    """Where no page of a child was written, its row leads to the end of the call, and nowhere else."""
    alone = family / "alone.html"
    assert 0 == refold("report", PARENT, "--out", alone, "--store", family.with_name("family.db")).code
    opened = look(alone)
    row = opened.page.query_selector(".row.child")
    assert f"#e{row.get_attribute('data-seq')}" == row.get_attribute("href")


def test_an_index_leads_to_each_page(family: Path, browser: Any) -> None:
    """In a browser an index has a row for each run, a child below what began it, and says what each did; on a
    telephone, too.
    """
    for width in (1400, 390):
        page = browser.new_page(viewport={"width": width, "height": 844})
        page.goto((family / "index.html").as_uri())
        rows = page.query_selector_all("tbody tr")
        assert [PARENT, CHILD] == [each.query_selector("code").inner_text() for each in rows]
        tasks = [each.query_selector("td:nth-child(2) a").bounding_box()["x"] for each in rows]
        assert tasks[0] < tasks[1]
        assert "2 turns, 1 transfer_to_writer" in rows[0].inner_text()
        assert width == page.evaluate("document.documentElement.scrollWidth")
        page.click("tbody a >> nth=0")
        page.wait_for_selector("[data-chain=intact]")
        assert "Go." in page.inner_text("header")
        page.close()


def test_runs_that_began_each_other_are_all_listed() -> None:
    """A log may claim any parent: each run has its row all the same, once, and what is damaged stands
    first.
    """

    def entry(run: str, parent: str, wrong: str = "") -> IndexEntry:
        return IndexEntry(about=RunSummary(run=run, parent=Parent(run=parent, call="c1")), wrong=wrong)

    entries = [
        entry("a", "b"),
        entry("b", "a"),
        entry("c", "none"),
        entry("d", "c", "broken"),
        entry("e", "c"),
    ]
    found = re.findall(r"<code>(.)</code>", index(entries))
    assert ["d", "c", "e"] == found[:3]
    assert ["a", "b", "c", "d", "e"] == sorted(found)
