"""YAML as plain data, for policy files. Needs the extra `cli`, so import it where it is used.

Duplicate keys are refused, and so are aliases, with which a few lines can expand to gigabytes.
"""

from collections.abc import Hashable
from typing import Any, cast

import yaml

from refold.engine.arguments import DEEPEST, BadSyntax


def load(text: str) -> Any:
    """Load YAML text; an empty text is an empty mapping. Raises `BadSyntax` with line and column."""
    try:
        loaded: Any = yaml.load(text, Loader=_Strict)  # noqa: S506 - a SafeLoader, made stricter
    except yaml.MarkedYAMLError as error:
        raise BadSyntax(f"is not valid YAML: {error.problem}{_place(error.problem_mark)}") from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # the last two for numbers and `"\\U…"`
        raise BadSyntax(f"is not valid YAML: {error}") from error
    return {} if loaded is None else loaded


class _Strict(yaml.SafeLoader):
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            alias = cast("yaml.AliasEvent", self.peek_event())  # type: ignore[no-untyped-call]
            raise BadSyntax(f"has an alias; write out its value{_place(alias.start_mark)}")
        if self.depth == DEEPEST:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise BadSyntax(f"is nested too deeply to be a policy{_place(mark)}")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 - the library's
        try:
            made: Any = super().construct_object(node, deep)  # pyright: ignore[reportUnknownMemberType]
            return made
        except (AttributeError, LookupError, TypeError) as error:  # the value does not match its tag
            kind = node.tag.rpartition(":")[2]
            raise BadSyntax(f"is not valid YAML: not of type {kind!r}{_place(node.start_mark)}") from error

    def construct_mapping(
        self,
        node: yaml.Node,  # a tag may declare a list as a mapping
        deep: bool = False,  # noqa: FBT001, FBT002 - the library's
    ) -> dict[Hashable, Any]:
        seen: set[str] = set()
        if not isinstance(node, yaml.MappingNode):
            problem = "a value tagged as a mapping is not one"
            raise BadSyntax(f"is not valid YAML: {problem}{_place(node.start_mark)}")
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                raise BadSyntax(f"the key {name!r} is listed twice; keep one{_place(key.start_mark)}")
            seen.add(name)
            # Keys are always strings; YAML would read `on` as true and `null` as nothing.
            key.tag = "tag:yaml.org,2002:str" if isinstance(key, yaml.ScalarNode) else key.tag
        return super().construct_mapping(node, deep)


def _place(mark: Any) -> str:
    return "" if mark is None else f" (at line {mark.line + 1}, column {mark.column + 1})"


def dump(data: dict[str, Any], *, escaped: bool = False) -> str:
    """Write plain data as YAML without aliases, in the order of its keys; `escaped`: in ASCII."""
    write = cast("Any", yaml).dump  # some versions of its type stubs are incomplete
    text: str = write(data, Dumper=_Plain, sort_keys=False, allow_unicode=not escaped, width=100)
    return text


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True
