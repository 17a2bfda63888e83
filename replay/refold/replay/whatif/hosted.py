"""Calls that a provider ran within a response, such as a web search: which rules of a policy are about them."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from refold.reducers.events import SourceRecorded
from refold.reducers.patterns import occurs, rule, searched
from refold.reducers.policy import Policy

_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "web_search_call": "web_search",
        "file_search_call": "file_search",
        "image_generation_call": "image_generation",
        "code_interpreter_call": "code_interpreter",
    }
)
"""Items that only the provider runs, and the tool that each is a call of. Of other items nobody here knows who ran them."""


def objection(event: SourceRecorded, one: Policy, other: Policy) -> str | None:
    """Return why a hosted call leaves the other policy's verdict open; "" if it does not, None if nobody knows what it was.

    A policy cannot refuse what the provider ran. If the policies differ in rules over arguments only, such a call is no
    loss where no rule is about its tool, or none finds its pattern in what was recorded of it.
    """
    item = _item(event)
    name = _NAMES.get(str(item.get("type")))
    # A guard brings texts along: they tell the model something, and have nothing to do with what a provider ran.
    if name is None or replace(other, guards=one.guards, texts=one.texts) != one:
        return None
    changed = [
        each for each in (*one.guards, *other.guards) if (each in one.guards) != (each in other.guards)
    ]
    if any(each["guard"] != "arguments" for each in changed):
        return None
    given = msgspec.json.encode(item.get("action") or {}).decode()
    for each in changed:
        if not any(fnmatchcase(called, each.get("tool", "*")) for called in (name, str(item["type"]))):
            continue
        unless, field = each.get("unless"), each.get("field")
        texts = searched(given, field)
        if not texts and not field:
            return None
        if occurs(each["matches"], texts, unless) is not False:
            found = rule(each["matches"], unless)
            return f"the provider ran {name}, which matches the rule {found}: no policy could have refused it"
    return ""


def _item(event: SourceRecorded) -> Mapping[str, Any]:
    try:
        row: Any = msgspec.json.decode(event.content.text if event.content else "{}")
    except (msgspec.DecodeError, RecursionError):
        return {}
    item: Any = cast("dict[str, Any]", row).get("payload", row) if isinstance(row, dict) else None
    return cast("Mapping[str, Any]", item) if isinstance(item, dict) else {}
