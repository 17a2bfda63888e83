"""Why a call ran or was refused, as text."""

from collections.abc import Iterator, Sequence

from refold.console import descriptions
from refold.console.screen import Screen
from refold.replay.call_reasons import CallReason, RuleReason
from refold.replay.kinds.arguments import ERASED

_SHOWN = 300
_EFFECTS = {
    "refuse": "refused by",
    "reject": "rejected by",
    "terminate": "the run was ended by",
    "stop": "the run was ended by",
    "ask": "an operator is asked by",
    "permit": "permitted by",
    "approve": "approved by",
    "unknown": "cannot be judged by",
}


def print_call_reasons(
    screen: Screen, calls: Sequence[CallReason], *, named: bool = True, title: str = ""
) -> None:
    """Print each call with its outcome, and why. Without `named`, only those with a reason to report."""
    told = [call for call in calls if named or call.rules or call.operator or call.text]
    if told and title:
        screen.heading(title)
    for call in told:
        argument = ERASED if call.argument is None else call.argument
        screen.heading(descriptions.line(f"call {call.call} {call.tool}: {argument}".rstrip(": ")))
        screen.pairs([(name, descriptions.line(text, _SHOWN)) for name, text in _list_reasons(call)])


def _list_reasons(call: CallReason) -> Iterator[tuple[str, str]]:
    where = f" (e{call.at})" if call.at else ""
    yield "outcome", f"{call.outcome}{where}"
    for rule in call.rules:
        yield "rule", describe_rule(rule)
        if rule.say and rule.effect != "unknown":
            yield "reason", rule.say
    if call.text:
        yield "text", call.text
    for sentence in call.operator:
        yield "operator", sentence
    if call.mode:
        yield "mode", call.mode + (f", since e{call.mode_since}" if call.mode_since else "")
    elif call.imported:
        yield "mode", "the permission mode is not recorded"


def describe_rule(rule: RuleReason) -> str:
    """Return the decision of a guard in one line: `refused by Bash(git push *) (settings.json:4), rules[0] of
    permissions`.
    """
    effect = _EFFECTS.get(rule.effect, rule.effect)
    if not rule.rule:
        what = f"no rule applies, so 'else' of {rule.guard}" if rule.place == "else" else rule.guard
        return f"{effect} {what}{_clause(rule)}"
    place = f"{rule.place} of {rule.guard}" if rule.place else rule.guard
    command = f", for the command `{rule.command}`" if rule.command else ""
    return f"{effect} {rule.rule}, {place}{command}{_clause(rule)}"


def _clause(rule: RuleReason) -> str:
    return f": {rule.why}" if rule.why else ""
