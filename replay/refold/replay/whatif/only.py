"""The rules of another policy over the rest of the run's own: what would its limits, guards and approvals have done here?

A whole policy is a whole loop: it words its nudges otherwise, shortens the history otherwise, and so parts from most runs at
the first request. Its rules alone can be asked about. Everything else stays as it was recorded, and so do all words that the
recorded policy has: a rule that spoke in the run, and would have spoken too, said the same.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from refold.reducers.errors import WrongUse, nearest
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.guards.duty import OWN
from refold.reducers.limits import name_of
from refold.reducers.policy import Policy
from refold.reducers.text import TEXTS
from refold.replay.whatif.facts import Change

RULES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        # With how a limit bounds what is under way, who is warned before it, and what is done once it is reached.
        "limits": ("limits", "call_timeout", "near", "grace", "fallback"),
        "guards": ("guards", "premature_end"),
        "approvals": ("approvals",),
    }
)
"""The kinds of rules, and the keys of a policy that belong to each."""


def only(kinds: Iterable[str], other: Policy, registry: Registry = BUILTIN) -> Change:
    """The change that puts another policy's rules of these kinds in place of a policy's own, whichever is in force.

    Raises `WrongUse` for a kind that there is not, or for none.
    """
    asked = list(kinds)
    wrong = next((kind for kind in asked if kind not in RULES), None)
    if wrong is not None:
        raise WrongUse(f"there are no rules of the kind {wrong!r}{nearest(wrong, RULES)}")
    if not asked:
        raise WrongUse(f"expected a kind of rules or several of {', '.join(RULES)}, got none")
    return some_keys([key for kind in asked for key in RULES[kind]], other, registry)


def some_keys(keys: Iterable[str], other: Policy, registry: Registry = BUILTIN) -> Change:
    """The change that puts another policy's values of these keys in place of a policy's own, whichever is in force."""
    keys = list(keys)

    def change(policy: Policy) -> Policy:
        taken: dict[str, Any] = {key: getattr(other, key) for key in keys}
        mixed = replace(policy, **taken)
        if mixed.pressure is not None and mixed.pressure.of not in ("step", *map(name_of, mixed.limits)):
            # Of a limit that is not there any more nothing is said; of steps it is the default, and may stand without one.
            mixed = replace(mixed, pressure=None)
        gone = _brought(policy, registry) - _brought(mixed, registry)
        texts = {key: text for key, text in policy.texts.items() if key not in gone}
        new = {key: other.texts[key] for key in _brought(mixed, registry) if key in other.texts}
        named = other.texts if "texts" in keys else {}
        return replace(mixed, texts={**new, **texts, **named})

    return change


def _brought(policy: Policy, registry: Registry) -> set[str]:
    """The keys of the texts that are there for a policy's guards, and for its tiers of pressure."""
    kinds = {str(config["guard"]) for config in (*policy.guards, policy.premature_end) if config}
    known = {**registry, **OWN}
    guards = {key for kind in kinds & known.keys() for key in getattr(known[kind], "texts", {})}
    tiers = policy.pressure.tiers if policy.pressure else ()
    return guards | {f"pressure:{tier.name}" for tier in tiers} - TEXTS.keys()
