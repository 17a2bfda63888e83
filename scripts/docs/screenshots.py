"""Screenshots of the report page: `make screenshots`, into screenshots/, and docs/page.png for the README.

Four pages: a run of refold, an imported run in which an agent deletes a folder, the first run with an edited
log, and the index of runs; each on desktop and phone, in light and dark mode. Needs Chromium, named by
REFOLD_CHROMIUM.
"""

import contextlib
import os
import shutil
import sqlite3
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import ViewportSize, sync_playwright

from refold.console.main import main as refold
from refold.engine import Agent, ScriptedModel, call, calls, say, tool

ROOT = Path(__file__).resolve().parents[2]
TRANSCRIPT = ROOT / "tests" / "transcripts" / "openhands" / "v0-output-max-iterations.jsonl.zst"
IMPORTED, DELETES = "openhands-802421219401da9b", 266  # its answer that asks for `rm -rf`

EDITS = 19  # of our own run: the end of the call that edits

DESK, TELEPHONE, README = (
    ViewportSize(width=width, height=height) for width, height in ((1400, 900), (390, 844), (1200, 760))
)
SIZES = {"desk": DESK, "telephone": TELEPHONE}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")

OLD = "    for entry in entries:\n        total += entry.amount\n    return total"
NEW = """    missing = 0
    for entry in entries:
        if entry.amount is None:
            missing += 1
            continue
        total += entry.amount
    return total, missing"""

PLAN = """## What is wrong

`total` adds an **amount** that may be missing:

| row | amount |
|-----|-------:|
| 211 | 12.50 |
| 212 | *none* |

1. skip rows without an amount
2. say how many there were
"""
POLICY: dict[str, Any] = {
    "limits": [{"type": "step", "value": 20}, {"type": "token", "measure": "estimate", "value": 4000}],
    "history": [{"do": "tail", "last": 8}],
    "guards": [{"guard": "repetition", "repeats": 2}],
}


@tool(replay="read_only")
def read(path: str) -> str:
    """Read a file."""
    time.sleep(0.05)
    if path.endswith("amounts.csv"):
        raise FileNotFoundError(f"no such file: {path}")
    return (
        "def close(entries):\n    total = 0\n    for entry in entries:\n        total += entry.amount\n    return total\n"
        * 4
    )


@tool(replay="idempotent")
def edit(path: str, old_string: str, new_string: str) -> str:
    """Put one text in the place of another."""
    return f"{path}: {len(old_string)} characters became {len(new_string)}"


@tool(replay="at_most_once")
def bash(command: str) -> str:
    """Run a command."""
    time.sleep(0.4)
    return f"$ {command}\n3 passed in 0.12s"


def record(store: str) -> None:
    """Record a run with edits, a failed call, a child run, a Markdown response, and a full window."""
    check = Agent(model=ScriptedModel([say("All 3 tests pass.")]), name="checker", system="You run tests.")
    lines = [
        calls(("read", {"path": "src/books/close.py"}), text="I look at the function that fails first."),
        calls(("read", {"path": "src/books/entries.py"}), ("read", {"path": "data/2025/amounts.csv"})),
        calls(("edit", {"path": "src/books/close.py", "old_string": OLD, "new_string": NEW}), text=PLAN),
        call("bash", command="python -m pytest tests/books/test_close.py -q --no-header"),
        call("transfer_to_checker", task="Run all tests of the books and say what fails."),
        call("bash", command="git diff --stat"),
        say("Rows without an amount are skipped now, and **counted**: `close` returns both."),
    ]
    agent = Agent(
        model=ScriptedModel(lines), tools=[read, edit, bash], handoffs=[check], policy=POLICY, store=store, name="fixer",
        system="You mend what is broken.",
    )  # fmt: skip
    agent.run_sync(
        "The books do not close: `close()` fails in row 212. Find out why, and mend it.",
        run_id="close-the-books",
    )


def tamper(store: str) -> None:
    """Change a tool result, as is possible with the `sqlite3` shell."""
    with contextlib.closing(sqlite3.connect(store)) as database, database:
        for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            database.execute(f'DROP TRIGGER "{name}"')
        database.execute(
            "UPDATE event SET content = replace(content, '3 passed', '4 passed') WHERE kind = 'tool_returned'"
        )


def said(*words: str, code: int = 0) -> None:
    """Run a refold command; exit if its exit code is not `code`."""
    if (found := refold(list(words))) != code:
        raise SystemExit(f"refold {' '.join(words)}: exit code {found}")


def pages(folder: Path) -> dict[str, str]:
    """Make the pages; return the addresses to photograph, by name."""
    good, bad = str(folder / "runs.db"), str(folder / "damaged.db")
    record(good)
    shutil.copy(good, bad)
    tamper(bad)
    said("import", str(TRANSCRIPT), "--store", good)
    said("report", "--all", "--out", str(folder / "pages"), "--store", good)
    said("report", "close-the-books", "--out", str(folder / "damaged.html"), "--store", bad, code=3)
    own = (folder / "pages" / "close-the-books.html").as_uri()
    return {
        "own": own,
        "edit": f"{own}#e{EDITS}",
        "seen": f"{own}#e28/seen",
        "imported": f"{(folder / 'pages' / f'{IMPORTED}.html').as_uri()}#e{DELETES}",
        "damaged": (folder / "damaged.html").as_uri(),
        "index": (folder / "pages" / "index.html").as_uri(),
    }


def shoot(
    browser: Any, address: str, picture: Path, size: ViewportSize, scheme: Literal["dark", "light"] = "light"
) -> None:
    """Take one screenshot once the page has checked its chain; on a phone, another with an open event."""
    tab = browser.new_page(viewport=size, color_scheme=scheme)
    tab.goto(address)
    if not address.endswith("index.html"):
        tab.wait_for_selector("[data-chain]:not([data-chain=checking])")
    tab.wait_for_timeout(200)  # the timeline renders a frame later
    tab.screenshot(path=picture)
    if tab.is_visible("[data-axis=time]") and "#" not in address:
        tab.click("[data-axis=time]")
        tab.click("[data-mode=conversation]")
        tab.wait_for_timeout(100)
        tab.screenshot(path=picture.with_stem(f"{picture.stem}-time"))
        tab.click("[data-mode=turns]")
    if size == TELEPHONE and (row := tab.query_selector(".row.call.selected, .row.selected ~ .row.call")):
        row.click()
        tab.wait_for_timeout(400)  # the sheet animates
        tab.screenshot(path=picture.with_stem(f"{picture.stem}-event"))
    tab.close()


def main(folder: Path, readme: Path) -> None:
    """Write the screenshots to a folder, and the README's to its file; exit with an error if one fails."""
    path = os.environ.get("REFOLD_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        raise SystemExit("Chromium not found: install it, or set REFOLD_CHROMIUM")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        addresses = pages(Path(made))
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
            for (name, address), (where, size), scheme in product(addresses.items(), SIZES.items(), SCHEMES):
                shoot(browser, address, folder / f"{name}-{where}-{scheme}.png", size, scheme)
            shoot(browser, addresses["imported"], readme, README)
            browser.close()
    print(f"{folder}: {len(list(folder.glob('*.png')))} pictures")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "screenshots", ROOT / "docs" / "page.png")
