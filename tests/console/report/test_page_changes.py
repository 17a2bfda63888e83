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


def run_of(store: Path, run: str, *commands: str) -> str:
    """The page of a run of these commands."""
    lines = [call("bash", command=each) for each in commands]
    agent = Agent(model=ScriptedModel([*lines, say("Done.")]), tools=[bash], store=store)
    apart(lambda: agent.run_sync("Go.", run_id=run))
    return page_text(store, run)


def test_what_was_touched_by_kind(tmp_path: Path, look: Callable[..., Opened]) -> None:
    """The first destructive call has a link; changes are counted by kind, also unread ones."""
    file = tmp_path / "touched.html"
    commands = ("touch a", "git push origin main", "rm -rf build", "eval $X", "curl https://example.com/x")
    file.write_text(run_of(tmp_path / "runs.db", "touched", *commands), encoding="utf-8")
    page = look(file).page
    assert "first destructive call git push origin main" == page.inner_text(
        "header .first-destructive"
    ).replace("\n", " ")
    kinds = page.inner_text("header .kinds")
    assert kinds.startswith("touched 1 deletion, 1 push, ")
    assert "1 unread command" == page.inner_text("header .kinds .unknown")
    page.click("header .first-destructive a")
    assert page.url.endswith("#e9"), page.url


def test_texts_of_a_model_are_no_markup(tmp_path: Path, look: Callable[..., Opened]) -> None:
    """A file name with markup is text."""
    file = tmp_path / "evil.html"
    name = "</script><img src=x onerror=document.title=1>"
    file.write_text(run_of(tmp_path / "runs.db", "evil", f"rm '{name}'"), encoding="utf-8")
    page = look(file).page
    assert name in page.inner_text("header .first-destructive")
    assert 0 == page.locator("header img").count()


def test_a_run_that_touched_nothing(tmp_path: Path, look: Callable[..., Opened]) -> None:
    """The line is left out; what is unknown stands beside what was changed."""
    file = tmp_path / "nothing.html"
    file.write_text(run_of(tmp_path / "runs.db", "nothing", "ls", "eval $X"), encoding="utf-8")
    page = look(file).page
    assert 0 == page.locator("header .touched").count()
    assert "1 call unknown" in page.inner_text("header .changed")


def test_the_rule_that_decided_a_call(tmp_path: Path, look: Callable[..., Opened]) -> None:
    """The tab `why` of a response, and of the refusal, names the rule with its file and line, as text."""
    push = {
        "effect": "refuse",
        "command": ["git", "push"],
        "source": "<b>Bash(git push *)</b> (settings.json:4)",
    }
    agent = Agent(
        model=ScriptedModel([call("bash", command="cd x && git push"), say("Done.")]),
        tools=[bash],
        policy={"guards": [{"guard": "permissions", "rules": [push]}]},
        store=tmp_path / "runs.db",
    )
    apart(lambda: agent.run_sync("Go.", run_id="ruled"))
    file = tmp_path / "ruled.html"
    file.write_text(page_text(tmp_path / "runs.db", "ruled"), encoding="utf-8")
    for seq in (3, 4):
        page = look(file, f"#e{seq}").page
        page.click("[data-tab=why]")
        expected = "c1 refused by <b>Bash(git push *)</b> (settings.json:4), rules[0] of permissions, for the command `git push`"
        assert expected == page.inner_text(".inspector .rules li")
