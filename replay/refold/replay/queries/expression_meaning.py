"""What an expression means: a function of the state, and whether it can ever go back.

Of each part is known beforehand whether its value may rise or fall in the course of a log. So it is proved, not
guessed, that a question once answered with yes stays so.
"""

import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import msgspec

from refold.reducers.state import RunState
from refold.replay.queries.expression_nodes import Field, Flag, Minus, Node, Not, Number, Pair, Sign, Text
from refold.replay.queries.state_fields import FIELDS


class Trend(msgspec.Struct, frozen=True):
    """Whether a value may become less, or more, in the course of a log. Of a flag, true is more than false."""

    falls: bool = True
    rises: bool = True

    def turned(self) -> "Trend":
        """That of the contrary."""
        return Trend(self.rises, self.falls)

    def __or__(self, other: "Trend") -> "Trend":
        return Trend(self.falls or other.falls, self.rises or other.rises)


class Meaning(msgspec.Struct, frozen=True):
    """What a part of an expression is in a state: a number (exact), a text or a flag."""

    of: Callable[[RunState], Any]
    trend: Trend


_STILL, _ANY = Trend(falls=False, rises=False), Trend()

_OPERATORS: Mapping[Sign, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        "or": lambda one, other: one or other,
        "and": lambda one, other: one and other,
        "==": operator.eq,
        "!=": operator.ne,
        "<": operator.lt,
        "<=": operator.le,
        ">": operator.gt,
        ">=": operator.ge,
        "+": operator.add,
        "-": operator.sub,
        "*": operator.mul,
    }
)


def meaning(node: Node) -> Meaning:
    """What an expression means. The parts of `node` fit together, by `kind_of`."""
    match node:
        case Number(value=value, digits=digits):
            number = Fraction(value, 10**digits)
            return Meaning(lambda _: number, _STILL)
        case Text(value=said) | Flag(value=said):
            return Meaning(lambda _: said, _STILL)
        case Field(name=name):
            return _of_field(name)
        case Not(of=of):
            inner = meaning(of)
            return Meaning(lambda state: not inner.of(state), inner.trend.turned())
        case Minus(of=of):
            less = meaning(of)
            return Meaning(lambda state: -less.of(state), less.trend.turned())
        case Pair():
            left, right, does = meaning(node.left), meaning(node.right), _OPERATORS[node.sign]
            one, other = left.of, right.of
            return Meaning(
                lambda state: does(one(state), other(state)), _trend(node, left.trend, right.trend)
            )


def _of_field(name: str) -> Meaning:
    field = FIELDS[name]
    trend = Trend(falls=not field.rises)
    if not field.digits:
        return Meaning(field.of, trend)
    of, units = field.of, 10**field.digits
    return Meaning(lambda state: Fraction(of(state), units), trend)


def _trend(pair: Pair, left: Trend, right: Trend) -> Trend:
    match pair.sign:
        case "and" | "or" | "+":
            return left | right
        case "-" | ">" | ">=":
            return left | right.turned()
        case "<" | "<=":
            return left.turned() | right
        case "*":
            # Times a constant: its sign decides. Two that both move may do anything.
            for constant, moves in ((pair.left, right), (pair.right, left)):
                if isinstance(constant, Number):
                    return moves if constant.value else _STILL
                if isinstance(constant, Minus) and isinstance(constant.of, Number):
                    return moves.turned() if constant.of.value else _STILL
        case "==" | "!=":
            pass
    return _STILL if left == right == _STILL else _ANY
