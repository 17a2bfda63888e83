"""`refold rules --against` and `--base`: what a change of permission rules changes for recorded calls."""

import json
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from console.conftest import Refold
from console.test_rules import ran


def write(path: Path, **lists: list[str]) -> Path:
    """Write settings of Claude Code with these lists of rules."""
    path.write_text(json.dumps({"permissions": lists}, indent=1), encoding="utf-8")
    return path


def compare(refold: Refold, store: Path, old: Path, new: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the document of a comparison."""
    addresses = ("--policy", f"claude:{new}", "--against", f"claude:{old}")
    found = refold("rules", *addresses, "--store", store, "-o", "json", *words)
    return found.code, json.loads(found.out)


CHANGES = [
    # old rules, new rules, a recorded command, kind, whether it is a widening, exit code
    ({}, {"deny": ["Bash(rm *)"]}, "rm x", "newly refused", False, 0),
    ({"deny": ["Bash(rm *)"]}, {}, "rm x", "no rule now", True, 1),
    ({"deny": ["Bash(rm *)"]}, {"ask": ["Bash(rm *)"]}, "rm x", "newly asked", True, 1),
    ({"ask": ["Bash(rm *)"]}, {"deny": ["Bash(rm *)"]}, "rm x", "newly refused", False, 0),
    ({"ask": ["Bash(rm *)"]}, {"allow": ["Bash(rm *)"]}, "rm x", "newly permitted", True, 1),
    ({}, {"allow": ["Bash(rm *)"]}, "rm x", "newly permitted", True, 1),
    ({"allow": ["Bash(rm *)"]}, {}, "rm x", "no rule now", False, 0),
    ({}, {"deny": ["Bash(rm *)"]}, "eval $X", "inconclusive", False, 125),
    ({"deny": ["Bash(rm *)"]}, {}, "eval $X", "inconclusive", False, 125),
]


@pytest.mark.parametrize(("before", "after", "command", "kind", "widens", "code"), CHANGES)
def test_kinds_of_changes(
    refold: Refold, store: Path, tmp_path: Path, before: dict[str, list[str]], after: dict[str, list[str]],
    command: str, kind: str, widens: bool, code: int,
) -> None:  # fmt: skip
    """Each change has its kind; what restricts a call less is a widening, which fails."""
    ran(store, "a", command)
    old, new = (
        write(tmp_path / name, **rules | {"deny": [*rules.get("deny", []), "Read(./x)"]})
        for name, rules in (("old.json", before), ("new.json", after))
    )
    found, report = compare(refold, store, old, new, "a")
    (group,) = report["groups"]
    assert (code, kind, widens, 1) == (found, group["kind"], group["is_widening"], group["calls"])
    assert ["a@e3"] == [sample["address"] for sample in group["samples"]]


def test_equal_rules_change_nothing(refold: Refold, store: Path, tmp_path: Path) -> None:
    """The same rules in another order and another place agree, also about calls that neither can judge."""
    ran(store, "a", "git push", "eval $X", "ls")
    old = write(tmp_path / "old.json", deny=["Bash(rm *)"], ask=["Bash(git push:*)", "Bash(curl *)"])
    new = write(tmp_path / "new.json", ask=["Bash(curl *)", "Bash(git push *)"], deny=["Bash(rm *)"])
    code, report = compare(refold, store, old, new)
    assert (0, 3, [], []) == (code, report["unchanged"], report["groups"], report["edits"])


def test_a_widening_rule_without_a_recorded_call(refold: Refold, store: Path, tmp_path: Path) -> None:
    """What no recorded call shows is not harmless: 125, and the rule is named."""
    ran(store, "a", "ls")
    old = write(tmp_path / "old.json", deny=["Bash(rm *)", "Bash(dd *)"])
    new = write(tmp_path / "new.json", deny=["Bash(rm *)"], allow=["Bash(curl *)"])
    code, report = compare(refold, store, old, new)
    assert 125 == code
    assert [("Bash(dd *)", False), ("Bash(curl *)", True)] == [
        (edit["rule"].partition(" (")[0], edit["added"]) for edit in report["unproved"]
    ]
    stricter = write(tmp_path / "stricter.json", deny=["Bash(rm *)", "Bash(dd *)", "Bash(curl *)"])
    assert 0 == compare(refold, store, old, stricter)[0]
    wider = write(tmp_path / "wider.json", deny=["Bash(r*)", "Bash(d*)"])  # which cover the old ones
    assert 0 == compare(refold, store, old, wider)[0]


def test_equal_rules_over_an_incomplete_record(refold: Refold, store: Path, tmp_path: Path) -> None:
    """Equal rules change nothing, whatever is missing; an accepted widening does not need a recorded call."""
    ran(store, "a", "ls", "eval $X")
    same = write(tmp_path / "same.json", deny=["Bash(rm *)"])
    wider = write(tmp_path / "wider.json", deny=["Bash(rm *)"], allow=["Bash(curl *)"])
    assert 0 == compare(refold, store, same, same)[0]
    assert 125 == compare(refold, store, same, wider)[0]
    ran(store, "b", "ls")
    assert 125 == compare(refold, store, same, wider, "b")[0]
    assert 0 == compare(refold, store, same, wider, "b", "--allow-widening", "reviewed")[0]


def test_without_calls(refold: Refold, store: Path, tmp_path: Path) -> None:
    """Over runs without calls a stricter list agrees, and a wider one is inconclusive."""
    ran(store, "a")
    strict = write(tmp_path / "strict.json", deny=["Bash(rm *)", "Bash(dd *)"])
    wide = write(tmp_path / "wide.json", deny=["Bash(rm *)"])
    assert 125 == compare(refold, store, strict, wide)[0]
    assert 0 == compare(refold, store, wide, strict)[0]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--fail-on", "widening"), 1),
        (("--fail-on", "any"), 1),
        (("--fail-on", "none"), 0),
        (("--allow-widening", "reviewed by ops"), 0),
        (("--allow-widening", "x", "--fail-on", "any"), 0),
    ],
)
def test_what_fails(refold: Refold, store: Path, tmp_path: Path, words: tuple[str, ...], code: int) -> None:
    """A widening fails unless it is allowed, with a reason that the report has."""
    ran(store, "a", "rm x")
    old = write(tmp_path / "old.json", deny=["Bash(rm *)"])
    new = write(tmp_path / "new.json", ask=["Bash(rm *)"])
    found, report = compare(refold, store, old, new, *words)
    assert code == found
    assert report["allowed"] == (words[1] if words[0] == "--allow-widening" else "")


def test_tightening_fails_on_any(refold: Refold, store: Path, tmp_path: Path) -> None:
    """`any` fails on each change, `inconclusive` on what cannot be compared."""
    ran(store, "a", "rm x", "eval $X")
    old = write(tmp_path / "old.json", deny=["Read(./x)"])
    new = write(tmp_path / "new.json", deny=["Bash(rm *)"])
    assert 125 == compare(refold, store, old, new)[0]
    assert 1 == compare(refold, store, old, new, "--fail-on", "any")[0]
    assert 1 == compare(refold, store, old, new, "--fail-on", "inconclusive")[0]


def commit(folder: Path) -> None:
    """Commit all files of a folder."""
    git = ("git", "-C", str(folder), "-c", "user.email=a@b", "-c", "user.name=a")
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-qm", "x"], check=True)


def test_a_git_revision(refold: Refold, store: Path, tmp_path: Path) -> None:
    """`--base` reads the same file at a revision: rules of an agent, and refold's own."""
    ran(store, "a", "git push")
    folder = tmp_path / "repository" / "sub"
    folder.mkdir(parents=True)
    settings = write(folder / "settings.json", deny=["Bash(git push *)"])
    rules = folder / "rules.yaml"
    text = "schema: refold/v1\nguards:\n- guard: permissions\n  rules: [{effect: refuse, command: [git, push]}]\n"
    rules.write_text(text, encoding="utf-8")
    commit(folder.parent)
    write(settings, ask=["Bash(git push *)"])
    rules.write_text(text.replace("refuse", "ask"), encoding="utf-8")
    for address in (f"claude:{settings}", str(rules)):
        words = ("rules", "a", "--policy", address, "--store", store)
        found = refold(*words, "--base", "HEAD")
        assert 1 == found.code, found.out + found.err
        assert "newly asked (widening)" in found.out
        assert f"from {address} at HEAD to {address}: 1 run, 1 call" in found.out
        for revision, problem in (
            ("nope", "'nope' is no revision"),
            ("--all", "expected a git revision"),
            ("", "expected a git revision"),
        ):
            refused = refold(*words, f"--base={revision}")
            assert (2, True) == (refused.code, problem in refused.err), refused.err
    fresh = write(folder / "new.json", deny=["Bash(x)"])
    found = refold("rules", "--policy", f"claude:{fresh}", "--store", store, "--base", "HEAD")
    assert (2, True) == (found.code, "does not exist in this revision" in found.err)


def test_no_repository(refold: Refold, store: Path, tmp_path: Path) -> None:
    """The error says that the file is in no repository."""
    ran(store, "a", "ls")
    settings = write(tmp_path / "settings.json", deny=["Bash(x)"])
    found = refold("rules", "--policy", f"claude:{settings}", "--store", store, "--base", "main")
    assert (2, True) == (found.code, "is in no git repository" in found.err), found.err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--against", "x.yaml", "--base", "main"), "--against and --base exclude each other"),
        (("--fail-on", "any"), "--fail-on and --allow-widening need --against or --base"),
        (("--allow-widening", "x"), "--fail-on and --allow-widening need --against or --base"),
        (("--base", "main", "--propose"), "--propose is not for comparisons"),
    ],
)
def test_options_that_exclude_each_other(
    refold: Refold, store: Path, tmp_path: Path, words: tuple[str, ...], problem: str
) -> None:
    """An option without effect is an error."""
    settings = write(tmp_path / "settings.json", deny=["Bash(x)"])
    found = refold("rules", "--policy", f"claude:{settings}", "--store", store, *words)
    assert (2, True) == (found.code, problem in found.err)


SECRET = "hunter2-and-more"


@pytest.mark.parametrize("form", ["markdown", "sarif"])
def test_arguments_are_not_published(refold: Refold, store: Path, tmp_path: Path, form: str) -> None:
    """Reports for other places have types and lengths, unless values are asked for."""
    ran(store, "a", f"rm {SECRET}")
    old, new = write(tmp_path / "o.json", deny=["Bash(rm *)"]), write(tmp_path / "n.json", ask=["Bash(rm *)"])
    words = ("rules", "--policy", f"claude:{new}", "--against", f"claude:{old}", "--store", store)
    found = refold(*words, "--format", form)
    assert (1, False, True) == (found.code, SECRET in found.out, "{command: <str:19>}" in found.out)
    assert SECRET in refold(*words, "--format", form, "--show-args").out


def test_markdown_of_hostile_texts(refold: Refold, store: Path, tmp_path: Path) -> None:
    """Texts of rules and calls stay text: no HTML, no link, no cell of their own."""
    hostile = "rm `a` | <script>alert(1)</script> [x](javascript:y)"
    ran(store, "a", hostile)
    old = write(tmp_path / "o.json", deny=["Bash(rm *)", "Bash(`<img src=x>` | y *)"])
    new = write(tmp_path / "n.json", ask=["Bash(rm *)"])
    words = ("rules", "--policy", f"claude:{new}", "--against", f"claude:{old}", "--store", store)
    from markdown_it import MarkdownIt

    out = refold(*words, "--format", "markdown", "--show-args").out
    page = MarkdownIt("commonmark", {"html": True}).enable("table").render(out)
    assert "<script" not in page
    assert "<img" not in page
    assert 'href="javascript' not in page
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize("compares", [True, False])
def test_sarif(refold: Refold, store: Path, tmp_path: Path, compares: bool) -> None:
    """The document has the shape of SARIF 2.1.0 as a library of its own reads it, with file and line."""
    ran(store, "a", "rm x", "eval $X")
    old = write(tmp_path / "o.json", deny=["Bash(rm *)"])
    new = write(tmp_path / "n.json", deny=["Bash(rm *)", "Bash(rm x)"], allow=["Bash(x *)"])
    against = ("--against", f"claude:{old}") if compares else ()
    out = refold("rules", "--policy", f"claude:{new}", *against, "--store", store, "--format", "sarif").out
    (run,) = import_module("sarif_pydantic").Sarif.model_validate_json(out).runs
    results = run.results or []
    assert {"inconclusive"} | (set() if compares else {"refused-success", "never-hit", "shadowed"}) >= {
        result.rule_id for result in results
    }
    places = [result.locations[0].physical_location for result in results if result.locations]
    assert all(place and place.region and place.region.start_line for place in places)
    known = {rule.id for rule in run.tool.driver.rules or []}
    assert {result.rule_id for result in results} == known


def native(path: Path, rules: str, more: str = "") -> Path:
    """A policy with the guard `permissions`."""
    text = f"schema: refold/v1\nguards:\n- guard: permissions\n{more}  rules: [{rules}]\n"
    path.write_text(text, encoding="utf-8")
    return path


PUSH, GIT = (
    "{effect: refuse, tool: Bash, command: [git, push]}",
    "{effect: permit, tool: Bash, command: [git]}",
)


@pytest.mark.parametrize(
    ("old", "new", "more"),
    [
        (f"{PUSH}, {GIT}, {PUSH}", f"{PUSH}, {GIT}", ("  order: last\n", "  order: last\n")),
        (GIT, f"{GIT}, {{effect: ask, command: [ls]}}", ("  else: refuse\n", "  else: permit\n")),
        (GIT, f"{GIT}, {{effect: ask, command: [rm]}}", ("  else: refuse\n", "  else: refuse\n")),
        ("{effect: refuse, command: [rm]}", "{effect: ask, tool: Bash}, {effect: refuse, command: [rm]}",
         ("  order: first\n", "  order: first\n")),
    ],
)  # fmt: skip
def test_widenings_that_no_recorded_call_shows(
    refold: Refold, store: Path, tmp_path: Path, old: str, new: str, more: tuple[str, str]
) -> None:
    """A removed duplicate, a wider default, a question in place of a refusal: never 0."""
    ran(store, "a", "git status", "ls", "git log")
    before, after = native(tmp_path / "o.yaml", old, more[0]), native(tmp_path / "n.yaml", new, more[1])
    found = refold("rules", "--policy", after, "--against", before, "--store", store)
    assert found.code in (1, 125), found.out


def test_other_parts_of_a_policy_are_named(refold: Refold, store: Path, tmp_path: Path) -> None:
    """Only the guard `permissions` is compared, and the report says so."""
    ran(store, "a", "ls")
    before = native(tmp_path / "o.yaml", PUSH)
    text = before.read_text(encoding="utf-8") + "- {guard: arguments, command: [rm]}\n"
    before.write_text(text, encoding="utf-8")
    found = refold(
        "rules", "--policy", native(tmp_path / "n.yaml", PUSH), "--against", before, "--store", store
    )
    assert "its other guards and its approvals are not judged here" in found.out
