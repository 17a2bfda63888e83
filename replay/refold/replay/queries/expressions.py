"""Questions to a state: `spent_usd > 1.0 and steps >= 3`. Parsed here, never evaluated as Python.

    expression  = both { "or" both }
    both        = negation { "and" negation }
    negation    = "not" negation | comparison
    comparison  = sum [ ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) sum ]
    sum         = product { ( "+" | "-" ) product }
    product     = factor { "*" factor }
    factor      = "-" factor | "(" expression ")" | number | "text" | true | false | field

Types are checked as it is parsed: numbers are compared and added with numbers, texts and flags only compared for
equality, each with its like. Numbers are exact: integers, with as many digits after the point as were written.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import cast

from refold.reducers.state import RunState
from refold.replay.queries.expression_meaning import meaning
from refold.replay.queries.expression_nodes import (
    EQUALITY,
    ORDER,
    Field,
    Flag,
    Kind,
    Minus,
    Node,
    Not,
    Number,
    Pair,
    Sign,
    Text,
    kind_of,
    names,
    written,
)
from refold.replay.queries.questions import BadQuestion, Word, decimal, unknown, unquoted, words
from refold.replay.queries.state_fields import FIELDS

_WORDS = re.compile(
    r"""
    (?P<space>\s+)
    | (?P<number>[0-9]+(?:\.[0-9]+)?)
    | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<name>[A-Za-z_][A-Za-z_0-9]*)
    | (?P<sign>==|!=|<=|>=|[<>+\-*()=])
    """,
    re.VERBOSE | re.DOTALL,
)
_MOST_WORDS, _DEEPEST = (
    300,
    40,
)  # a person's question has fewer; deeper ones are an attempt at our stack


class Expression:
    """A question to a state that is answered with yes or no."""

    def __init__(self, tree: Node) -> None:
        """`tree` is a flag by `kind_of`, and its parts fit together: as `parse` sees to."""
        self.tree = tree
        meant = meaning(tree)
        self.holds: Callable[[RunState], bool] = meant.of
        self.lasts = not meant.trend.falls
        """Whether it is proved that it stays true once it is, in whatever log. Of some that do it cannot be proved."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the state's fields that it asks for, each once."""
        return tuple(dict.fromkeys(names(self.tree)))

    def __str__(self) -> str:
        return written(self.tree)


def parse(text: str) -> Expression:
    """The expression that a person typed. Raises `BadQuestion` with the place of what is wrong."""
    parser = _Parser(text)
    tree = parser.expression(0)
    parser.ends()
    parser.must_be(
        "flag", tree, parser.words[0], "a question is answered with yes or no: compare it with something"
    )
    return Expression(tree)


class _Parser:
    """Reads the words from left to right, one function a rule of the grammar."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.words = words(text, _WORDS)
        if len(self.words) > _MOST_WORDS:
            raise BadQuestion(text, self.words[_MOST_WORDS].at, f"more than {_MOST_WORDS} words")
        self._place = 0

    def expression(self, depth: int) -> Node:
        return self._flags("or", depth)

    def ends(self) -> None:
        word = self._next
        if word.text == "=":
            raise self._wrong(word, "to compare, write ==")
        if word.kind != "end":
            raise self._wrong(word, "expected and, or, or the end")

    def must_be(self, kind: Kind, node: Node, word: Word, problem: str) -> None:
        if kind_of(node) != kind:
            raise self._wrong(word, problem)

    def _flags(self, sign: Sign, depth: int) -> Node:
        operand = partial(self._flags, "and") if sign == "or" else self._negation
        first, left = self._next, operand(depth)
        while self._next.text == sign:
            self._take()
            word, right = self._next, operand(depth)
            for node, begin in ((left, first), (right, word)):
                self.must_be(
                    "flag", node, begin, f"{sign} stands between two questions; this is a {kind_of(node)}"
                )
            left = Pair(sign, left, right)
        return left

    def _negation(self, depth: int) -> Node:
        if self._next.text != "not":
            return self._comparison(depth)
        self._take()
        self._shallow(depth)
        word = self._next
        inner = self._negation(depth + 1)
        self.must_be("flag", inner, word, f"not stands before a question; this is a {kind_of(inner)}")
        return Not(inner)

    def _comparison(self, depth: int) -> Node:
        left = self._sum(depth)
        word = self._next
        if word.text not in EQUALITY | ORDER:
            return left
        self._take()
        right = self._sum(depth)
        one, other = kind_of(left), kind_of(right)
        if one != other:
            raise self._wrong(word, f"a {one} is compared with a {other}")
        if one != "number" and word.text in ORDER:
            raise self._wrong(word, f"a {one} has no order: compare it by == or !=")
        if self._next.text in EQUALITY | ORDER:
            raise self._wrong(self._next, "one comparison at a time: write a < b and b < c")
        return Pair(cast("Sign", word.text), left, right)

    def _sum(self, depth: int) -> Node:
        return self._arithmetic(("+", "-"), lambda: self._arithmetic(("*",), lambda: self._factor(depth)))

    def _arithmetic(self, signs: tuple[Sign, ...], operand: Callable[[], Node]) -> Node:
        left = operand()
        while (word := self._next).text in signs:
            self._take()
            right = operand()
            for node in (left, right):
                self.must_be(
                    "number", node, word, f"{word.text} stands between numbers; there is a {kind_of(node)}"
                )
            left = Pair(word.text, left, right)
        return left

    def _factor(self, depth: int) -> Node:
        word = self._take()
        match word.kind, word.text:
            case "number", text:
                return Number(*decimal(text))
            case "text", text:
                return Text(unquoted(text))
            case "name", ("true" | "false") as text:
                return Flag(text == "true")
            case "name", name if name in FIELDS:
                return Field(name)
            case "name", name if name not in ("and", "or", "not"):
                raise self._wrong(word, unknown("field", name, FIELDS))
            case _, "-":
                self._shallow(depth)
                return self._minus(depth)
            case _, "(":
                self._shallow(depth)
                return self._inside(word, depth)
            case _:
                raise self._wrong(word, 'expected a number, a "text", true, false, a field, or ( ... )')

    def _minus(self, depth: int) -> Node:
        word = self._next
        inner = self._factor(depth + 1)
        self.must_be("number", inner, word, f"- stands before a number; this is a {kind_of(inner)}")
        return Minus(inner)

    def _inside(self, word: Word, depth: int) -> Node:
        inner = self.expression(depth + 1)
        if self._take().text != ")":
            raise self._wrong(word, "this ( has no ) of its own")
        return inner

    def _shallow(self, depth: int) -> None:
        if depth >= _DEEPEST:
            raise self._wrong(self._next, f"nested more than {_DEEPEST} deep")

    @property
    def _next(self) -> Word:
        return self.words[self._place]

    def _take(self) -> Word:
        word = self._next
        self._place += word.kind != "end"
        return word

    def _wrong(self, word: Word, problem: str) -> BadQuestion:
        return BadQuestion(self.text, word.at, problem)
