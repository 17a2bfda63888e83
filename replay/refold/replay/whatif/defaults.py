"""Verdicts that come from settings which a policy's file does not name.

A policy file is a whole loop: what it does not name has a default, and a recorded loop mostly had another value. A user who
writes one guard asks about that guard. So the run is asked about again with only the named keys changed; where the verdict
is another then, the defaults caused it.
"""

from collections.abc import Collection

import msgspec

from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.limits import name_of
from refold.reducers.policy import Policy
from refold.replay.whatif.facts import Change
from refold.replay.whatif.only import RULES, some_keys
from refold.replay.whatif.verdict import Verdict, WhatIf

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


class Named(msgspec.Struct, frozen=True):
    """A policy of a file, and the keys that the file names."""

    policy: Policy
    keys: tuple[str, ...]

    @property
    def rules(self) -> list[str]:
        """The kinds of rules that the file names, as `only` takes them."""
        return [kind for kind, keys in RULES.items() if set(keys) & set(self.keys)]

    def alone(self, registry: Registry = BUILTIN) -> Change:
        """The change that takes only the named keys from the policy."""
        return some_keys(self.keys, self.policy, registry)

    def defaults(self, found: WhatIf, alone: WhatIf) -> tuple[str, ...]:
        """The settings outside the file that cause the verdict `found`, given that of the named keys `alone`."""
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
