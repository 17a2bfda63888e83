"""Some rules of another policy over a run's own, and verdicts that come from defaults.

A whole policy is a whole loop: it words its nudges otherwise, shortens the history otherwise, and so parts
from most runs at the first request. Its rules alone can be asked about. Everything else stays as it was
recorded, and so do all words that the recorded policy has: a rule that spoke in the run, and would have
spoken too, said the same.

A policy file is a whole loop: what it does not name has a default, and a recorded loop mostly had another
value. A user who writes one guard asks about that guard. So the run is asked about again with only the named
keys changed; where the verdict is another then, the defaults caused it.
"""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from refold.reducers.errors import WrongUse, nearest
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.guards.duty import OWN
from refold.reducers.limits import name_of
from refold.reducers.policy import Policy
from refold.reducers.text import TEXTS
from refold.replay.whatif.facts import Change
from refold.replay.whatif.verdict import Verdict, WhatIf

RULES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        # With how a limit bounds what is under way, who is warned before it, and what is done once it is
        # reached.
        "limits": ("limits", "call_timeout", "near", "grace", "fallback"),
        "guards": ("guards", "premature_end"),
        "approvals": ("approvals",),
    }
)
"""The kinds of rules, and the keys of a policy that belong to each."""


def replace_rules(kinds: Iterable[str], other: Policy, registry: Registry = BUILTIN) -> Change:
    """The change that puts another policy's rules of these kinds in place of a policy's own, whichever is in
    force.

    Raises `WrongUse` for a kind that there is not, or for none.
    """
    asked = list(kinds)
    wrong = next((kind for kind in asked if kind not in RULES), None)
    if wrong is not None:
        raise WrongUse(f"there are no rules of the kind {wrong!r}{nearest(wrong, RULES)}")
    if not asked:
        raise WrongUse(f"expected a kind of rules or several of {', '.join(RULES)}, got none")
    return replace_keys([key for kind in asked for key in RULES[kind]], other, registry)


def replace_keys(keys: Iterable[str], other: Policy, registry: Registry = BUILTIN) -> Change:
    """The change that puts another policy's values of these keys in place of a policy's own, whichever is in
    force.
    """
    keys = list(keys)

    def change(policy: Policy) -> Policy:
        taken: dict[str, Any] = {key: getattr(other, key) for key in keys}
        mixed = replace(policy, **taken)
        if mixed.pressure is not None and mixed.pressure.of not in ("step", *map(name_of, mixed.limits)):
            # Of a limit that is not there any more nothing is said; of steps it is the default, and may stand
            # without one.
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
    """The keys of the texts that are there for a policy's guards, and for its tiers of pressure."""
    kinds = {str(config["guard"]) for config in (*policy.guards, policy.premature_end) if config}
    known = {**registry, **OWN}
    guards = {key for kind in kinds & known.keys() for key in getattr(known[kind], "texts", {})}
    tiers = policy.pressure.tiers if policy.pressure else ()
    return guards | {f"pressure:{tier.name}" for tier in tiers} - TEXTS.keys()


OTHERS = "settings that it leaves out"
"""What is reported where the key is not known that caused a verdict."""

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
    """A policy of a file, and the keys that the file names."""

    policy: Policy
    keys: tuple[str, ...]

    @property
    def rules(self) -> list[str]:
        """The kinds of rules that the file names, as `only` takes them."""
        return [kind for kind, keys in RULES.items() if set(keys) & set(self.keys)]

    def alone(self, registry: Registry = BUILTIN) -> Change:
        """The change that takes only the named keys from the policy."""
        return replace_keys(self.keys, self.policy, registry)

    def defaults(self, found: WhatIf, alone: WhatIf) -> tuple[str, ...]:
        """The settings outside the file that cause the verdict `found`, given that of the named keys
        `alone`.
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
    """The value of a key that has one short value, else its name."""
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
    """The note on `count` verdicts that come from these settings, and how to ask about the rules alone."""
    come = "verdict comes" if count == 1 else "verdicts come"
    listed = ", ".join(
        [*(each for each in settings if each != OTHERS), *([OTHERS] if OTHERS in settings else [])]
    )
    way = f" To ask about its rules alone: --only {','.join(rules)}" if rules else ""
    return f"{count:,} {come} from defaults that {name} does not set ({listed}).{way}"
