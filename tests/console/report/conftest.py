"""Pages of runs, and a browser to open them with: Debian's Chromium, which the machine must have."""

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import anyio
import pytest

from console.conftest import EVIL, Refold, record
from refold.console.main import main
from refold.console.report.builder import build
from refold.console.report.data import Report
from refold.console.report.page import page
from refold.engine import call, calls, say
from refold.reducers.guards import BUILTIN
from refold.store import SqliteStore
from support.browsing import opened

SESSION = Path(__file__).parents[2] / "transcripts" / "claude_code" / "plan-mode-rejections.jsonl.zst"
MARKUP = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    f"<!--]]> &lt; {EVIL} \u2028 javascript:document.title='owned'"
)
"""What a hostile transcript says in every field: markup, escape sequences, line ends that only JavaScript
knows.
"""


Result = TypeVar("Result")


def apart(work: Callable[[], Result]) -> Result:
    """Work that runs an event loop, in a thread of its own: a browser's driver has one in this thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def page_text(store: Path, run: str) -> str:
    """The page of a run."""
    return page(reported(store, run))


def reported(store: Path, run: str) -> Report:
    """The data of a run's page."""

    async def made() -> Report:
        async with await SqliteStore.open(store, readonly=True) as opened:
            return await build(opened, run, None, BUILTIN)

    return apart(lambda: anyio.run(made))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two runs.

    `ordinary`: six turns with calls side by side, an error, and views that differ by what was pruned and by
    what is shown shorter. `hostile`: every text that somebody else wrote is an attack on whoever reads it.
    """
    store = tmp_path_factory.mktemp("runs") / "runs.db"
    lines = [
        call(
            "look", path=f"{'long/' * 60}a.md"
        ),  # what it returns is as long: it is shown shorter once it is old
        calls(("look", {"path": "b.md"}), ("act", {}), text="I look, and act."),
        *(call("look", path=f"{name}.md") for name in "cde"),
        say("All is well."),
    ]
    policy: dict[str, Any] = {
        "limits": [{"type": "step", "value": 20}, {"type": "token", "measure": "estimate", "value": 4000}],
        "history": [
            {"do": "age_results", "keep_last": 2, "soft": {"over": 40, "head": 8, "tail": 4}},
            {"do": "tail", "last": 6},
        ],
        "guards": [{"guard": "repetition", "repeats": 3}],
    }
    evil = [calls(("look", {"path": MARKUP}), ("act", {}), text=MARKUP), call(MARKUP, path="x"), say(MARKUP)]
    apart(lambda: record(store, lines, "Look at everything.", run_id="ordinary", policy=policy))
    apart(lambda: record(store, evil, MARKUP, run_id="hostile"))
    return store


@pytest.fixture(scope="module")
def ordinary(recorded: Path) -> Path:
    """The page of the ordinary run."""
    file = recorded.with_name("ordinary.html")
    file.write_text(page_text(recorded, "ordinary"), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def hostile(recorded: Path) -> Path:
    """The page of the hostile run."""
    file = recorded.with_name("hostile.html")
    file.write_text(page_text(recorded, "hostile"), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def imported(recorded: Path) -> Path:
    """The page of a session of Claude Code that somebody imported."""
    store, file = recorded.with_name("imported.db"), recorded.with_name("imported.html")
    source = SESSION
    apart(lambda: main(["import", str(source), "--store", str(store)]))
    apart(lambda: main(["report", "@last", "--out", str(file), "--store", str(store)]))
    return file


@pytest.fixture
def store(recorded: Path, tmp_path: Path) -> Path:
    """A copy of the store, to change."""
    return Path(shutil.copy(recorded, tmp_path / "runs.db"))


@pytest.fixture
def page_of(refold: Refold, store: Path, tmp_path: Path) -> Callable[..., Path]:
    """Writes the page of a run, as a user does; its file."""

    def write(run: str, code: int = 0) -> Path:
        file = tmp_path / f"{run.partition('@')[0]}.html"
        ran = apart(lambda: refold("report", run, "--out", file, "--store", store, "--force"))
        assert code == ran.code, ran.err
        return file

    return write


class Opened(NamedTuple):
    """A page in a browser, and all that it said there: errors, refused loads, requests."""

    page: Any
    said: list[str]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for the tests of a module."""
    with opened() as found:
        yield found


@pytest.fixture
def look(browser: Any) -> Iterator[Callable[..., Opened]]:
    """Opens a page from disk, offline, and waits until it has checked the chain."""
    contexts: list[Any] = []

    def open_(file: Path, address: str = "", **options: Any) -> Opened:
        options = {"viewport": {"width": 1440, "height": 960}, **options}
        context = browser.new_context(offline=True, **options)
        contexts.append(context)
        page, said = context.new_page(), list[str]()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.on("request", lambda request: said.append(request.url))
        page.goto(f"{file.as_uri()}{address}")
        page.wait_for_selector("[data-chain]:not([data-chain=checking])")
        return Opened(page, said)

    yield open_
    for context in contexts:
        context.close()


@pytest.fixture
def keep(tmp_path: Path) -> Callable[[Any, str], None]:
    """Keeps a picture of a page: in REFOLD_SCREENSHOTS, if that is set, for people to look at."""
    folder = Path(os.environ.get("REFOLD_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)

    def shoot(page: Any, name: str) -> None:
        page.screenshot(path=folder / f"{name}.png")

    return shoot
