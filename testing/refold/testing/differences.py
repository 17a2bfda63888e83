"""Differences between what was recorded and what today's agent does, as text for a failed test."""

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, cast

import msgspec

from refold.engine.models.protocol import ModelRequest
from refold.reducers import events as ev
from refold.reducers.messages import Message, ToolSchema
from refold.reducers.policy import Policy
from refold.reducers.secrets import REDACTED
from refold.testing.matchers import Matchers

_SHOWN = 300
_LINES = 12
_UNSET = object()


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One difference: `what` differs, `where` (a message, a tool, a policy key), and both sides.

    `diff` has the changed lines of two long texts; it replaces both sides on display.
    """

    what: str
    where: str = ""
    recorded: str = ""
    actual: str = ""
    diff: tuple[str, ...] = ()


def compare_texts(what: str, where: str, recorded: str, actual: str) -> Difference:
    """Return the difference of two texts; of several lines, only the changed ones."""
    if max(len(recorded), len(actual)) <= _SHOWN and not ("\n" in recorded and "\n" in actual):
        return Difference(what=what, where=where, recorded=recorded, actual=actual)
    diff = list(_changed_lines(recorded, actual))
    if len(diff) > _LINES:
        diff = [*diff[:_LINES], f"... {len(diff) - _LINES} more changed lines"]
    return Difference(what=what, where=where, recorded=recorded, actual=actual, diff=tuple(diff))


def describe_result(error: str, output: str) -> str:
    """Return a result with its error: `no error: 30`, `raised: KeyError: 'apple'`."""
    return output if error and output.startswith(f"{error}:") else f"{error or 'no error'}: {output}"


def suggest_matcher(differences: Iterable[Difference]) -> str:
    """Return the matcher that would ignore all these differences, as code; "" if no named pattern does."""
    texts = [(each.recorded, each.actual) for each in differences]
    if not texts or not all(one and other for one, other in texts):
        return ""
    for name in ("date", "time", "uuid", "temporary"):
        matchers = Matchers([name])
        if all(matchers.text(one) == matchers.text(other) for one, other in texts):
            return f"ignore=[{name!r}] accepts this difference"
    return ""


def _changed_lines(recorded: str, actual: str) -> Iterator[str]:
    for line in difflib.unified_diff(recorded.splitlines(), actual.splitlines(), n=0, lineterm=""):
        if not line.startswith(("---", "+++", "@@")):
            yield f"{line[0]} {_cut(line[1:])}"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def compare_requests(
    recorded: ModelRequest, actual: ModelRequest, matchers: Matchers
) -> Iterator[Difference]:
    """Yield the differences of two requests: tools, settings, then the first message that differs."""
    yield from compare_tools(recorded.tools, actual.tools, matchers)
    yield from compare_settings(recorded.settings, actual.settings)
    if recorded.max_output != actual.max_output:
        yield Difference(
            what="the limit of output tokens differs",
            recorded=str(recorded.max_output or "none"),
            actual=str(actual.max_output or "none"),
        )
    yield from compare_messages(recorded.messages, actual.messages, matchers)


def compare_messages(
    recorded: Sequence[Message], actual: Sequence[Message], matchers: Matchers
) -> Iterator[Difference]:
    """Yield the first difference between two prompts."""
    systems = [
        next((each.text for each in side[:1] if each.role == "system"), None) for side in (recorded, actual)
    ]
    if (systems[0] is None) != (systems[1] is None):
        what = "the system prompt is missing" if systems[1] is None else "a system prompt was added"
        yield compare_texts(what, "", systems[0] or "", systems[1] or "")
        return
    for number, (one, other) in enumerate(zip(recorded, actual, strict=False), start=1):
        if one != other and (found := _compare_message(number, one, other, matchers)):
            yield found
            return
    if len(recorded) != len(actual):
        more, word = (actual, "extra") if len(actual) > len(recorded) else (recorded, "missing")
        first = more[min(len(recorded), len(actual))]
        shown = _cut(first.text) or ", ".join(call.name for call in first.calls)
        yield Difference(
            what=f"the prompt has {len(actual)} messages, and {len(recorded)} were recorded",
            where=f"first {word}: message {min(len(recorded), len(actual)) + 1} ({first.role})",
            recorded=shown if word == "missing" else "",
            actual=shown if word == "extra" else "",
        )


def _compare_message(number: int, one: Message, other: Message, matchers: Matchers) -> Difference | None:
    where = f"message {number} ({other.role}{f' of {other.name}' if other.name else ''})"
    if one.role != other.role:
        return Difference(
            what="the role of a message differs", where=where, recorded=str(one.role), actual=str(other.role)
        )
    role, name = str(other.role), other.name or ""
    for field, left, right in (
        ("text", one.text, other.text),
        ("reasoning", one.reasoning, other.reasoning),
    ):
        sides = [matchers.text(text, message=role, name=name, field=field) for text in (left, right)]
        if _is_same(*sides):
            matchers.used = matchers.used or sides[0] != sides[1]
        else:
            kind = "the system prompt" if role == "system" else f"the {field} of a message"
            return compare_texts(f"{kind} differs", where, *sides)
    calls = [_call_texts(each, matchers) for each in (one, other)]
    if calls[0] != calls[1]:
        return compare_texts("the calls of a message differ", where, *("\n".join(each) for each in calls))
    return None


def _is_same(recorded: str, actual: str) -> bool:
    """Return whether two texts agree; what was redacted in the recording may be anything."""
    if recorded == actual or REDACTED not in recorded:
        return recorded == actual
    pattern = ".*".join(re.escape(part) for part in recorded.split(REDACTED))
    return re.fullmatch(pattern, actual, re.DOTALL) is not None


def _call_texts(message: Message, matchers: Matchers) -> list[str]:
    return [f"{each.name} {matchers.arguments(each.arguments, name=each.name)}" for each in message.calls]


def compare_tools(
    recorded: Iterable[ToolSchema], actual: Iterable[ToolSchema], matchers: Matchers
) -> Iterator[Difference]:
    """Yield each difference of the tools as the model sees them: names, descriptions, schemas, order."""
    before, now = {each.name: each for each in recorded}, {each.name: each for each in actual}
    for name in before.keys() - now.keys():
        yield Difference(what="a tool is no longer offered", where=f"tool {name}")
    for name in now.keys() - before.keys():
        yield Difference(what="a new tool is offered", where=f"tool {name}")
    for name, tool in now.items():
        if name in before and before[name] != tool:
            yield from _compare_tool(before[name], tool, matchers)
    if before.keys() == now.keys() and list(before) != list(now):
        yield Difference(
            what="the order of the tools differs", recorded=", ".join(before), actual=", ".join(now)
        )


def _compare_tool(before: ToolSchema, now: ToolSchema, matchers: Matchers) -> Iterator[Difference]:
    for field, left, right in (
        ("description", before.description, now.description),
        ("schema", _pretty(before.schema), _pretty(now.schema)),
    ):
        sides = [matchers.text(text, message="tool", name=now.name, field=field) for text in (left, right)]
        if sides[0] != sides[1]:
            yield compare_texts(f"the {field} of a tool differs", f"tool {now.name}", *sides)


def _pretty(schema: str) -> str:
    """Return a schema with a line for each argument, so that a changed one is a changed line."""
    try:
        parsed: Any = json.loads(schema)
    except ValueError:
        return schema
    if not isinstance(parsed, dict):
        return schema
    fields = cast("dict[str, Any]", parsed)
    properties = cast("dict[str, Any]", fields.pop("properties", {}))
    lines = [*properties.items(), *sorted(fields.items())]
    return "\n".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in lines)


def compare_settings(recorded: Mapping[str, str], actual: Mapping[str, str]) -> Iterator[Difference]:
    """Yield each difference of the model's sampling settings."""
    for key in sorted({*recorded, *actual}):
        if recorded.get(key) != actual.get(key):
            yield Difference(
                what="a model setting differs",
                where=key,
                recorded=recorded.get(key, "not set"),
                actual=actual.get(key, "not set"),
            )


def compare_starts(recorded: ev.RunStarted, actual: ev.RunStarted, matchers: Matchers) -> list[Difference]:
    """Return the differences of two runs' beginnings that the model would see: model, settings, tools,
    prompt.
    """
    found: list[Difference] = []
    if recorded.model != actual.model:
        found.append(Difference(what="the model differs", recorded=recorded.model, actual=actual.model))
    found += compare_settings(recorded.settings, actual.settings)
    found += compare_tools(_schemas(recorded), _schemas(actual), matchers)
    if recorded.content is not None and actual.content is not None:
        found += compare_messages(recorded.content.messages, actual.content.messages, matchers)
    return found


def _schemas(started: ev.RunStarted) -> list[ToolSchema]:
    return [
        ToolSchema(name=tool.name, description=tool.description, schema=tool.schema) for tool in started.tools
    ]


def changed_tools(recorded: ev.RunStarted, actual: ev.RunStarted) -> list[str]:
    """Return the tools whose code differs from that of the recorded run."""
    digests = {tool.name: tool.digest for tool in recorded.tools}
    return [tool.name for tool in actual.tools if digests.get(tool.name, tool.digest) != tool.digest]


def compare_manifests(recorded: ev.RunStarted, actual: ev.RunStarted) -> list[Difference]:
    """Return the differences of tools that the engine acts on and the model does not see."""
    before = {tool.name: tool for tool in recorded.tools}
    found: list[Difference] = []
    for tool in actual.tools:
        known = before.get(tool.name)
        for field in ("replay", "timeout", "agent") if known else ():
            one, other = getattr(known, field), getattr(tool, field)
            if one != other:
                found.append(
                    Difference(
                        what=f"the {field} of a tool differs",
                        where=f"tool {tool.name}",
                        recorded=str(one),
                        actual=str(other),
                    )
                )
    return found


def compare_guards(recorded: ev.RunStarted, actual: ev.RunStarted) -> list[Difference]:
    """Return each guard of the policy whose version differs, and the version of the rules if it differs."""
    before, now = ({**each.guards, "rules of refold": each.rules} for each in (recorded, actual))
    return [
        Difference(what="a version differs", where=name, recorded=str(before[name]), actual=str(now[name]))
        for name in before.keys() & now.keys()
        if before[name] != now[name]
    ]


def compare_policies(recorded: Policy, actual: Policy) -> list[Difference]:
    """Return each key of two policies that differs. Texts that only one of them has are left out."""
    return [
        Difference(what="the policy differs", where=key, recorded=_value(before), actual=_value(now))
        for key, before, now in _compare_values(
            "", msgspec.to_builtins(recorded), msgspec.to_builtins(actual)
        )
        if not (key.startswith("texts.") and _UNSET in (before, now))
    ]


def _compare_values(path: str, before: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield each place at which two plain values differ, with both."""
    if isinstance(before, dict) and isinstance(now, dict):
        one, other = cast("dict[str, Any]", before), cast("dict[str, Any]", now)
        for key in {**one, **other}:
            inner = f"{path}.{key}" if path else key
            yield from _compare_values(inner, one.get(key, _UNSET), other.get(key, _UNSET))
    elif isinstance(before, list | tuple) and isinstance(now, list | tuple):
        pairs = zip_longest(cast("Sequence[Any]", before), cast("Sequence[Any]", now), fillvalue=_UNSET)
        for place, (left, right) in enumerate(pairs):
            yield from _compare_values(f"{path}[{place}]", left, right)
    elif before != now:
        yield path, before, now


def _value(value: Any) -> str:
    if value is _UNSET:
        return "not set"
    if isinstance(value, dict):  # an entry without its empty keys
        value = {key: each for key, each in cast("dict[str, Any]", value).items() if each or each == 0}
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
