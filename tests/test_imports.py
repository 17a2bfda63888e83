"""What importing costs, and what the pure core may touch.

The layers are import-linter's (see pyproject.toml). Here is what it cannot say: what is loaded at run time,
and which built-ins and statements would let the world into a reducer.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
REDUCERS = ROOT / "reducers" / "refold" / "reducers"

# Import every module of the packages named on the command line, and print what that brought in.
# The modules that Python itself loads at start (site, editable installs) are no doing of ours.
LOADED = """
import sys
before = set(sys.modules)
import importlib, pkgutil
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        importlib.import_module(module.name)
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)))
"""


def loaded_by(*packages: str) -> set[str]:
    """The top-level modules outside the standard library that all modules of `packages` load, in a fresh
    process.
    """
    done = subprocess.run(
        [sys.executable, "-I", "-W", "error", "-c", LOADED, *packages],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_reducers_load_msgspec_and_the_standard_library() -> None:
    """The pure core can be embedded anywhere: it needs one library."""
    # msgspec prefers typing_extensions to typing where something else has installed it; it does not depend on
    # it.
    assert {"msgspec", "refold"} == loaded_by("refold.reducers") - {"typing_extensions"}


# The modules of each extra. An extra's module is imported in the function that needs it, so that who did not
# ask for it neither needs it nor waits for it.
EXTRAS = {
    "models": {"anthropic", "genai_prices", "httpx", "openai", "pydantic", "pydantic_ai", "pydantic_core"},
    "local": {"pip", "platformdirs", "xllamacpp"},
    "cli": {"click", "rich", "yaml"},
    "seal": {"cryptography"},
    "postgres": {"psycopg"},
    "dask": {"dask", "distributed"},
    "ray": {"ray"},
    "tokens": {"splintr"},
    "dev": {"_pytest", "hypothesis", "pytest", "trio"},
}

# What `pip install refold` brings, and nothing else.
CORE = {
    "aiosqlite", "anyio", "idna", "lazy_loader", "msgspec", "packaging", "re2", "six", "transitions",
    "typing_extensions",
}  # fmt: skip

# Modules whose topic is the library of an extra: others import them in the function that needs them.
OF_AN_EXTRA = {"refold.engine.yaml_text", "refold.store.postgres", "refold.store.testing"}

# Import every module where only the core's libraries can be found, then ask for each public name.
WITH_THE_CORE_ALONE = """
import sys
allowed = set(sys.stdlib_module_names) | {"refold", *sys.argv[2].split()}
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in allowed:
            raise ModuleNotFoundError(name + " is not of the core", name=name)
sys.meta_path.insert(0, Refuse())
import importlib, pkgutil
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(package.__path__, sys.argv[1] + "."):
    if not (module.name + ".").startswith(tuple(name + "." for name in sys.argv[3].split())):
        importlib.import_module(module.name)
for name in package.__all__:
    getattr(package, name)
"""


@pytest.mark.parametrize("package", ["reducers", "store", "engine", "importers", "replay"])
def test_the_libraries_need_the_core_alone(package: str) -> None:
    """Every module and public name of the libraries can be had where no extra is installed."""
    words = [f"refold.{package}", " ".join(CORE), " ".join(OF_AN_EXTRA)]
    done = subprocess.run(
        [sys.executable, "-I", "-c", WITH_THE_CORE_ALONE, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_libraries_load_no_test_tools() -> None:
    """`import refold.engine, refold.replay, refold.store` is not `import refold.store.testing`."""
    code = "import refold.engine, refold.replay, refold.store, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert set() == set(done.stdout.split()) & set[str]().union(*EXTRAS.values())


# Modules that are functions of their arguments and nothing else. To add one is to say so.
PURE_MODULES = frozenset(
    {
        "abc",
        "ast",
        "base64",
        "binascii",
        "bisect",
        "collections",
        "copy",
        "dataclasses",
        "decimal",
        "difflib",
        "enum",
        "fnmatch",
        "fractions",
        "functools",
        "hashlib",
        "heapq",
        "hmac",
        "itertools",
        "json",
        "math",
        "msgspec",
        "operator",
        "re",
        "re2",
        "shlex",
        "refold",
        "splintr",
        "string",
        "textwrap",
        "tomllib",
        "tree_sitter",
        "tree_sitter_bash",
        "types",
        "typing",
        "unicodedata",
        "urllib",
    }
)

# Built-ins that reach the world, the interpreter, or a value that differs from one process to the next
# (`hash` of a text is salted, `id` is an address).
IMPURE_BUILTINS = frozenset(
    {
        "__import__",
        "breakpoint",
        "compile",
        "eval",
        "exec",
        "globals",
        "hash",
        "id",
        "input",
        "open",
        "print",
        "vars",
    }
)


def impurities(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of everything in a module that a reducer may not have."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names, lineno=line):
                yield from ((line, name.name) for name in names if not is_pure(name.name))
            case ast.ImportFrom(module=module, level=level, lineno=line) if level or not is_pure(
                module or ""
            ):
                yield line, "." * level + (module or "")
            case ast.Name(id=name, ctx=ast.Load(), lineno=line) if name in IMPURE_BUILTINS:
                yield line, name
            case ast.Attribute(attr=("__setattr__" | "__dict__") as name, lineno=line):
                yield line, name
            case ast.AsyncFunctionDef(lineno=line) | ast.Await(lineno=line):
                yield line, "async"
            case ast.Global(lineno=line) | ast.Nonlocal(lineno=line):
                yield line, "global or nonlocal"
            case _:
                pass


def is_pure(module: str) -> bool:
    return module.partition(".")[0] in PURE_MODULES


@pytest.mark.parametrize(
    ("source", "named"),
    [
        pytest.param("import time", "time", id="a clock"),
        pytest.param("from datetime import datetime", "datetime", id="a clock in a method"),
        pytest.param("def f():\n    import random", "random", id="chance, imported late"),
        pytest.param("from . import window", ".", id="a relative import"),
        pytest.param("open('policy.json')", "open", id="a file"),
        pytest.param("key = hash(text)", "hash", id="a salted hash"),
        pytest.param("sorted(calls, key=id)", "id", id="an address"),
        pytest.param("async def decide(): ...", "async", id="an event loop"),
        pytest.param("def f():\n    global seen", "global or nonlocal", id="hidden state"),
        pytest.param("object.__setattr__(state, 'step', 2)", "__setattr__", id="a mutated frozen struct"),
    ],
)
def test_what_counts_as_impure(source: str, named: str) -> None:
    """Each way for the world to get into a reducer is seen."""
    assert [named] == [name for _, name in impurities(ast.parse(source))]


def test_reducers_are_pure() -> None:
    """No reducer can read a clock, draw a number, open a file, or keep state of its own."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted(REDUCERS.rglob("*.py"))
        for line, name in impurities(ast.parse(path.read_bytes()))
    ]
    assert not found, "\n".join(found)
