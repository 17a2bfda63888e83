"""What the harness says: placeholders, and what filling them costs."""

from collections.abc import Iterator, Mapping

import pytest

from refold.reducers.text import MOST_PLACES, render


@pytest.mark.parametrize(
    ("template", "rendered"),
    [
        pytest.param("{n} of {max}", "3 of 9", id="each by its name"),
        pytest.param("{n}{n}", "33", id="as often as it stands"),
        pytest.param("{other} {} { } {n", "{other} {} { } {n", id="what is no placeholder stays"),
        pytest.param("{{n}} {a{n}b}", "{3} {a3b}", id="a brace before one stays"),
        pytest.param("}{n}{", "}3{", id="braces the wrong way round stay"),
        pytest.param("{say}", "{n}", id="a value is not scanned again"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_placeholders(template: str, rendered: str) -> None:
    """One row a rule; the id says the rule."""
    assert rendered == render(template, {"n": 3, "max": 9, "say": "{n}"})


class Looked(Mapping[str, str | int]):
    """Values that weigh every name that is looked for, in characters: hashing one takes as long."""

    def __init__(self) -> None:
        self.weight = 0

    def __getitem__(self, name: str) -> str | int:
        self.weight += len(name)
        return {"n": 3}[name]

    def __iter__(self) -> Iterator[str]:
        return iter(("n",))

    def __len__(self) -> int:
        return 1


def test_names_are_not_looked_for_in_what_was_looked_through() -> None:
    """Of braces that open one in another, what is looked for is not the square of the text."""
    looked = Looked()
    template = "{" * 2000 + "}"
    assert template == render(template, looked)
    assert looked.weight <= len(template)


@pytest.mark.parametrize("piece", ["{n}", "{", "{}", "{{n}", "{x", "}{"])
def test_a_text_of_nothing_but_braces_is_rendered(piece: str) -> None:
    """A megabyte of braces or placeholders is rendered; what costs the square of it would take minutes."""
    template = piece * (2**20 // len(piece))
    shown = render(template, {"n": "3"})
    assert len(template) - MOST_PLACES * len("{n}") <= len(shown) <= len(template)


def test_a_long_value_is_filled_in_so_often() -> None:
    """A text that asks for a long value without end gets it at its first places, and keeps the other
    placeholders.
    """
    shown = render("{digest}" * 100_000, {"digest": "x" * 1000})
    assert "x" * 1000 * MOST_PLACES + "{digest}" * (100_000 - MOST_PLACES) == shown
