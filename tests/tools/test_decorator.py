"""What `@tool` makes of a function: its name, words, options and digest; and of what it makes none."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from refold.engine.tools.decorator import tool
from refold.engine.tools.protocol import Tool
from refold.reducers.errors import WrongUse
from refold.reducers.vocabulary import Replay
from support.tool_of import CALL, of, schema

pytestmark = pytest.mark.anyio


def takes_to(to: str) -> None:
    """A reconciler that takes an argument."""


def takes_all(*rest: str) -> None:
    """A reconciler that takes any."""


def test_name_description_and_arguments_come_from_the_function() -> None:
    """The docstring's prose is the description; what it says of arguments stands in the schema."""

    @tool
    def fetch(url: str, tries: int = 3) -> str:
        """Fetch a page.

        Args:
            url: where it is
            tries: how often
                to try
        """
        return url * tries

    assert ("fetch", "Fetch a page.") == (fetch.name, fetch.manifest.description)
    described = {name: each["description"] for name, each in schema(fetch)["properties"].items()}
    assert {"url": "where it is", "tries": "how often to try"} == described


def test_options_are_kept_and_the_function_too() -> None:
    """Options reach the tool as given; the default replay class is at_most_once; the function can still be
    called.
    """

    def hide(text: str) -> str:
        return text.replace("secret", "***")

    @tool(name="other-name", replay="idempotent", timeout=2.5, redact=hide)
    def plain(x: int) -> int:
        return x + 1

    @tool
    def bare() -> None: ...

    assert ("other-name", Replay.IDEMPOTENT, 2_500_000_000, hide) == (
        plain.name,
        plain.manifest.replay,
        plain.manifest.timeout,
        plain.redact,
    )
    assert 2 == plain.function(1)
    assert Replay.AT_MOST_ONCE == bare.manifest.replay


def star(*numbers: int) -> None: ...


def stars(**options: int) -> None: ...


def position(x: int, /) -> None: ...


def untyped(x) -> None: ...  # type: ignore[no-untyped-def]


def custom(x: threading.Event) -> None: ...


def lying(x: int = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013


def missing(x: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821


def dunder(__x: int) -> None: ...


def generator(x: int) -> Iterator[int]:
    yield x


class Thing:
    def method(self, x: int) -> int:
        return x + 1


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        pytest.param(star, {}, r"tool star, parameter \*numbers: int: takes any number", id="*args"),
        pytest.param(stars, {}, r"tool stars, parameter \*\*options: int: takes any name", id="**kwargs"),
        pytest.param(
            position, {}, "tool position, parameter x: int: is positional-only", id="positional-only"
        ),
        pytest.param(untyped, {}, "tool untyped, parameter x: has no type annotation", id="no annotation"),
        pytest.param(
            custom,
            {},
            "tool custom, parameter x: its type cannot be serialized as JSON",
            id="unsupported type",
        ),
        pytest.param(lying, {}, "tool lying, .*the default does not fit", id="a default of another type"),
        pytest.param(
            missing, {}, "tool missing: its annotations cannot be read .*Nowhere", id="a type not imported"
        ),
        pytest.param(dunder, {}, "tool dunder, parameter __x: .*two underscores", id="two underscores"),
        pytest.param(generator, {}, "tool generator: is a generator", id="a generator"),
        pytest.param(
            Thing.method, {}, r"tool method, parameter self: .*tool\(thing.method\)", id="unbound method"
        ),
        pytest.param(
            Thing, {}, "tool: expected a function or a bound method, got the class Thing", id="a class"
        ),
        pytest.param(lambda: "", {}, "tool '<lambda>': a name has .* with def", id="no name"),
        pytest.param(print, {"name": "a b"}, "tool 'a b': a name has", id="a name with a space"),
        pytest.param(
            lambda: "", {"name": "f", "timeout": 0}, "timeout: expected seconds above 0", id="timeout 0"
        ),
        pytest.param(
            lambda: "",
            {"name": "f", "timeout": float("nan")},
            "timeout: expected seconds above 0",
            id="timeout nan",
        ),
        pytest.param(
            lambda: "",
            {"name": "f", "replay": "twice"},
            "tool f: replay: expected one of read_only, idempotent, reconcilable, at_most_once, got 'twice'",
            id="replay",
        ),
        pytest.param(
            lambda: "",
            {"name": "f", "replay": "reconcilable"},
            "tool f: has no reconcile: give both replay='reconcilable' and reconcile=",
            id="nobody to ask what happened",
        ),
        pytest.param(
            lambda: "",
            {"name": "f", "replay": "idempotent", "reconcile": lambda: None},
            "tool f: is idempotent and has a reconcile",
            id="somebody to ask whom nobody asks",
        ),
        pytest.param(
            lambda: "",
            {"name": "f", "replay": "reconcilable", "reconcile": takes_to},
            r"tool f: reconcile: parameter to: str: expected arguments of the tool by their names \(it has none\)",
            id="a reconcile that takes what the tool does not",
        ),
        pytest.param(
            lambda: "",
            {"name": "f", "replay": "reconcilable", "reconcile": takes_all},
            r"tool f: reconcile: parameter \*rest: str: expected",
            id="a reconcile that takes whatever there is",
        ),
    ],
)
def test_what_cannot_be_a_tool(
    function: Callable[..., object], options: dict[str, Any], message: str
) -> None:
    """One row a mistake: it is refused at decoration, by an error that names the place."""
    with pytest.raises(WrongUse, match=message):
        tool(**options)(function)


async def test_a_bound_method_is_a_tool() -> None:
    """The object of a bound method is no argument of the tool."""
    assert "2" == await tool(Thing().method).run('{"x": 1}', CALL)


def test_the_digest_tells_edited_code_and_another_schema() -> None:
    """Equal source and schema have an equal digest; a changed body, decorator or schema another."""

    def make(value: int) -> Tool:
        @tool
        def same(x: int) -> int:
            return x + value

        return same

    @tool
    def same(x: int) -> int:
        return x - 1

    assert (
        make(1).manifest.digest == make(2).manifest.digest
    )  # the code is the same, what it closes over is not part of it
    assert same.manifest.digest != make(1).manifest.digest
    assert of(int).manifest.digest != of(str).manifest.digest
    assert 64 == len(same.manifest.digest)


HASHED = """
from refold.engine.tools.decorator import tool
@tool
def f(words: set[str] = frozenset({"a", "b", "c", "d"})) -> bool:
    return bool(words & {"p", "q", "r", "s"}) and "a" in {"x", "y", "z"}
print(f.manifest.digest, f.manifest.schema)
"""


def test_schema_and_digest_do_not_depend_on_the_hash_seed() -> None:
    """Two processes with different hash seeds give equal bytes, without source to read too."""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", HASHED],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert 1 == len(outputs)
