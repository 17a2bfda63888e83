"""The stored results match the table of clients, the scripts and the page."""

import msgspec

from clients.adapters import CLIENTS
from clients.comparison import CHECKS
from clients.limits import Cell, read_limits
from clients.report import (
    HEADING,
    PAGE,
    ClientResult,
    Results,
    ScriptResult,
    document_tables,
    read_results,
    terminal_table,
)
from clients.scripts import SCRIPTS

EQUAL = Cell(compared=3, equal=3)
PLANTED: Results = {
    "one": ClientResult(
        package="one-cli",
        version="1.0",
        format="one",
        scripts={
            "basic": ScriptResult(
                cells={"calls": EQUAL, "view": Cell(compared=2, equal=1, differs=("lacks x (main 1)",))}
            ),
            "retry": ScriptResult(
                cells={"calls": EQUAL, "end": Cell(compared=1, equal=1, vanished=("open (main)",))}
            ),
        },
        skipped={"resume": "it resumes nothing"},
    ),
    "two": ClientResult(package="two", version="2.0", format="two", not_here="needs Python 3.12"),
}


def test_the_documents_show_the_kept_results() -> None:
    """The tables of the page follow from the stored results and the limits."""
    _, _, section = PAGE.read_text(encoding="utf-8").partition(HEADING)
    assert section.endswith(f"\n\n{document_tables(read_results(), read_limits())}\n")


def test_results_are_kept_of_every_client_in_its_version() -> None:
    """The stored results are those of the versions in the table."""
    assert {name: client.version for name, client in CLIENTS.items()} == {
        name: result.version for name, result in read_results().items()
    }


def test_results_are_kept_of_every_script() -> None:
    """Each client has a result or a reason for every script."""
    played = {
        name: {*each.scripts, *each.skipped} for name, each in read_results().items() if not each.not_here
    }
    assert {name: {*SCRIPTS} for name in played} == played


def test_every_property_is_known() -> None:
    """Each compared script has a cell for each property."""
    cells = [
        script.cells
        for each in read_results().values()
        for script in each.scripts.values()
        if not script.problem
    ]
    assert [list(CHECKS)] * len(cells) == [sorted(each, key=list(CHECKS).index) for each in cells]


def test_the_table_tells_each_thing_apart() -> None:
    """The table distinguishes equal, different, vanished, skipped and not run, and lists differences."""
    lines = [line.split() for line in terminal_table(PLANTED).splitlines()]
    assert ["one", "basic", "?", "?", "equal"] == lines[1][:5]
    assert "DIFFERS" == lines[1][2 + list(CHECKS).index("view")]
    assert "VANISHED" == lines[2][2 + list(CHECKS).index("end")]
    assert ["one", "resume", *("." for _ in CHECKS)] == lines[3]
    assert ["two", "not", "run", "here", *("?" for _ in CHECKS)] == lines[4]
    assert [
        "one basic view: lacks x (main 1)",
        "one retry end: vanished: open (main)",
        "two: not run here: needs Python 3.12",
    ] == terminal_table(PLANTED).splitlines()[6:]


def test_a_client_that_was_not_run_has_not_passed() -> None:
    """A client that could not run, a script without a comparison and a difference do not pass."""
    assert [False, False] == [each.fine for each in PLANTED.values()]
    bad = ScriptResult(problem="no answer")
    assert not msgspec.structs.replace(PLANTED["two"], not_here="", scripts={"basic": bad}).fine
    assert msgspec.structs.replace(PLANTED["two"], not_here="").fine
    assert "| `two` | two 2.0 | not run | ? |" in document_tables(PLANTED, [])
    assert "- `one`: `view` (basic), `end` (retry)" in document_tables(PLANTED, [])
