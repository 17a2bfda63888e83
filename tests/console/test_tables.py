"""Tables that fit a terminal: what is cut where there is no room."""

import pytest
from rich.console import Console

from refold.console.screen import Column, Screen


def watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a person watched what is printed."""
    monkeypatch.setattr("refold.console.screen.is_terminal", lambda _: True)


CALL = "Bash  git add src/one.py src/two.py && git push"


@pytest.mark.parametrize(
    ("column", "room", "shown"),
    [
        pytest.param(Column("call", elastic=True, middle=True), 60, CALL, id="enough room"),
        pytest.param(Column("call", elastic=True, middle=True), 30, "Bash  git add sr…y && git push", id="something of each command"),
        pytest.param(Column("call", elastic=True, middle=True), 12, "Bash  g…push", id="too narrow for that"),
        pytest.param(Column("call", elastic=True), 30, "Bash  git add src/one.py src/…", id="the end"),
    ],
)  # fmt: skip
def test_a_cell_is_cut(
    column: Column, room: int, shown: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell that is wider than its column loses its end, or, where its end says as much, its middle."""
    watch(monkeypatch)
    screen = Screen()
    screen.rich = Console(width=room, force_terminal=True, color_system=None)
    screen.table([column], [[CALL]])
    assert shown == capsys.readouterr().out.splitlines()[-1].rstrip()


def test_a_wide_tail_fits(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Signs that are two cells wide count as two, also in the end of a cell."""
    watch(monkeypatch)
    screen = Screen()
    screen.rich = Console(width=24, force_terminal=True, color_system=None)
    screen.table([Column("call", elastic=True, middle=True)], [["日本" * 20]])
    shown = capsys.readouterr().out.splitlines()[-1]
    assert "…" in shown
    assert 12 <= len(shown.strip()) <= 13
