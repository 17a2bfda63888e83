"""Text output of `refold whatif`: one run in full, a cell of the table, and totals."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from refold.console.screen import Facts, Screen
from refold.reducers.errors import Inconclusive
from refold.reducers.machine import SUCCESSFUL
from refold.replay import figures
from refold.replay.whatif.verdict import Intervention, Spend, Totals, Verdict, WhatIf

_SHOWN = 300
_AT_LEAST = ", at least: work in progress at the stop counts as spent"
_AT_LEAST_LATEST = ", at least: it may have stopped earlier"
_VERDICTS = {
    Verdict.AGREE: "AGREES",
    Verdict.STOPS: "STOPS",
    Verdict.DIVERGES: "DIVERGES",
    Verdict.INCONCLUSIVE: "inconclusive",
}
_HINT = "--set end_of_turn=wait treats it as one session"
_REASONS = 20  # reasons that are listed for inconclusive runs


def code_of(found: WhatIf) -> int:
    """Return the exit code of a verdict."""
    if found.verdict is Verdict.INCONCLUSIVE:
        return Inconclusive.exit_code
    return 0 if found.verdict is Verdict.AGREE else 1


def cell(found: WhatIf) -> str:
    """Render a verdict in a few words: `STOPS e41 step_limit`."""
    match found.verdict:
        case Verdict.AGREE:
            return "AGREES unfit" if found.unfit else "AGREES"
        case Verdict.STOPS:
            return f"STOPS e{found.seq} {found.code}{_latest(found)}{_subject(found)}{_default(found)}"
        case Verdict.DIVERGES:
            return f"DIVERGES e{found.seq} {found.kind}{_subject(found)}{_default(found)}"
        case Verdict.INCONCLUSIVE:
            return f"inconclusive e{found.seq}: {found.why}{_default(found)}"


def _default(found: WhatIf) -> str:
    return f", by default {', '.join(found.defaults)}" if found.defaults else ""


def _subject(found: WhatIf) -> str:
    return f": {found.subject}, {found.subject.found_by}" if found.subject else ""


def tell(screen: Screen, name: str, found: WhatIf) -> None:
    """Print one run under one policy in full."""
    screen.heading(f"run {found.run} under {name}: {_headline(found)}")
    screen.facts({**_tell_verdict(found), **_tell_findings(found)})


def _tell_verdict(found: WhatIf) -> Facts:
    stops, agrees = found.verdict is Verdict.STOPS, found.verdict is Verdict.AGREE
    parts = not agrees and found.verdict is not Verdict.INCONCLUSIVE
    recorded = f"{found.recorded_state} {found.recorded_code}"
    return {
        "why": found.why or None,
        "default": f"{', '.join(found.defaults)}: the file does not set it" if found.defaults else None,
        "recorded": _recorded_decision(found) if parts else None,
        "derived": _decision(found.derived) if parts else None,
        "shared": None if agrees else f"events 1 to {found.fact} of {found.events} are evidence",
        "until then": _spend_text(found.until),
        "ends": f"{found.agent_state} ({found.code}); recorded: {recorded}" if stops else None,
        "after it": f"{_spend_text(found.saved)} recorded{_least(found)}" if stops else None,
        "hint": _HINT if _one_turn_of_many(found) else None,
    }


def _tell_findings(found: WhatIf) -> Facts:
    fired = [f"{each.who}: {each.said}{_code(each)} at event {each.fact}" for each in found.fired[:10]]
    more = len(found.fired) - 10 + found.more
    priced = f"{figures.quantity(found.priced, 'response')} without a recorded price, by {found.prices}"
    return {
        "fired": (*fired, *([f"and {figures.quantity(more, 'time')} more"] if more > 0 else [])),
        "unseen": tuple(
            f"event {seq}: {why}; no later prompt of the record has it" for seq, why in found.unseen[:10]
        ),
        "unfit": tuple(map(str, found.unfit)),
        "priced": priced if found.prices else None,
        "context": _context(found) if found.contexts else None,
        "inconclusive": [each for each in found.unknown if each != found.why],
    }


def tell_totals(
    screen: Screen,
    name: str,
    totals: Totals,
    unfit: Sequence[str] = (),
    inconclusive: Mapping[str, int] = MappingProxyType({}),
) -> None:
    """Print the totals of all runs under one policy. Savings are exact, or marked as lower bounds."""
    unfit_runs = {Verdict.AGREE: f" ({totals.unfit} of them: a rule matches nothing)"} if totals.unfit else {}
    verdicts = (
        f"{_VERDICTS[word]} {totals.verdicts[word]}{unfit_runs.get(word, '')}"
        for word in Verdict
        if totals.verdicts.get(word)
    )
    screen.heading(f"{name}: {figures.quantity(totals.runs, 'run')}, {', '.join(verdicts)}")
    saved = [f"{_spend_text(totals.saved)}, as recorded"]
    if totals.inexact:
        lacking = f"in {figures.quantity(totals.inexact, 'run')} with work in progress, or unknown"
        saved.append(f"{_spend_text(totals.at_least)} at least, {lacking}")
    done = (
        f"{figures.quantity(totals.done, 'run')}, by a response after which the record continues: no savings"
    )
    fired = ", ".join(
        f"{who} {n} in {figures.quantity(totals.in_runs[who], 'run')}" for who, n in totals.fired.items()
    )
    forks = f"{totals.before} diverge in events that they share with another run: counted there"
    screen.facts(
        {
            "cut short": _counts(totals.cut_short),
            "saved": tuple(saved),
            "done sooner": (done, f"where that is a finished turn, {_HINT}") if totals.done else None,
            "fired": fired or "none",
            "diverge in": _counts(totals.parted),
            "in turn": _counts(_in_order(totals.in_turn)),
            "unfit": tuple(unfit),
            "forks": forks if totals.before else None,
            "inconclusive": _reasons(totals, inconclusive),
        }
    )


def _reasons(totals: Totals, inconclusive: Mapping[str, int]) -> tuple[str, ...] | None:
    """List the reasons of inconclusive runs, by the first reason of each run, the most common first."""
    ranked = sorted(inconclusive.items(), key=lambda item: -item[1])
    listed = [f"{figures.quantity(count, 'run')}: {why}" for why, count in ranked[:_REASONS]]
    if more := len(ranked) - _REASONS:
        listed += [f"and {figures.quantity(more, 'reason')} more"] if more > 0 else []
    partly = totals.unknown - sum(inconclusive.values())
    if partly > 0:
        listed.append(f"{figures.quantity(partly, 'run')} in part, after their verdict")
    return tuple(listed) or None


def _headline(found: WhatIf) -> str:
    match found.verdict:
        case Verdict.AGREE:
            return f"AGREES to the end of the record{', but has rules that match nothing in it' if found.unfit else ''}"
        case Verdict.STOPS:
            return f"STOPS at event {found.seq}, in turn {found.turn}{_latest(found)}"
        case Verdict.DIVERGES:
            return f"DIVERGES at event {found.seq}, in turn {found.turn}: later events are not evidence"
        case Verdict.INCONCLUSIVE:
            return f"inconclusive from event {found.seq}"


def _context(found: WhatIf) -> str:
    if found.context is None:
        return f"no length was needed from {found.contexts}"
    return f"{figures.quantity(found.context, 'token')}, by {found.contexts}: the record has none"


def _least(found: WhatIf) -> str:
    if found.exact:
        return ""
    return _AT_LEAST_LATEST if found.unknown else _AT_LEAST


def _latest(found: WhatIf) -> str:
    """Return `, at the latest` for a stop that unknown facts could have caused earlier."""
    return ", at the latest" if found.unknown else ""


def _one_turn_of_many(found: WhatIf) -> bool:
    """Return whether the other run would have completed with a finished turn, although the record
    continues.
    """
    done = found.verdict is Verdict.STOPS and found.agent_state in SUCCESSFUL
    return done and found.code == "end_turn" and found.saved != Spend()


def _code(fired: Intervention) -> str:
    return f" ({fired.code})" if fired.code else ""


def _recorded_decision(found: WhatIf) -> str:
    """Render the recorded decision at the divergence.

    Without one, the derived decision falls after the shared events and before the next fact.
    """
    if found.recorded is None and found.derived is not None and found.fact < found.seq:
        return "(nothing: a deadline passed between two events)"
    return _decision(found.recorded)


def _decision(text: str | None) -> str:
    return figures.shorten(text or "(nothing)", _SHOWN)


def _spend_text(spend: Spend) -> str:
    if spend == Spend():
        return "nothing"
    counted = spend.input or spend.output
    tokens = (
        f"{figures.count(spend.input or None)} + {figures.count(spend.output or None)} tokens"
        if counted
        else "tokens unknown"
    )
    return f"{figures.quantity(spend.steps, 'step')}, {tokens}, {_cost(spend)}, {_time(spend)}"


def _time(spend: Spend) -> str:
    """Render the duration; time spent waiting for an operator is listed separately."""
    if not spend.waited:
        return figures.seconds(spend.duration) if spend.duration else "time unknown"
    busy, waited = figures.seconds(spend.duration - spend.waited), figures.seconds(spend.waited)
    return f"{busy} and {waited} waiting for an operator"


def _cost(spend: Spend) -> str:
    """Render the cost. If responses have no known price, it is a lower bound, or unknown."""
    if not spend.unpriced:
        return figures.dollars(spend.cost_nanousd)
    return f"at least {figures.dollars(spend.cost_nanousd)}" if spend.cost_nanousd else "cost unknown"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{what} {count}" for what, count in counts.items()) or "none"


def _in_order(turns: Mapping[str, int]) -> Mapping[str, int]:
    return {turn: turns[turn] for turn in sorted(turns, key=int)}
