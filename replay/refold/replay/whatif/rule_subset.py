"""Some rules of another policy over a run's own policy, and verdicts that come from defaults.

A whole policy includes nudge texts, compaction and more, so it diverges from most runs at the first request.
Its rules can be tested alone: everything else stays as recorded, including all texts of the recorded policy,
because a rule that acted in the run and would act again sends the same text.

A policy file is always a whole policy: keys that it leaves out have defaults, and the recorded policy often
had other values. A user who writes one guard asks about that guard. So the run is compared again with only
the named keys changed; if that verdict differs, the defaults caused the first one.
"""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from refold.reducers.errors import WrongUse, nearest
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.guards.approvals import Approval
from refold.reducers.guards.duty import OWN
from refold.reducers.limits import name_of
from refold.reducers.policy import Policy
from refold.reducers.text import TEXTS
from refold.replay.whatif.facts import Change
from refold.replay.whatif.verdict import Verdict, WhatIf

RULES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        # With cut-off of work in progress, warnings before a limit, and what happens once it is reached.
        "limits": ("limits", "call_timeout", "near", "grace", "fallback"),
        "guards": ("guards", "premature_end"),
        "approvals": ("approvals",),
    }
)
"""Kinds of rules, and the policy keys of each."""


def replace_rules(kinds: Iterable[str], other: Policy, registry: Registry = BUILTIN) -> Change:
    """Return a change that replaces these kinds of rules in any policy with those of another policy.

    Raises `WrongUse` for an unknown kind, or if there are no kinds.
    """
    asked = list(kinds)
    wrong = next((kind for kind in asked if kind not in RULES), None)
    if wrong is not None:
        raise WrongUse(f"unknown kind of rules {wrong!r}{nearest(wrong, RULES)}")
    if not asked:
        raise WrongUse(f"expected one or more kinds of rules ({', '.join(RULES)}), got none")
    return replace_keys([key for kind in asked for key in RULES[kind]], other, registry)


def replace_keys(keys: Iterable[str], other: Policy, registry: Registry = BUILTIN) -> Change:
    """Return a change that replaces these keys in any policy with the values of another policy."""
    keys = list(keys)

    def change(policy: Policy) -> Policy:
        taken: dict[str, Any] = {key: getattr(other, key) for key in keys}
        mixed = replace(policy, **taken)
        if mixed.pressure is not None and mixed.pressure.of not in ("step", *map(name_of, mixed.limits)):
            # Pressure of a removed limit has no effect. `step` is the default and works without a limit.
            mixed = replace(mixed, pressure=None)
        gone = _text_keys(policy, registry) - _text_keys(mixed, registry)
        texts = {key: text for key, text in policy.texts.items() if key not in gone}
        new = {key: other.texts[key] for key in _text_keys(mixed, registry) if key in other.texts}
        named = other.texts if "texts" in keys else {}
        return replace(mixed, texts={**new, **texts, **named})

    return change


def add_guards(other: Policy, registry: Registry = BUILTIN) -> Change:
    """Return the change that adds another policy's guards to a policy's own."""

    def change(policy: Policy) -> Policy:
        both = replace(other, guards=(*policy.guards, *other.guards))
        return replace_keys(["guards"], both, registry)(policy)

    return change


def _text_keys(policy: Policy, registry: Registry) -> set[str]:
    """Return the text keys of a policy's guards and pressure tiers."""
    kinds = {str(config["guard"]) for config in (*policy.guards, policy.premature_end) if config}
    kinds |= {Approval.kind} if policy.approvals else set()
    known = {**registry, **OWN}
    guards = {key for kind in kinds & known.keys() for key in getattr(known[kind], "texts", {})}
    tiers = policy.pressure.tiers if policy.pressure else ()
    return guards | {f"pressure:{tier.name}" for tier in tiers} - TEXTS.keys()


OTHERS = "other settings"
"""Reported if the key that caused a verdict is unknown."""

_BY_CODE = {"end_turn": "end_of_turn", "empty": "empty"}
_BY_KIND = {
    "output": "tool_output",
    "wait": "retry",
    "wording": "texts",
    "redaction": "redact",
    "overflow": "overflow",
    "view": "history",
    "summary": "history",
}


class NamedPolicy(msgspec.Struct, frozen=True):
    """A policy from a file, and the keys that the file names."""

    policy: Policy
    keys: tuple[str, ...]

    @property
    def rules(self) -> list[str]:
        """Kinds of rules that the file names, as `--only` takes them."""
        return [kind for kind, keys in RULES.items() if set(keys) & set(self.keys)]

    def alone(self, registry: Registry = BUILTIN) -> Change:
        """Return a change that takes only the named keys from the policy."""
        return replace_keys(self.keys, self.policy, registry)

    def defaults(self, found: WhatIf, alone: WhatIf) -> tuple[str, ...]:
        """Return the settings missing in the file that cause the verdict `found`.

        `alone` is the verdict under the named keys only.
        """
        if found.verdict is Verdict.AGREE or _place(found) == _place(alone):
            return ()
        key = _cause(found)
        return (OTHERS,) if not key or key in self.keys else (_setting(self.policy, key),)


def _place(found: WhatIf) -> tuple[str, int, str, str]:
    return str(found.verdict), found.seq, str(found.kind), found.code


def _cause(found: WhatIf) -> str:
    if found.code.endswith("_limit"):
        return "limits"
    return _BY_CODE.get(found.code, "") or _BY_KIND.get(str(found.kind), "")


def _setting(policy: Policy, key: str) -> str:
    """Return a key with its value if that is short, otherwise only the key."""
    match key:
        case "limits":
            return f"limits: {', '.join(f'{name_of(each)} {each.value}' for each in policy.limits)}"
        case "tool_output":
            return f"tool_output.max: {policy.tool_output.max}" if policy.tool_output else "tool_output: null"
        case "end_of_turn":
            return f"end_of_turn: {policy.end_of_turn}"
        case _:
            return key


def note_of(name: str, count: int, settings: Collection[str], rules: Collection[str]) -> str:
    """Format a note on `count` verdicts caused by these defaults, and how to test the rules alone."""
    come = "verdict comes" if count == 1 else "verdicts come"
    listed = ", ".join(
        [*(each for each in settings if each != OTHERS), *([OTHERS] if OTHERS in settings else [])]
    )
    way = f" To test its rules alone: --only {','.join(rules)}" if rules else ""
    return f"{count:,} {come} from defaults that {name} does not set ({listed}).{way}"
