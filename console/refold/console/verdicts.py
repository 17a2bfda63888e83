"""Verdicts of `refold verify` and `refold audit`, run by run. The worst is the exit code."""

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from refold.console import descriptions, locations
from refold.console.addresses import check_choice, select_runs
from refold.console.locations import StorePlace
from refold.console.screen import Screen, note, worst
from refold.engine.compatibility import installed_guards
from refold.reducers.errors import Damaged, Inconclusive, RefoldError
from refold.replay import Audit, Finding, Verification, audit, figures, verify
from refold.store.protocol import Store, UnknownRun

_SHOWN = 600
_SUMMED = {0: "intact", Inconclusive.exit_code: "inconclusive", Damaged.exit_code: "DAMAGED"}
_WORDS = (*_SUMMED.values(), "with differences")

Judge = Callable[[Screen, StorePlace, Store, str], Awaitable[int]]


class NotJudged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run or bundle without a verdict, as JSON: why it is inconclusive (`cannot_judge`), or how it is
    `damaged`.
    """

    run: str = ""
    bundle: str = ""
    cannot_judge: str = ""
    damaged: str = ""


async def judge_command(
    screen: Screen, place: StorePlace, typed: Sequence[str], judge: Judge, *, everything: bool
) -> int:
    """Judge the named runs, or all, and return the exit code. All names are resolved first.

    Damage that hides runs is raised after the others are printed: `Damaged`.
    """
    check_choice(typed, everything=everything)
    async with locations.reading(place) as store:
        runs, damage = await select_runs(store, typed)
        codes = [await judge_run(screen, place, store, run, judge) for run in runs]
    if everything and not runs:
        note(f"{descriptions.line(place.shown)} has no runs")
    if len(runs) > 1 and not screen.json:
        tell_codes(screen, codes)
    if damage is not None:
        raise damage
    return worst(codes)


def tell_codes(screen: Screen, codes: Sequence[int]) -> None:
    """Print how many runs got each verdict."""
    counts = Counter(_SUMMED.get(code, "with differences") for code in codes)
    told = ", ".join([f"{figures.count(counts[word])} {word}" for word in _WORDS if counts[word]])
    screen.heading(f"{figures.quantity(len(codes), 'run')}: {told}")


async def verify_run(screen: Screen, place: StorePlace, store: Store, run: str) -> int:
    """Print whether a run's log is intact, how much was checked, and what is not proven."""
    return tell_verification(screen, place, await verify(store, run, installed_guards()))


def tell_verification(screen: Screen, place: StorePlace, found: Verification) -> int:
    """Print a verification, and return the exit code."""
    screen.result(found, lambda: _tell_verification(screen, place, found))
    return 0 if found.whole else Damaged.exit_code if found.damaged else Inconclusive.exit_code


async def audit_run(screen: Screen, place: StorePlace, store: Store, run: str) -> int:
    """Print whether a run's decisions follow from its facts, and the first that does not."""
    found = await audit(store, run, installed_guards())
    screen.result(found, lambda: tell_audit(screen, place, found))
    if found.damaged:
        return Damaged.exit_code
    return 1 if found.differences else 0 if found.clean else Inconclusive.exit_code


def tell_not_judged(screen: Screen, found: NotJudged) -> None:
    """Print as text why a run has no verdict."""
    what = "DAMAGED, cannot be read" if found.damaged else "inconclusive"
    name = f"bundle {found.bundle}" if found.bundle else f"run {found.run}"
    screen.block(f"{name}: {what}", f"  {found.damaged or found.cannot_judge}")


async def judge_run(screen: Screen, place: StorePlace, store: Store, run: str, judge: Judge) -> int:
    """Judge a run and return the exit code. Errors that prevent a verdict are printed, not raised."""
    try:
        return await judge(screen, place, store, run)
    except (Inconclusive, Damaged, UnknownRun) as error:
        # `UnknownRun`: the run is listed but has no events.
        problem, code = describe_failure(run, error)
        screen.result(problem, lambda: tell_not_judged(screen, problem))
        return code


def describe_failure(run: str, error: RefoldError) -> tuple[NotJudged, int]:
    """Return why a run has no verdict, and the exit code."""
    if isinstance(error, Inconclusive):
        return NotJudged(run=run, cannot_judge=str(error)), Inconclusive.exit_code
    return NotJudged(run=run, damaged=str(error)), Damaged.exit_code


def _tell_verification(screen: Screen, place: StorePlace, found: Verification) -> None:
    verdict = "intact" if found.whole else "DAMAGED" if found.damaged else "inconclusive"
    screen.heading(f"run {found.run}: {verdict}")
    counts = f"{figures.quantity(found.events, 'event')}, {figures.count(found.contents + found.erased)} with a payload"
    head = f"event {found.events}, sha256 {found.hash}" if found.events else "no event is intact"
    problem, cut = found.problem, figures.quantity(found.cut, "output")
    screen.facts(
        {
            "wrong": f"event {problem.seq}{_kind(problem.kind)}: {problem.problem}" if problem else None,
            "checked": f"{counts}, {found.erased} of them erased, {figures.quantity(found.digests, 'state digest')} recomputed",
            "head": head,
            "state": found.agent_state,
            "sizes": _unchecked_note(found.unmeasured, "their payloads are erased"),
            "weights": _unchecked_note(found.unweighed, found.unweighable),
            "cut": f"of {cut} only the recorded part was measured" if found.cut else None,
            "forked": [
                f"events up to {each.seq} are shared with run {each.run}, checked too"
                for each in found.prefixes
            ],
            "sealed": _coverage(found),
            "unproved": (*found.cannot_prove, *found.gaps),
        }
    )
    # If events are missing, the one before the problem may be missing too.
    before = min(problem.seq - 1, found.events) if problem else 0
    if before:
        screen.say(f"  the state before it: refold state {found.run}@e{before}{place.option}")


def _kind(kind: str) -> str:
    return f" ({kind})" if kind else ""  # "" if the event cannot be read


def _coverage(found: Verification) -> str | None:
    if not found.sealed:
        return None if found.sealed is None else "no event"
    return f"up to event {found.sealed} of {found.events}, heads compared: {found.heads}"


def _unchecked_note(events: int, why: str) -> str | None:
    return f"not checked for {figures.quantity(events, 'event')}: {why}" if events else None


def _audit_verdict(found: Audit) -> str:
    if found.damaged:
        return "DAMAGED, not read to its end"
    if found.differences:
        return f"DIFFERS, {figures.quantity(found.differences, 'time')}"
    return "every decision follows from the facts" if found.clean else "inconclusive"


def _agreement(found: Audit) -> str:
    if found.damaged and not (found.differences or found.unreplayable or found.unasked):
        return f"all agreed up to event {found.events}, then damaged"
    return "all agreed" if found.clean else "not all agreed"


def tell_audit(screen: Screen, place: StorePlace, found: Audit) -> None:
    """Print an audit as text."""
    screen.heading(f"run {found.run}: {_audit_verdict(found)}")
    derived = f"{figures.quantity(found.decisions, 'decision')} from {figures.quantity(found.facts, 'fact')}"
    imported = "decisions were derived at import, not made by a live agent"
    unasked = f"after {figures.quantity(found.unasked, 'fact')}, it is unknown whether a blind guard would have intervened"
    # For a damaged log the state is that of the last decision that was compared; `show` has a later one.
    state = "" if found.damaged else f", {found.agent_state}"
    screen.facts(
        {
            "derived": f"{derived}, {_agreement(found)}",
            "log": f"{figures.quantity(found.events, 'event')}, rules version {found.rules}{state}",
            "imported": imported if found.imported else None,
            "damaged": found.damaged or None,
            "blind": list(found.blind),
            "unasked": unasked if found.unasked else None,
        }
    )
    for finding in [*found.findings[:1], *found.unreplayable[:1]]:
        _tell_finding(screen, place, found.run, finding)


def _tell_finding(screen: Screen, place: StorePlace, run: str, finding: Finding) -> None:
    screen.heading(
        f"  first at event {finding.seq}: {finding.kind} is {finding.difference}, caused by event {finding.fact}"
    )
    rows = [("    why", finding.why)] if finding.why else []
    for field in finding.fields or ("",):
        rows.append((f"    {field or 'event'}", ""))
        rows.append(("      recorded", _side(finding.recorded, field)))
        rows.append(("      derived", _side(finding.derived, field)))
    screen.pairs(rows)
    screen.say(f"    the state before it: refold state {run}@e{finding.seq - 1}{place.option}")


def _side(text: str | None, field: str) -> str:
    if text is None:
        return "(nothing)"
    shown = text
    if field:
        name = {"source": "from", "target": "to"}.get(field, field)
        value = json.loads(text).get(name, _Default)
        shown = "(its default)" if value is _Default else json.dumps(value, ensure_ascii=False)
    return figures.shorten(shown, _SHOWN)


class _Default:
    """Marks a field that JSON leaves out."""
