"""A browser to open pages with: Debian's Chromium, which the machine must have, or the one that
REFOLD_CHROMIUM names.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
)


def chromium() -> str:
    """The browser's file. Where there is none a test is skipped, and fails where all tests must run."""
    path = os.environ.get("REFOLD_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        problem = "no Chromium here: install it, or name it in REFOLD_CHROMIUM"
        if os.environ.get("CI") == "true":
            pytest.fail(problem)
        pytest.skip(problem)
    return path


@contextmanager
def opened() -> Iterator[Any]:
    """The browser."""
    from playwright.sync_api import sync_playwright

    path = chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield browser
        browser.close()
