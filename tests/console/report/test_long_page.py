"""The page of a long run: it comes in parts, memory follows what is looked at, and scrolling stays smooth."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from bench.big_run import write
from bench.workload import RUN
from console.report.conftest import Opened, apart
from support.pages import read

Look = Callable[..., Opened]
Keep = Callable[[Any, str], None]
pytestmark = pytest.mark.slow

# A headless browser without a graphics card, on a busy machine: what a person has is several times better.
FRAME = 250  # milliseconds that at most one frame in twenty may take
KEPT = 2 << 20  # characters of a list that the page keeps at a time
MEGABYTE = 10**6

# Begins a program, and says its exit code and its peak. A child's peak begins with the memory of whoever
# begot it, which of these tests is hundreds of megabytes, as many as there were tests before; of this it is
# some ten.
MEASURE = """
import os, sys
_, status, used = os.wait4(os.spawnv(os.P_NOWAIT, sys.argv[1], sys.argv[1:]), 0)
print(os.waitstatus_to_exitcode(status), used.ru_maxrss)
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of more than ten thousand events, 31 MB."""
    store = tmp_path_factory.mktemp("long") / "runs.db"
    apart(lambda: anyio.run(write, store, 4000))
    return store


@pytest.fixture(scope="module")
def peak(store: Path) -> float:
    """How much memory making its page took, in megabytes; the page is `long.html` beside the store."""
    ballast = b"x" * (300 * MEGABYTE)  # what is held here is none of its
    words = [
        "-m",
        "refold.console",
        "report",
        RUN,
        "--out",
        str(store.with_name("long.html")),
        "--store",
        str(store),
    ]
    asked = [sys.executable, "-S", "-c", MEASURE, sys.executable, *words]
    told = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    del ballast
    status, most = map(int, told.split()[-2:])
    assert 0 == status
    return most * (1 if sys.platform == "darwin" else 1024) / MEGABYTE


@pytest.fixture(scope="module")
def long(store: Path, peak: float) -> Path:
    """Its page."""
    assert peak
    return store.with_name("long.html")


def heap(opened: Opened) -> float:
    """How much memory the scripts of a page hold, in megabytes, once what nobody needs is gone."""
    devtools = opened.page.context.new_cdp_session(opened.page)
    devtools.send("Performance.enable")
    devtools.send("HeapProfiler.collectGarbage")
    told = devtools.send("Performance.getMetrics")["metrics"]
    return float(next(each["value"] for each in told if each["name"] == "JSHeapUsedSize")) / MEGABYTE


def held(opened: Opened) -> list[int]:
    """How many characters of each list that is read in parts are kept now."""
    return list(opened.page.evaluate("['records', 'derived', 'shown'].map(name => refold.model[name].held)"))


def test_its_maker_needs_little_memory(store: Path, peak: float) -> None:
    """Of a log of 31 MB a page is made in less than 175 MB, whatever the tests hold: three bytes for one,
    beside Python and its modules.
    """
    assert peak < 80 + 3 * store.stat().st_size / MEGABYTE


def test_memory_follows_what_is_looked_at(long: Path, look: Look) -> None:
    """After a look at all that was said, at every tab of the last event, no more is kept of the texts than
    before.
    """
    data = read(long).data
    words = sum(len(record[0]) + len(record[1] or "") for record in data["records"]) / MEGABYTE
    opened = look(long, "#e1")
    first = heap(opened)
    assert first < words
    opened.page.fill(".filter", "text:nobody-said-this")
    total = f"{len(data['events']):,}"
    opened.page.wait_for_selector(f".counted:text-is('0 of {total} events')")
    opened.page.press(".filter", "Escape")
    opened.page.keyboard.press("G")
    for key in "23451":
        opened.page.keyboard.press(key)
    assert max(held(opened)) <= KEPT
    assert heap(opened) < first + words / 2


def test_a_search_reads_every_part(long: Path, look: Look) -> None:
    """A word is found wherever it was said, in the first part and in the last, and nowhere else."""
    data = read(long).data
    assert len(data["records"]) == len(data["events"])
    said = [record[1] or "" for record in data["records"]]
    numbers = re.findall(r'"\[(\d+)\] ', "".join(said))
    opened = look(long)
    for word in (f"[{numbers[0]}] ", f"[{numbers[-1]}] "):
        wanted = sum(word in each for each in said)
        opened.page.fill(".filter", f'text:"{word}"')
        opened.page.wait_for_selector(f".counted:text-is('{wanted} of {len(said):,} events')")


def test_ten_thousand_events_stay_smooth(long: Path, look: Look, keep: Keep) -> None:
    """Of a long list some dozens of rows are in the page at any time, and frames come while it is
    scrolled.
    """
    opened = look(long)
    opened.page.click("[data-mode=all]")
    total = int(opened.page.inner_text(".counted").split()[0].replace(",", ""))
    assert total > 10_000
    frames, most, top = opened.page.evaluate("""async () => {
        const list = document.querySelector(".list");
        const gaps = [];
        let most = 0;
        let last = performance.now();
        list.scrollTop = 0;
        for (let i = 0; i < 100; i++) {
            list.scrollTop += 2500;
            await new Promise(requestAnimationFrame);
            gaps.push(performance.now() - last);
            last = performance.now();
            most = Math.max(most, document.querySelectorAll(".row").length);
        }
        return [gaps.sort((a, b) => a - b), most, list.scrollTop];
    }""")
    assert 250_000 == top
    assert most < 100
    assert frames[95] < FRAME, frames
    opened.page.keyboard.press("G")
    opened.page.wait_for_selector(f".row.selected[data-seq='{total}']")
    for key in "2345":
        opened.page.keyboard.press(key)
    opened.page.fill(".filter", "turn:100..102 type:model")
    opened.page.wait_for_selector(".counted:has-text('6 of')")
    keep(opened.page, "long")
