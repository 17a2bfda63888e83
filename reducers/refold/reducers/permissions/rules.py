"""Permission rules, and the decision of a list of rules on a call.

A rule has an effect and conditions on the tool, a command, a path, a host or the text of the arguments; all
its conditions must hold. A call with a shell script is judged by each command that the script runs: the
strictest decision applies. So a rule that permits `git status` does not permit `git status; rm -rf /`, and a
rule that refuses `git push` also refuses `cd app && git push`.

Each condition is true, false or unknown, for example where the shell determines a word. A rule never permits
a call for an unknown condition; if a rule that refuses or asks is unknown, so is the decision.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from refold.reducers.errors import Fault
from refold.reducers.permissions.commands import glob_matches, known_texts, literal_head, prefix_matches
from refold.reducers.permissions.conditions import (
    Conditions,
    Part,
    ToolCall,
    explain_lack,
    holds_for_part,
    lacks_record,
    list_parts,
)
from refold.reducers.permissions.rule_checks import find_contradictions
from refold.reducers.permissions.shell import Command
from refold.reducers.permissions.wrappers import base_name

Effect = Literal["refuse", "ask", "permit"]
Order = Literal["strictest", "first", "last"]

Active = Mapping[int, bool | None]
"""Which rules with `after` apply, by index; None: unknown."""

_NOTHING: Active = MappingProxyType({})
STRICTNESS: Mapping[str, int] = {"refuse": 3, "unknown": 2, "ask": 1, "permit": 0}


class PermissionRule(Conditions, frozen=True, kw_only=True):
    """A rule: its effect on calls for which its conditions hold.

    `after`: it applies only after a call with these conditions has returned, `until` the next message of a
    user or the end of the run. `say` is the reason that the model gets. `match` and `not_match` are examples:
    the text of a command, path or URL, or arguments as a JSON object. `source` is where the rule is from, as
    `settings.json:12`. `opaque` is why the rule cannot be evaluated, "" if it can: it is then unknown for
    every call of its tools. `forms`: the forms of `Command`, and `path`, in which the agent that the rule is
    from is known to find commands; None: all. In other forms, a rule that matches is unknown, as its agent
    may let the call run.
    """

    effect: Effect
    after: Conditions | None = None
    until: Literal["user_message", "end"] = "end"
    say: str = ""
    match: tuple[str, ...] = ()
    not_match: tuple[str, ...] = ()
    source: str = ""
    opaque: str = ""
    forms: tuple[str, ...] | None = None

    def problems(self) -> Iterator[Fault]:
        """Yield conditions that cannot be evaluated, and examples that contradict the rule."""
        faults = [*super().problems()]
        yield from faults
        if not faults:
            yield from self._contradicted()

    def _contradicted(self) -> Iterator[Fault]:
        otherwise: Effect = "ask" if self.effect == "permit" else "permit"
        rule = replace(self, when=None)  # an example is of no run

        def applies(call: ToolCall) -> bool:
            return decide([rule], "strictest", otherwise, call, {0: True}).effect == self.effect

        return find_contradictions(self, {"match": self.match, "not_match": self.not_match}, applies)

    @property
    def label(self) -> str:
        """Return the rule as messages name it: where it is from, or its conditions."""
        return self.source or (f"{self.title} after {self.after.title}" if self.after else self.title)


class PermissionVerdict(msgspec.Struct, frozen=True):
    """The decision on a call. `rule` is the index of the deciding rule; None: no rule applies.

    `why` is what makes it unknown. `command` is the command that it is about, "" if the call has none.
    `least` is the decision without a rule that permits, where only that rule is unknown.
    """

    effect: Literal["refuse", "ask", "permit", "unknown"]
    rule: int | None = None
    why: str = ""
    command: str = ""
    least: Effect = "permit"


class IndexedRule(NamedTuple):
    """A rule with its index. Every command that it matches begins with one of `heads`; None: any may."""

    place: int
    rule: PermissionRule
    heads: tuple[str, ...] | None


class ToolRules(NamedTuple):
    """The rules for a tool, in order, with the heads of all."""

    rules: Sequence[IndexedRule]
    heads: tuple[str, ...] | None


class RuleIndex:
    """A list of rules, with those that are for a tool found once for each tool."""

    def __init__(self, rules: Sequence[PermissionRule]) -> None:
        self._rules = rules
        self._found: dict[str, ToolRules] = {}

    def find(self, tool: str) -> ToolRules:
        """Return the rules for a tool."""
        found = self._found.get(tool)
        if found is None:
            if len(self._found) >= _MAX_TOOLS:
                self._found.clear()
            numbered = enumerate(self._rules)
            rules = [IndexedRule(at, rule, _heads(rule)) for at, rule in numbered if rule.is_for(tool)]
            heads = [each.heads for each in rules if each.heads is not None]
            all_ = tuple(head for each in heads for head in each) if len(heads) == len(rules) else None
            found = self._found[tool] = ToolRules(rules, all_)
        return found


_MAX_TOOLS = 1000
"""Maximum number of tools in an index; a model may call any names."""


def _heads(rule: PermissionRule) -> tuple[str, ...] | None:
    if rule.command is None:
        return None
    if isinstance(rule.command, str):
        return (literal_head(rule.command),)
    first = rule.command[0]
    return (first,) if isinstance(first, str) else first


def decide(
    rules: Sequence[PermissionRule] | RuleIndex,
    order: Order,
    otherwise: Effect,
    call: ToolCall,
    active: Active = _NOTHING,
) -> PermissionVerdict:
    """Return the decision of these rules on a call. `otherwise`: the effect where no rule applies.

    `order` is which of several rules applies: `strictest` (refuse before ask before permit), or the `first`
    or `last` in the list. `active` is about rules with `after`.
    """
    found = (rules if isinstance(rules, RuleIndex) else RuleIndex(rules)).find(call.tool)
    if not found.rules:
        return PermissionVerdict(otherwise)
    parts = list_parts([each.rule for each in found.rules], call)
    decided = [_decide_part(found, order, otherwise, call, part, active) for part in parts]
    return max(
        (one for one in decided if one is not None), key=_strictness, default=PermissionVerdict(otherwise)
    )


def matching_rules(rules: Sequence[PermissionRule] | RuleIndex, call: ToolCall) -> frozenset[int]:
    """Return the indices of the rules that match the call, or a part of it, whichever of them decides."""
    found = (rules if isinstance(rules, RuleIndex) else RuleIndex(rules)).find(call.tool)
    return frozenset(
        place
        for part in list_parts([each.rule for each in found.rules], call)
        for place, rule in _candidates(found, "first", part)
        if holds_for_part(rule, call, part, permits=False)
    )


def _strictness(decision: PermissionVerdict) -> tuple[int, bool]:
    return STRICTNESS[decision.effect], decision.rule is None


def _decide_part(
    rules: ToolRules, order: Order, otherwise: Effect, call: ToolCall, part: Part, active: Active
) -> PermissionVerdict | None:
    """Return the decision on a part; None if the part needs none."""
    found, perhaps = list[PermissionVerdict](), None
    for place, rule in _candidates(rules, order, part):
        verdict = _judge(place, rule, call, part, applies=_applies(place, rule, active))
        if verdict is None:
            continue
        if verdict.effect == "unknown" and rule.effect == "permit":
            perhaps = perhaps or verdict
            continue
        found.append(verdict)
        if order != "strictest":
            break
    if part.command is not None and part.command.transparent and all(one.effect == "permit" for one in found):
        return None
    decision = max(found, key=_strictness) if found else PermissionVerdict(otherwise, command=_text(part))
    if perhaps is None or decision.effect == "permit" or (found and order == "strictest"):
        return decision
    return replace(perhaps, least="refuse" if decision.effect == "unknown" else decision.effect)


def _judge(
    place: int, rule: PermissionRule, call: ToolCall, part: Part, *, applies: bool | None
) -> PermissionVerdict | None:
    """Return the decision of one rule on a part; None if it does not match, or does not permit it."""
    if applies is False:
        return None
    permits = rule.effect == "permit"
    held = holds_for_part(rule, call, part, permits=permits)
    hidden = _hidden_by(rule, part.command) if held and rule.forms is not None else ""
    if held and applies and not hidden:
        return PermissionVerdict(rule.effect, place, "", _text(part))
    if held is False:
        return None
    if not permits:
        why = rule.opaque or part.opaque or hidden or explain_lack(rule, call)
        return PermissionVerdict("unknown", place, why, _text(part))
    if applies and lacks_record(rule, call, part):
        return PermissionVerdict("unknown", place, explain_lack(rule, call), _text(part))
    return None


def _hidden_by(rule: PermissionRule, command: Command | None) -> str:
    """Return why the agent that a matching rule is from may not find the command; "" if it does."""
    if command is None or rule.command is None or rule.effect == "permit" or rule.forms is None:
        return ""
    words = command.words
    if "path" in rule.forms and words and words[0]:
        words = (base_name(words[0]), *words[1:])
    if isinstance(rule.command, str):
        is_exact = glob_matches(rule.command, words, permits=True)
    else:
        is_exact = prefix_matches(rule.command, words, permits=True)
    if not is_exact:
        return "the agent that the rule is from may not match a command that is written like this"
    form = next((each for each in command.forms if each not in rule.forms), "")
    kind, _, wrapper = form.partition(":")
    return form and f"the agent that the rule is from may not find a command {_FORMS[kind]}{wrapper}"


_FORMS: Mapping[str, str] = {
    "complex": "in a script with more than plain words",
    "compound": "in a subshell, loop, condition or function",
    "substitution": "in a substitution",
    "script": "in a script of bash -c",
    "wrapper": "that runs behind ",
    "assignment": "after an assignment",
    "quoted": "whose name has quotes or escapes",
}


def _candidates(found: ToolRules, order: Order, part: Part) -> Iterable[tuple[int, PermissionRule]]:
    """Return the rules that may match a part, in their order; most match no command with its first word."""
    rules = found.rules if order != "last" else found.rules[::-1]
    texts = known_texts(part.command.words) if part.command is not None else None
    if texts is None:
        return [(place, rule) for place, rule, _ in rules]
    text, based = texts
    if found.heads is not None and not text.startswith(found.heads) and not based.startswith(found.heads):
        return ()
    return [
        (place, rule)
        for place, rule, heads in rules
        if heads is None or text.startswith(heads) or based.startswith(heads)
    ]


def _applies(place: int, rule: PermissionRule, active: Active) -> bool | None:
    """Return whether a rule is in force; None: unknown."""
    if rule.opaque:
        return None
    return True if rule.after is None else active.get(place, False)


def _text(part: Part) -> str:
    words = part.command.words if part.command else ()
    return " ".join("…" if word is None else word for word in words)
