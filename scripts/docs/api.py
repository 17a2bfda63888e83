"""API pages of the packages: signatures of classes and functions as in the source, and docstrings.

Types, defaults and comments of fields come from the code. Public names that are neither classes nor functions
(tables, unions) are described only on docs/reference/python.md, which lists every public name.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from types import FunctionType

PACKAGES = ("engine", "importers", "replay", "store", "testing", "reducers")


def described(package: str) -> list[str]:
    """Return the public classes and functions of a package, sorted."""
    module = import_module(f"refold.{package}")
    names = sorted(module.__all__, key=str.lower)
    return [name for name in names if isinstance(getattr(module, name), type | FunctionType)]


def page(package: str) -> str:
    """Return the Markdown of a package's page."""
    module = import_module(f"refold.{package}")
    entries = [_entry(getattr(module, name), name) for name in described(package)]
    return f"# `refold.{package}`\n\n{inspect.getdoc(module)}\n\n" + "\n".join(entries)


def _entry(thing: type | FunctionType, name: str) -> str:
    if isinstance(thing, FunctionType):
        return f"## `{name}`\n\n{_function(thing)}"
    methods = [f"### `{name}.{method.__name__}`\n\n{_function(method)}" for method in _methods(thing)]
    return "\n".join([f"## `{name}`\n\n{_code(_class_head(thing))}{_doc(thing)}\n", *methods])


def _function(function: FunctionType) -> str:
    lines, node = _parsed(function)
    return f"{_code(_head(lines, node))}{_doc(function)}\n"


def _class_head(thing: type) -> str:
    """Return the head of a class, its public fields (those of bases without entry first), and `__init__`."""
    lines, node = _parsed(thing)
    fields = [line for base in _bases_without_entry(thing) for line in _fields(base)]
    inside = [f"    {line}" for line in fields]
    if (
        (made := vars(thing).get("__init__"))
        and isinstance(made, FunctionType)
        and made.__module__ == thing.__module__
    ):
        inside.append(textwrap.indent(_head(*_parsed(made)), "    "))
    return "\n".join([_head(lines, node), *inside])


def _fields(thing: type) -> Iterator[str]:
    """Yield the source lines of public fields or enumeration members, with their comments."""
    lines, node = _parsed(thing)
    for each in node.body if isinstance(node, ast.ClassDef) else []:
        target: ast.expr | None = each.target if isinstance(each, ast.AnnAssign) else None
        if isinstance(each, ast.Assign) and issubclass(thing, Enum):
            target = each.targets[0]
        if isinstance(target, ast.Name) and not target.id.startswith("_"):
            yield textwrap.dedent("\n".join(lines[each.lineno - 1 : each.end_lineno]))


def _methods(thing: type) -> list[FunctionType]:
    """Return public methods and properties, including those of bases without an entry."""
    found: dict[str, FunctionType] = {}
    for base in _bases_without_entry(thing):
        for name, member in vars(base).items():
            plain = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if not name.startswith("_") and isinstance(plain, FunctionType):
                found[name] = plain
    return list(found.values())


def _bases_without_entry(thing: type) -> list[type]:
    """Return the class, preceded by its refold bases without an entry, furthest first."""
    public = {
        getattr(import_module(f"refold.{package}"), name)
        for package in PACKAGES
        for name in described(package)
    }
    ours = [base for base in thing.__mro__ if base.__module__.startswith("refold.")]
    return [base for base in reversed(ours) if base is thing or base not in public]


def _parsed(thing: type | FunctionType) -> tuple[list[str], ast.stmt]:
    source = textwrap.dedent(inspect.getsource(thing))
    return source.splitlines(), ast.parse(source).body[0]


def _head(lines: list[str], node: ast.stmt) -> str:
    """Return the source before the body of a class or function, with decorators."""
    assert isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    first = node.body[0]
    before = [
        *lines[: first.lineno - 1],
        lines[first.lineno - 1][: first.col_offset],
    ]  # `def f() -> int: ...`
    return "\n".join(before).rstrip().removesuffix(":")


def _code(text: str) -> str:
    return f"```python\n{text}\n```\n\n"


def _doc(thing: type | FunctionType) -> str:
    return (inspect.getdoc(thing) or "").strip() + "\n"
