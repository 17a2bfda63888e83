"""What an expression is made of, as data, and how it is written."""

from collections.abc import Iterator
from typing import Literal

import msgspec

from refold.replay.queries.questions import quoted
from refold.replay.queries.state_fields import FLAGS, NUMBERS

Kind = Literal["number", "text", "flag"]
Sign = Literal["or", "and", "==", "!=", "<", "<=", ">", ">=", "+", "-", "*"]

ARITHMETIC: frozenset[str] = frozenset({"+", "-", "*"})
EQUALITY: frozenset[str] = frozenset({"==", "!="})
ORDER: frozenset[str] = frozenset({"<", "<=", ">", ">="})


class _Node(msgspec.Struct, frozen=True):
    """Base of the parts of an expression."""


class Number(_Node, frozen=True):
    """An exact number: its digits as one integer, so many of them after the point."""

    value: int
    digits: int = 0


class Text(_Node, frozen=True):
    """A word to compare with."""

    value: str


class Flag(_Node, frozen=True):
    """`true` or `false`."""

    value: bool


class Field(_Node, frozen=True):
    """What the state says by this name."""

    name: str


class Not(_Node, frozen=True):
    """The contrary of a flag."""

    of: "Node"


class Minus(_Node, frozen=True):
    """A number below 0 instead of above."""

    of: "Node"


class Pair(_Node, frozen=True):
    """Two parts with a sign between them."""

    sign: Sign
    left: "Node"
    right: "Node"


Node = Number | Text | Flag | Field | Not | Minus | Pair


def kind_of(node: Node) -> Kind:
    """Of what type its value is."""
    match node:
        case Number() | Minus():
            return "number"
        case Text():
            return "text"
        case Flag() | Not():
            return "flag"
        case Field(name=name):
            return "number" if name in NUMBERS else "flag" if name in FLAGS else "text"
        case Pair(sign=sign):
            return "number" if sign in ARITHMETIC else "flag"


def written(node: Node) -> str:
    """The expression as text that parses to it again."""
    match node:
        case Number(value=value, digits=digits):
            text = f"{value:0{digits + 1}}"
            return f"{text[:-digits]}.{text[-digits:]}" if digits else text
        case Text(value=value):
            return quoted(value)
        case Flag(value=value):
            return "true" if value else "false"
        case Field(name=name):
            return name
        case Not(of=of):
            return f"not {_part(of)}"
        case Minus(of=of):
            return f"-{_part(of)}"
        case Pair(sign=sign, left=left, right=right):
            return f"{_part(left)} {sign} {_part(right)}"


def names(node: Node) -> Iterator[str]:
    """The names of all fields in it, in order."""
    match node:
        case Field(name=name):
            yield name
        case Not(of=of) | Minus(of=of):
            yield from names(of)
        case Pair(left=left, right=right):
            yield from names(left)
            yield from names(right)
        case _:
            pass


def _part(node: Node) -> str:
    return f"({written(node)})" if isinstance(node, Pair | Not) else written(node)
