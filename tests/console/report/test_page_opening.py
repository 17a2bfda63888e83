"""What an operator on call sees first: who and when, how the run ended, what went wrong and what was changed;
and what a search finds.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.report.conftest import Opened, apart, page_text
from refold.console.main import main
from refold.engine import Agent, ScriptedModel, call, say
from support.pages import read

pytestmark = pytest.mark.slow  # a browser of its own; the quick tier looks at pages in test_report_browser

Look = Callable[..., Opened]
Keep = Callable[[Any, str], None]

LONG = "origin/soph/do-not-truncate-the-names-of-branches-in-lists"
COMMAND = f"git fetch {LONG} && git reset --hard {LONG} && git log --oneline -3 {LONG}"


def session(folder: Path) -> Path:
    """A session of Claude Code in which a command resets a branch, one fails, and one is of a tool that
    nothing is known of.
    """
    calls = [
        ("Bash", {"command": COMMAND}, "HEAD is now at 1234567", False),
        ("Bash", {"command": "git push"}, "rejected", True),
        (
            "mcp__shop__order",
            {"order": {"item": "nuts", "quantity": 100, "notes": "x" * 300}},
            "ordered",
            False,
        ),
        ("Read", {"file_path": "/srv/app/a.md"}, "text", False),
    ]
    rows: list[dict[str, Any]] = [
        {"type": "user", "permissionMode": "bypassPermissions", "message": {"role": "user", "content": "Go."}}
    ]
    for number, (name, given, output, failed) in enumerate(calls):
        use = {"type": "tool_use", "id": f"t{number}", "name": name, "input": given}
        usage = {"input_tokens": 9, "output_tokens": 9}
        rows.append(
            {
                "type": "assistant",
                "message": {
                    "id": f"m{number}",
                    "role": "assistant",
                    "model": "x",
                    "stop_reason": "tool_use",
                    "usage": usage,
                    "content": [use],
                },
            }
        )
        result = {
            "type": "tool_result",
            "tool_use_id": f"t{number}",
            "content": output,
            **({"is_error": True} if failed else {}),
        }
        rows.append({"type": "user", "message": {"role": "user", "content": [result]}})
    last = {"type": "text", "text": "All is done."}
    rows.append(
        {
            "type": "assistant",
            "message": {
                "id": "end",
                "role": "assistant",
                "model": "x",
                "stop_reason": "end_turn",
                "usage": {"input_tokens": 9, "output_tokens": 9},
                "content": [last],
            },
        }
    )
    common = {"sessionId": "s", "version": "2.1.0", "cwd": "/srv/app", "gitBranch": "main"}
    told = [
        {
            **common,
            "uuid": f"u{n}",
            "parentUuid": f"u{n - 1}" if n else None,
            "timestamp": f"2026-02-11T18:{24 + n}:00Z",
            **row,
        }
        for n, row in enumerate(rows)
    ]
    file = folder / "session.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in told), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def harmful(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the session."""
    folder = tmp_path_factory.mktemp("harmful")
    store, file = folder / "runs.db", folder / "page.html"
    apart(lambda: main(["import", str(session(folder)), "--store", str(store)]))
    apart(lambda: main(["report", "@last", "--out", str(file), "--store", str(store)]))
    return file


def test_the_first_screen_says_who_and_when(harmful: Path, look: Look, keep: Keep) -> None:
    """Date and time in UTC, directory, branch and permission mode are there before anything is pressed."""
    opened = look(harmful)
    told = opened.page.inner_text("header .who")
    for expected in (
        "2026-02-11 18:24:00 to 18:33:00 UTC",
        "cwd /srv/app",
        "branch main",
        "permission mode bypassPermissions",
    ):
        assert expected in told
    keep(opened.page, "who-and-when")


def test_the_first_screen_says_what_was_changed(harmful: Path, look: Look) -> None:
    """The end, the errors and what calls changed stand in one line; what is unknown is counted; each link
    leads to its first event.
    """
    opened = look(harmful)
    told = " ".join(opened.page.inner_text("header .outcome").split())
    assert "finished, according to its source" in told
    assert "1 error changed" in told
    assert told.endswith("1 git reset, 1 git push, 1 git fetch (1 failed); 1 call unknown")
    calls = [each for turn in read(harmful).data["turns"] for each in turn["calls"]]
    opened.page.click(".changed a:has-text('git reset')")
    opened.page.wait_for_selector(f".inspector h2:has-text('e{calls[0]['seq']} ')")
    opened.page.click(".went-wrong a")
    opened.page.wait_for_selector(f".inspector h2:has-text('e{calls[1]['seq']} ')")


def test_the_page_opens_on_the_end(harmful: Path, look: Look) -> None:
    """The event that says how the run ended is selected, and above its fields are the errors, the changes and
    the last answer.
    """
    opened = look(harmful)
    assert f"e{read(harmful).data['end']}" == opened.page.inner_text(".inspector h2").split()[0]
    told = opened.page.inner_text(".inspector .summary")
    assert "git push: raised" in told
    assert "git reset --hard" in told
    assert "All is done." in told


def test_a_run_without_an_end_opens_on_its_first_error(
    ordinary: Path, page_of: Callable[..., Path], look: Look
) -> None:
    """Where nothing says how a run ended, the first error is selected."""
    events = read(ordinary).data["events"]
    error = next(event[0] for event in events if event[9].get("error") is True)
    opened = look(page_of(f"ordinary@e{error + 3}"))
    assert f"e{error}" == opened.page.inner_text(".inspector h2").split()[0]


def test_the_verb_of_each_command_is_seen(harmful: Path, look: Look) -> None:
    """However narrow a row is, each command of its line shows its verb."""
    opened = look(harmful, viewport={"width": 1100, "height": 800})
    row = opened.page.query_selector(".row .parts")
    for part, verb in zip(
        row.query_selector_all(".part"), ("git fetch", "git reset", "git log"), strict=True
    ):
        assert part.inner_text().startswith(verb)
        assert part.bounding_box()["width"] > 7 * len(verb)
    assert (
        row.bounding_box()["x"] + row.bounding_box()["width"]
        <= opened.page.query_selector(".list").bounding_box()["width"]
    )


def test_a_nested_quantity_is_seen(harmful: Path, look: Look) -> None:
    """The fields of a nested argument stand side by side with their names: a long one does not hide the
    others.
    """
    told = " ".join(look(harmful).page.inner_text(".row.call:has-text('mcp__shop__order')").split())
    assert "order.quantity: 100" in told


def test_no_row_repeats_the_one_below(harmful: Path, look: Look) -> None:
    """A turn without a text has no row that only names its call; the derived states of an import have none
    either.
    """
    opened = look(harmful)
    rows = [" ".join(row.inner_text().split()) for row in opened.page.query_selector_all(".row")]
    assert [] == [row for row in rows if "calls Bash" in row or "WAITING_FOR_INPUT" in row]
    assert ["1", "2", "3", "4", "5", "end"] == [
        each.inner_text() for each in opened.page.query_selector_all(".row .number")
    ]


def test_columns_have_heads(harmful: Path, look: Look) -> None:
    """Above the figures stands what they are, at the same place as they end."""
    opened = look(harmful)
    assert ["event", "what happened", "tokens", "time"] == [
        each.inner_text() for each in opened.page.query_selector_all(".heads span") if each.is_visible()
    ]
    for name in ("tokens", "time"):
        head = opened.page.query_selector(f".heads .{name}").bounding_box()
        figure = next(
            each for each in opened.page.query_selector_all(f".row .figure.{name}") if each.inner_text()
        ).bounding_box()
        assert abs(head["x"] + head["width"] - figure["x"] - figure["width"]) < 4, name


def test_a_hit_selects_itself(harmful: Path, look: Look) -> None:
    """What a search finds first is selected, its excerpt is the row, and the words that were looked for are
    marked.
    """
    opened = look(harmful)
    opened.page.fill(".filter", '"reset --hard"')
    opened.page.wait_for_selector(".counted:has-text('1 of')")
    (row,) = opened.page.query_selector_all(".row")
    assert "git reset --hard" in row.inner_text()
    assert "reset --hard" == row.query_selector("mark").inner_text()
    assert row.get_attribute("data-seq") == opened.page.get_attribute(".row.selected", "data-seq")
    assert f"e{row.get_attribute('data-seq')}" == opened.page.inner_text(".inspector h2").split()[0]


def test_changes_are_a_press_away(harmful: Path, look: Look) -> None:
    """The button counts the calls that changed something, `+?` for those of which it is unknown, and `c`
    leads from one to the next.
    """
    opened = look(harmful)
    assert "changes 2+?" == opened.page.inner_text(".step.changes .many")
    calls = [each for turn in read(harmful).data["turns"] for each in turn["calls"]]
    opened.page.keyboard.press("g")
    for each in calls[:2]:
        opened.page.keyboard.press("c")
        opened.page.wait_for_selector(f".inspector h2:has-text('e{each['seq']} ')")


def test_colours_do_not_depend_on_the_verdict(ordinary: Path, look: Look) -> None:
    """What is no verdict, as who speaks and what a provider counted, has the same colour before and after the
    chain was checked.
    """
    opened = look(ordinary, "#e1")
    colour = "getComputedStyle(document.querySelector('.role.user')).color"
    whole = opened.page.evaluate(colour)
    opened.page.evaluate("document.documentElement.dataset.trust = 'damaged'")
    assert whole == opened.page.evaluate(colour)


def test_children_are_behind_a_button(tmp_path: Path, look: Look) -> None:
    """The number of child runs is a button that unfolds them."""
    child = Agent(model=ScriptedModel([say("Done.")]), name="child", system="You help.")
    agent = Agent(
        model=ScriptedModel([call("transfer_to_child", task="Help."), say("Done.")]),
        handoffs=[child],
        store=tmp_path / "runs.db",
    )
    apart(lambda: agent.run_sync("Go.", run_id="parent"))
    file = tmp_path / "parent.html"
    file.write_text(page_text(tmp_path / "runs.db", "parent"), encoding="utf-8")
    opened = look(file)
    opened.page.click("button.children")
    assert opened.page.is_visible(".about .kin")


def test_an_index_is_searched_filtered_and_sorted(
    tmp_path: Path, look: Look, browser: Any, keep: Keep
) -> None:
    """Words leave the runs that have them, the choices those that ended so or went wrong, and a head sorts,
    unknown last.
    """
    store, folder = tmp_path / "runs.db", tmp_path / "pages"
    apart(lambda: main(["import", str(session(tmp_path)), "--store", str(store)]))
    agent = Agent(model=ScriptedModel([say("Done.")]), store=store)
    apart(lambda: agent.run_sync("Say <b>done</b>.", run_id="quick"))
    apart(lambda: main(["report", "--all", "--out", str(folder), "--store", str(store)]))
    page = browser.new_context(offline=True).new_page()
    said = list[str]()
    page.on("console", lambda message: said.append(message.text))
    page.goto((folder / "index.html").as_uri())

    def shown() -> list[str]:
        return [
            row.query_selector("a").inner_text()
            for row in page.query_selector_all("tbody tr")
            if row.is_visible()
        ]

    assert {"Go.", "Say <b>done</b>."} == {*shown()}
    keep(page, "index")
    page.fill("#search", "permission BYPASS")
    assert ["Go."] == shown()
    assert "1 of 2" == page.inner_text("#counted")
    page.fill("#search", "")
    page.select_option("#state", "COMPLETED")
    assert ["Say <b>done</b>."] == shown()
    page.select_option("#state", "")
    page.check("#failed")
    assert ["Go."] == shown()
    page.uncheck("#failed")
    for head, first in (("turns", "Go."), ("turns", "Say <b>done</b>."), ("failed", "Go."), ("task", "Go.")):
        page.click(f"th button:has-text('{head}')")
        assert first == shown()[0], head
    assert [] == said
