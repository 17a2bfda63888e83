"""The line of the page's header that says what calls changed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from console.report.conftest import Opened, apart, page_text
from refold.engine import Agent, ScriptedModel, call, say, tool

pytestmark = pytest.mark.slow  # a browser of its own

VERBS = ("cp a b", "mv a b", "touch a", "mkdir a", "ln a b", "tee a", "patch a", "unzip a", "git push")


@tool(replay="at_most_once")
def bash(command: str) -> str:
    """Run a command."""
    return command


def test_harm_is_shown_and_more_opens_the_list(tmp_path: Path, look: Callable[..., Opened]) -> None:
    """A push stands first, files written by redirection are one group, and `N more` lists every change with a
    link.
    """
    lines = [call("bash", command=each) for each in (*VERBS[:-1], *VERBS, "echo x > a", "echo x > b")]
    agent = Agent(model=ScriptedModel([*lines, say("Done.")]), tools=[bash], store=tmp_path / "runs.db")
    apart(lambda: agent.run_sync("Go.", run_id="changes"))
    file = tmp_path / "changes.html"
    file.write_text(page_text(tmp_path / "runs.db", "changes"), encoding="utf-8")
    page = look(file).page
    line = page.inner_text("header .changed")
    assert line.startswith("changed 1 git push, 2 cp, ")
    assert "2 files written by redirection, " in line
    assert line.endswith(" more")
    page.click("header .changed button.more:last-of-type")
    page.wait_for_selector("header .changed button.fewer")
    unfolded = page.inner_text("header .changed")
    assert all(each in unfolded for each in ("2 unzip", "1 > a", "1 > b"))
    assert len(VERBS) + 2 == page.locator("header .changed a").count()
    box = page.locator("header .changed").bounding_box()
    assert page.evaluate(
        "(e => e.scrollWidth <= e.clientWidth + 1)(document.querySelector('header .changed'))"
    ), box
    page.click("header .changed button.fewer")
    page.wait_for_selector("header .changed button.more")
