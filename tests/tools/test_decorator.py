"""What `@tool` makes of a function."""

import enum
import functools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Annotated, Any, Literal

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec
import pytest

from refold.engine.tools.decorator import tool
from refold.engine.tools.protocol import BadArguments, CallContext, Tool
from refold.reducers.errors import WrongUse
from refold.reducers.vocabulary import Replay

pytestmark = pytest.mark.anyio

CALL = CallContext(run="r", call="c1", key="k1")


def print_nothing() -> None:
    """Does nothing."""


def takes_to(to: str) -> None:
    """A reconciler that takes an argument."""


def takes_all(*rest: str) -> None:
    """A reconciler that takes any."""


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(msgspec.Struct, forbid_unknown_fields=True):
    x: int
    y: int = 0


class Cat(msgspec.Struct, tag="cat"):
    lives: int = 9


class Dog(msgspec.Struct, tag="dog"):
    name: str


class Node(msgspec.Struct):
    value: int
    kids: "list[Node]" = []


def schema(made: Tool) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(made.manifest.schema)
    return decoded


def of(annotation: Any, default: Any = ...) -> Tool:
    """A tool of one argument `x` that shows what it got."""

    def show(x: Any = default) -> str:
        return repr(x)

    show.__annotations__["x"] = annotation
    if default is ...:
        show.__defaults__ = None
    return tool(show)


@pytest.mark.parametrize(
    ("annotation", "default", "expected"),
    [
        pytest.param(int, ..., {"type": "integer"}, id="a number"),
        pytest.param(bool, True, {"type": "boolean", "default": True}, id="a default"),
        pytest.param(
            Annotated[str, msgspec.Meta(max_length=4, description="short")],
            ...,
            {"type": "string", "maxLength": 4, "description": "short"},
            id="constraints and a description",
        ),
        pytest.param(Literal["b", "a"], "a", {"enum": ["a", "b"], "default": "a"}, id="a literal"),
        pytest.param(Colour, Colour.RED, {"enum": ["blue", "red"], "default": "red"}, id="an enum"),
        pytest.param(
            set[str],
            frozenset({"q", "p"}),
            {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "default": ["p", "q"]},
            id="a set, in order",
        ),
        pytest.param(
            str | None,
            None,
            {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            id="optional",
        ),
        pytest.param(
            list[Point],
            ...,
            {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
                    "required": ["x"],
                    "additionalProperties": False,
                },
            },
            id="a nested object is laid out, not referred to",
        ),
        pytest.param(
            Cat | Dog,
            ...,
            {
                "anyOf": [
                    {
                        "type": "object",
                        "properties": {"type": {"enum": ["cat"]}, "lives": {"type": "integer", "default": 9}},
                        "required": ["type"],
                    },
                    {
                        "type": "object",
                        "properties": {"type": {"enum": ["dog"]}, "name": {"type": "string"}},
                        "required": ["type", "name"],
                    },
                ]
            },
            id="a tagged union has no discriminator that refers elsewhere",
        ),
    ],
)
def test_schema(annotation: Any, default: Any, expected: dict[str, Any]) -> None:
    """One row a kind of argument: the schema of the argument is exactly this."""
    got = schema(of(annotation, default))
    assert {
        "type": "object",
        "properties": {"x": expected},
        "required": ["x"] if default is ... else [],
        "additionalProperties": False,
    } == got


def test_a_type_that_holds_itself_keeps_its_definition() -> None:
    """Every reference left in a schema points into the same schema."""
    got = schema(of(Node))
    assert {"$ref": "#/$defs/Node"} == got["$defs"]["Node"]["properties"]["kids"]["items"]
    assert "object" == got["properties"]["x"]["type"]


def test_arguments_keep_the_order_of_the_signature() -> None:
    """A model reads the arguments in the order in which the function has them."""

    @tool
    def move(source: str, destination: str, again: bool = False) -> None: ...

    assert ["source", "destination", "again"] == list(schema(move)["properties"])


async def test_context_is_given_and_not_offered() -> None:
    """A parameter annotated CallContext is absent from the schema and gets the call's context."""

    @tool
    def key(text: str, context: CallContext) -> str:
        return f"{text} {context.key}"

    assert ["text"] == list(schema(key)["properties"])
    assert "a k1" == await key.run('{"text": "a"}', CALL)
    with pytest.raises(BadArguments, match="unknown field `context`"):
        await key.run('{"text": "a", "context": {"run": "x", "call": "y", "key": "z"}}', CALL)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param("{}", "Object missing required field `x`. f takes: x, points (optional)", id="missing"),
        pytest.param(
            '{"x": "1"}', "Expected `int`, got `str` - at `$.x`. f takes: x, points (optional)", id="type"
        ),
        pytest.param(
            '{"x": 1, "points": [{"x": null}]}',
            "Expected `int`, got `null` - at `$.points[0].x`. f takes: x, points (optional)",
            id="within",
        ),
        pytest.param(
            '{"x": 1, "z": 2}',
            "Object contains unknown field `z`. f takes: x, points (optional)",
            id="unknown",
        ),
        pytest.param("[]", "Expected `object`, got `array`. f takes: x, points (optional)", id="no object"),
        pytest.param('{"x": 1', "Input data was truncated. f takes: x, points (optional)", id="no JSON"),
        pytest.param(
            '{"x": 1, "p\ud800": 2}',
            "Character 11 of the arguments is half a character. f takes: x, points (optional)",
            id="a lone surrogate",
        ),
    ],
)
async def test_bad_arguments_name_the_place(arguments: str, message: str) -> None:
    """Arguments against the schema raise BadArguments that says where, and what was expected; the tool is not run."""

    @tool
    def f(x: int, points: list[Point] = []) -> None:  # noqa: B006 - a default that is shared, on purpose
        raise AssertionError(x, points)

    with pytest.raises(BadArguments) as caught:
        await f.run(arguments, CALL)
    assert message == str(caught.value)


async def test_arguments_nested_too_deeply_are_bad_arguments() -> None:
    """Arguments that would exhaust the stack are refused like any others."""
    with pytest.raises(BadArguments, match="nested too deeply"):
        await of(Any).run('{"x": ' + "[" * 100_000, CALL)


async def test_a_default_is_not_shared_between_calls() -> None:
    """What one call does to a default value does not reach the next call."""

    @tool
    def grow(items: list[int] = [1]) -> list[int]:  # noqa: B006 - what the test is about
        items.append(2)
        return items

    assert ["[1,2]", "[1,2]"] == [await grow.run("{}", CALL), await grow.run("{}", CALL)]


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
    """Options reach the tool as given; the default replay class is at_most_once; the function can still be called."""

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
            custom, {}, "tool custom, parameter x: JSON cannot carry its type", id="unsupported type"
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
            "tool f: has no reconcile: a tool is replay='reconcilable' together with a function reconcile=",
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


async def test_async_tools_run_in_the_loop_and_sync_ones_in_a_thread() -> None:
    """An async function shares the thread of the loop, any other does not, and a wrapped async one is awaited."""

    @tool
    async def here() -> bool:
        await anyio.lowlevel.checkpoint()
        return threading.current_thread() is threading.main_thread()

    @tool
    def there() -> bool:
        return threading.current_thread() is threading.main_thread()

    def plain(function: Callable[[], Awaitable[bool]]) -> Callable[[], Awaitable[bool]]:
        @functools.wraps(function)
        def wrapper() -> Awaitable[bool]:
            return function()

        return wrapper

    assert ["true", "false", "true"] == [
        await t.run("{}", CALL) for t in (here, there, tool(plain(here.function)))
    ]


async def test_exceptions_of_a_tool_pass_unchanged() -> None:
    """What a tool raises, in a thread or not, reaches the engine as it was raised."""
    problem = KeyError("mine")

    @tool
    def there() -> None:
        raise problem

    @tool
    async def here() -> None:
        raise problem

    for made in (here, there):
        with pytest.raises(KeyError) as caught:
            await made.run("{}", CALL)
        assert problem is caught.value


async def test_a_cancelled_sync_tool_is_abandoned() -> None:
    """Cancellation returns while the thread still runs; the thread is not waited for."""
    started, release, ended = threading.Event(), threading.Event(), threading.Event()

    @tool
    def hang() -> None:
        started.set()
        release.wait(10)
        ended.set()

    async def cancel_when_started(scope: anyio.CancelScope) -> None:
        await anyio.to_thread.run_sync(started.wait)
        scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cancel_when_started, tasks.cancel_scope)
        await hang.run("{}", CALL)
    assert not ended.is_set()
    release.set()
    assert ended.wait(10)


async def test_tools_that_hang_do_not_hold_up_others() -> None:
    """After more abandoned calls than a shared pool has places, another sync tool still runs."""
    release = threading.Event()
    begun = threading.Semaphore(0)

    @tool
    def hang() -> None:
        begun.release()
        release.wait(10)

    @tool
    def work() -> str:
        return "done"

    async def call() -> None:
        await hang.run("{}", CALL)

    try:
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                for _ in range(50):
                    tasks.start_soon(call)
                for _ in range(50):
                    await anyio.to_thread.run_sync(
                        begun.acquire, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
                    )
                tasks.cancel_scope.cancel()
            assert "done" == await work.run("{}", CALL)
    finally:
        release.set()


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
