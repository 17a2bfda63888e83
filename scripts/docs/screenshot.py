"""The picture of a run's page that the README shows: `python -m scripts.docs.screenshot`, into docs/page.png.

The run is one of the tests' transcripts, of an agent that deleted a folder. A Chromium is needed: REFOLD_CHROMIUM names it.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from refold.console.main import main as refold

ROOT = Path(__file__).resolve().parents[2]
TRANSCRIPT = ROOT / "tests" / "transcripts" / "openhands" / "v0-output-max-iterations.jsonl.zst"
# The answer that asks for `rm -rf`.
EVENT = 266
WIDTH, HEIGHT = 1200, 680


def main(picture: Path) -> None:
    """Write the picture; exits with what went wrong, if anything did."""
    browser = os.environ.get("REFOLD_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("no Chromium here: install it, or name it in REFOLD_CHROMIUM")
    with tempfile.TemporaryDirectory() as folder:
        store, page = f"{folder}/runs.db", f"{folder}/run.html"
        for words in (["import", str(TRANSCRIPT)], ["report", "@last", "-o", page]):
            if code := refold([*words, "--store", store]):
                raise SystemExit(code)
        with sync_playwright() as playwright:
            opened = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
            tab = opened.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
            tab.goto(f"{Path(page).as_uri()}#e{EVENT}")
            tab.wait_for_timeout(2000)  # it checks the chain of its own events
            tab.screenshot(path=picture)
            opened.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "page.png")
