"""What is read out of a docstring."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.engine.tools.decorator import parse

GOOGLE = """Do it.

    At once.

    Args:
        path (str): where: in the tree
            and how deep
        deep: whether

    Returns:
        path: no argument

    Try again later.
    """
SPHINX = """Do it.

    :param path: where
        it is
    :param int deep: how deep
    :type deep: int
    :returns: nothing
        much
    :raises ValueError: never
    """


@pytest.mark.parametrize(
    ("docstring", "description", "arguments"),
    [
        pytest.param(None, "", {}, id="none"),
        pytest.param("One line.", "One line.", {}, id="one line"),
        pytest.param(
            GOOGLE,
            "Do it.\n\nAt once.\n\nTry again later.",
            {"path": "where: in the tree and how deep", "deep": "whether"},
            id="Google",
        ),
        pytest.param(
            "Do.\n\nParams:\n  x: one\n    more: of it\n  y: two",
            "Do.",
            {"x": "one more: of it", "y": "two"},
            id="two spaces",
        ),
        pytest.param(SPHINX, "Do it.", {"path": "where it is", "deep": "how deep"}, id="Sphinx"),
        pytest.param(
            "\n    Args:\n        x: only that\n", "", {"x": "only that"}, id="nothing but arguments"
        ),
        pytest.param(
            "Note: a colon.\n\n    indented: too\nEnd.",
            "Note: a colon.\n\n    indented: too\nEnd.",
            {},
            id="prose",
        ),
    ],
)
def test_docstrings(docstring: str | None, description: str, arguments: dict[str, str]) -> None:
    """One row a style: the description and the arguments are exactly these."""
    assert (description, arguments) == parse(docstring)


@given(st.text(alphabet=st.sampled_from("Args:param x()\n\t *.é\ud800"), max_size=80))
def test_any_docstring_is_read(docstring: str) -> None:
    """No text raises, and a description never has space around it."""
    description = parse(docstring).description
    assert description == description.strip()
