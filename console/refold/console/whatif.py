"""`refold whatif`: runs under other policies, a row a run and a column a policy, and what it would have meant in all."""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any

import msgspec

from refold.console import addresses, hostile, places, verdicts
from refold.console.asking import Question
from refold.console.codes import worst
from refold.console.options import Everything, option, words
from refold.console.other_policies import OtherPolicies
from refold.console.places import StorePlace, at_once
from refold.console.processes import Jobs, Unchecked, alone, processes
from refold.console.progress import progress
from refold.console.screen import Column, Screen, note
from refold.console.selection import all_runs, check_choice, families_of, sizes_of, without_grown
from refold.reducers.errors import CannotJudge, Damaged, NoSuchEntry, RefoldError, WorldFailed, WrongUse
from refold.reducers.machine import AgentState
from refold.replay import figures
from refold.replay.shards import HELD, Ended, Shard, shards, worked
from refold.replay.whatif.totals import Totals, totals_of
from refold.replay.whatif.verdict import Fired, Spend, Verdict, WhatIf
from refold.store.protocol import UnknownRun

SHARD_OF_A_STORE = 5_000
"""Events of a part that a process does in one piece: to ask costs several times what an audit does."""

_SHOWN = 300
_MANY = 20  # runs; of more only those are listed in which something differs or is not judged
_AT_LEAST = ", at least: what was under way when it stopped counts as spent"
_AT_LEAST_LATEST = ", at least: it may have stopped before"
_VERDICTS = {**{word: word.upper() for word in Verdict}, Verdict.UNJUDGED: "not judged"}
_HINT = "--set end_of_turn=wait looks at it as one session"


class PolicyVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A run under one of the policies, as JSON: a `WhatIf`, in which `null` stands for what the record does not say."""

    policy: str
    whatif: dict[str, Any]


class PolicyTotals(msgspec.Struct, frozen=True, kw_only=True):
    """All the runs under one of the policies, as JSON. `prices` and `contexts` as in `WhatIf`."""

    policy: str
    totals: Totals
    prices: str = ""
    contexts: str = ""


def whatif_command(
    screen: Screen,
    place: StorePlace,
    runs: Annotated[list[str], words("RUN or @last; a prefix of an id will do. With --view RUN@t7.")],
    others: OtherPolicies,
    *,
    everything: Everything = False,
    view: Annotated[bool, option("--view", "Show what the model would have seen there, as a diff.")] = False,
    jobs: Jobs = None,
) -> int:
    """Ask what other policies would have decided over the same facts, and how far the record is evidence.

    Exit code 0: all agree; 1: something differs; 125: something could not be judged, and nothing differs; 4: some runs
    could not be looked at. With -o json: a line for each run and policy, then one of totals for each policy.
    """
    if view:
        from refold.console.whatif_view import tell_view

        return at_once(tell_view(screen, place, [] if everything else runs, others))
    check_choice(runs, everything=everything)
    question = Question(others)  # what is wrong with it is said once, and of no run
    work, damage = at_once(_work(place, runs))
    question.states = sum(len(shard.runs) for shard in work) == 1
    table = _Table(screen, question)
    with (
        processes(jobs, work) as executor,
        progress("asking", sum(shard.events for shard in work)) as step,
    ):
        for each in worked(work, executor, question, alone, held=HELD):
            if isinstance(each, Ended):
                table.end(each)
                step(each.shard.events)
            else:
                table.take(*each)
    if everything and not work:
        note(f"{hostile.line(str(place.path))} has no runs")
    table.finish()
    if damage is not None:
        raise damage
    return worst(table.codes)


async def _work(place: StorePlace, typed: Sequence[str]) -> tuple[list[Shard], Damaged | None]:
    """The runs that were named, or all that can be listed, in parts; and what is wrong with others."""
    async with places.reading(place) as store:
        if typed:
            sizes, damage = await sizes_of(store, await addresses.runs_of(store, typed)), None
        else:
            sizes, damage = await all_runs(store)
            sizes = await without_grown(store, sizes)
        families = await families_of(store, (run for run, _ in sizes))
    return shards(place.path, sizes, SHARD_OF_A_STORE, families=families), damage


class _Table:
    """Takes what was found, run by run, and tells it: JSON at once, text when all is there."""

    def __init__(self, screen: Screen, question: Question) -> None:
        self._screen, self._names, self._alone = screen, list(question.policies), question.states
        self._prices = question.prices.name if question.prices else ""
        self._contexts = question.contexts.name if question.contexts else ""
        self._rows: list[list[str]] = []
        self._agree: list[int] = []  # the places of rows in which nothing differs
        self._found: list[WhatIf] = []
        self._totals = [Totals() for _ in self._names]
        # In how many runs each policy names what the run does not have, by the place in the policy.
        self._unfit: list[Counter[str]] = [Counter() for _ in self._names]
        self._without: list[NoSuchEntry] = []  # of runs that lack what was to change
        self.codes: list[int] = []

    def take(self, run: str, found: Sequence[WhatIf] | RefoldError) -> None:
        """One run more. Raises `WrongUse` for a policy that no run can have."""
        if isinstance(found, NoSuchEntry):
            if self._alone:
                raise found
            self._without.append(found)
            found = CannotJudge(str(found))
        if isinstance(found, WrongUse) and not isinstance(found, UnknownRun):
            raise found
        if isinstance(found, RefoldError):  # unknown: listed, and not one event of it is there
            self._fail(run, found)
            return
        self.codes += [code_of(each) for each in found]
        self._totals = [totals + totals_of(each) for totals, each in zip(self._totals, found, strict=True)]
        for unfit, each in zip(self._unfit, found, strict=True):
            unfit.update({complaint.path for complaint in each.unfit})
        if all(each.verdict is Verdict.AGREE for each in found):
            self._agree.append(len(self._rows))
        self._rows.append([run, *map(cell, found)])
        self._found += found if self._alone else ()
        if self._screen.json:
            for name, each in zip(self._names, found, strict=True):
                self._screen.document(PolicyVerdict(policy=name, whatif=_with_unknowns(each)))

    def finish(self) -> None:
        """Tell what is told of all runs together. Raises `NoSuchEntry` where none has what was to change."""
        if self._without and len(self._without) == len(self.codes):
            raise self._without[0]
        if self._screen.json:
            for name, totals in zip(self._names, self._totals, strict=True):
                told = PolicyTotals(policy=name, totals=totals, prices=self._prices, contexts=self._contexts)
                self._screen.document(told)
            return
        if self._found:
            for name, each in zip(self._names, self._found, strict=True):
                tell(self._screen, name, each)
        elif self._rows:
            self._tell_rows()
            for name, totals, unfit in zip(self._names, self._totals, self._unfit, strict=True):
                self._screen.say()
                tell_totals(self._screen, name, totals, unfit)
            if self._prices:
                self._screen.say(f"what the record has no price of is priced by {self._prices}")
            if self._contexts:
                self._screen.say(
                    f"models whose context the record does not say read what {self._contexts} says"
                )

    def _tell_rows(self) -> None:
        left_out = set(self._agree) if len(self._rows) > _MANY else set[int]()
        rows = [row for place, row in enumerate(self._rows) if place not in left_out]
        if rows:
            columns = [Column("RUN"), *(Column(name.upper(), elastic=True) for name in self._names)]
            self._screen.table(columns, rows)
        if left_out:
            agree = "1 run agrees" if len(left_out) == 1 else f"{figures.count(len(left_out))} runs agree"
            every = "every policy" if len(self._names) > 1 else self._names[0]
            self._screen.say(f"{'and ' if rows else ''}{agree} under {every}")

    def end(self, ended: Ended) -> None:
        """There is no more from a part of the store, which nobody may have finished."""
        if ended.problem:
            self.codes.append(WorldFailed.exit_code)
            row = [ended.shard.name, f"NOT ASKED: {ended.problem}", *([""] * (len(self._names) - 1))]
            unchecked = Unchecked(part=ended.shard.name, unchecked=ended.problem)
            self._screen.result(unchecked, lambda: self._rows.append(row))

    def _fail(self, run: str, error: RefoldError) -> None:
        problem, code = verdicts.not_judged(run, error)
        self.codes.append(code)
        said = f"{'DAMAGED' if problem.damaged else 'cannot be judged'}: {error}"
        row = [run, said, *([""] * (len(self._names) - 1))]
        self._screen.result(problem, lambda: self._rows.append(row))


def code_of(found: WhatIf) -> int:
    """The exit code that a verdict means."""
    if found.verdict is Verdict.UNJUDGED:
        return CannotJudge.exit_code
    return 0 if found.verdict is Verdict.AGREE else 1


def cell(found: WhatIf) -> str:
    """A verdict in a few words: `STOPS e41 step_limit`."""
    match found.verdict:
        case Verdict.AGREE:
            return "AGREE unfit" if found.unfit else "AGREE"
        case Verdict.STOPS:
            return f"STOPS e{found.seq} {found.code}{_latest(found)}"
        case Verdict.DIVERGES:
            return f"DIVERGES e{found.seq} {found.kind}"
        case Verdict.UNJUDGED:
            return f"not judged e{found.seq}"


def tell(screen: Screen, name: str, found: WhatIf) -> None:
    """One run under one policy, in full."""
    screen.heading(f"run {found.run} under {name}: {_headline(found)}")
    stops, agrees = found.verdict is Verdict.STOPS, found.verdict is Verdict.AGREE
    parts = not agrees and found.verdict is not Verdict.UNJUDGED
    recorded = f"{found.recorded_state} {found.recorded_code}"
    more = len(found.fired) - 10 + found.more
    priced = f"{figures.counted(found.priced, 'answer')} without a price in the record, by {found.prices}"
    screen.facts(
        {
            "why": found.why or None,
            "recorded": _recorded(found) if parts else None,
            "derived": _decision(found.derived) if parts else None,
            "shared": None if agrees else f"events 1 to {found.fact} of {found.events} are evidence",
            "until then": _spent(found.until),
            "ends": f"{found.agent_state} ({found.code}); recorded: {recorded}" if stops else None,
            "after it": f"{_spent(found.saved)} recorded{_least(found)}" if stops else None,
            "hint": _HINT if _one_turn_of_many(found) else None,
            "fired": (
                *(f"{each.who}: {each.said}{_code(each)} at event {each.fact}" for each in found.fired[:10]),
                *([f"and {figures.counted(more, 'time')} more"] if more > 0 else []),
            ),
            "unseen": tuple(
                f"event {seq}: {why}; it was not shown before the record ends"
                for seq, why in found.unseen[:10]
            ),
            "unfit": tuple(str(complaint) for complaint in found.unfit),
            "priced": priced if found.prices else None,
            "context": _context(found) if found.contexts else None,
            "not judged": [each for each in found.unknown if each != found.why],
        }
    )


def tell_totals(
    screen: Screen, name: str, totals: Totals, unfit: Mapping[str, int] = MappingProxyType({})
) -> None:
    """All the runs under one policy. What is saved is only what is exact, and said so."""
    verdicts = (f"{_VERDICTS[word]} {totals.verdicts[word]}" for word in Verdict if totals.verdicts.get(word))
    screen.heading(f"{name}: {figures.counted(totals.runs, 'run')}, {', '.join(verdicts)}")
    saved = [f"{_spent(totals.saved)}, as recorded"]
    if totals.inexact:
        lacking = f"in {figures.counted(totals.inexact, 'run')} with something under way, or unknown"
        saved.append(f"{_spent(totals.at_least)} at least, {lacking}")
    done = f"{figures.counted(totals.done, 'run')}, by an answer after which the record goes on: no saving"
    fired = ", ".join(
        f"{who} {n} in {figures.counted(totals.in_runs[who], 'run')}" for who, n in totals.fired.items()
    )
    forks = f"{totals.before} part in what they share with another run: counted there"
    screen.facts(
        {
            "cut short": _counts(totals.earlier),
            "saved": tuple(saved),
            "done sooner": (done, f"where that is a finished turn, {_HINT}") if totals.done else None,
            "fired": fired or "none",
            "diverge in": _counts(totals.parted),
            "in turn": _counts(_in_order(totals.in_turn)),
            "unfit": tuple(
                f"{path} fits nothing in {'any' if count == totals.runs else count} of these runs"
                for path, count in sorted(unfit.items())
            ),
            "forks": forks if totals.before else None,
            "not judged": f"something of {figures.counted(totals.unknown, 'run')}"
            if totals.unknown
            else None,
        }
    )


def _headline(found: WhatIf) -> str:
    match found.verdict:
        case Verdict.AGREE:
            return f"AGREES to the end of the record{', and has rules that fit nothing in it' if found.unfit else ''}"
        case Verdict.STOPS:
            return f"STOPS at event {found.seq}, in turn {found.turn}{_latest(found)}"
        case Verdict.DIVERGES:
            return f"DIVERGES at event {found.seq}, in turn {found.turn}: what follows is no evidence"
        case Verdict.UNJUDGED:
            return f"not judged from event {found.seq} on"


def _context(found: WhatIf) -> str:
    if found.context is None:
        return f"nothing is taken from {found.contexts}"
    return f"{figures.counted(found.context, 'token')}, which is not in the record, by {found.contexts}"


def _least(found: WhatIf) -> str:
    if found.exact:
        return ""
    return _AT_LEAST_LATEST if found.unknown else _AT_LEAST


def _latest(found: WhatIf) -> str:
    """Of a run that would have stopped all the same, where what is unknown may have stopped it before."""
    return ", at the latest" if found.unknown else ""


def _one_turn_of_many(found: WhatIf) -> bool:
    """Whether the other run would have been over with a finished turn, and the record goes on behind it."""
    done = found.verdict is Verdict.STOPS and found.agent_state == AgentState.COMPLETED
    return done and found.code == "end_turn" and found.saved != Spend()


def _code(fired: Fired) -> str:
    return f" ({fired.code})" if fired.code else ""


def _recorded(found: WhatIf) -> str:
    """What was decided where the two part. Nothing was if that lies behind what they share and before the next fact."""
    if found.recorded is None and found.derived is not None and found.fact < found.seq:
        return "(nothing: a deadline passed between two events)"
    return _decision(found.recorded)


def _decision(text: str | None) -> str:
    return figures.cut(text or "(nothing)", _SHOWN)


def _with_unknowns(found: WhatIf) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(found)
    for part in ("until", "saved", "again"):
        spend: Spend = getattr(found, part)
        if spend.steps and not (spend.input or spend.output):
            told[part].update(input=None, output=None)
        if spend.unpriced and not spend.cost_nanousd:
            told[part]["cost_nanousd"] = None
        if spend.steps and not spend.duration:
            told[part]["duration"] = None
    return told


def _spent(spend: Spend) -> str:
    if spend == Spend():
        return "nothing"
    counted = spend.input or spend.output
    tokens = (
        f"{figures.count(spend.input)} + {figures.count(spend.output)} tokens"
        if counted
        else "tokens unknown"
    )
    return f"{figures.counted(spend.steps, 'step')}, {tokens}, {_cost(spend)}, {_time(spend)}"


def _time(spend: Spend) -> str:
    """How long it took, without the time in which a person was waited for: that is named by itself."""
    if not spend.waited:
        return figures.seconds(spend.duration) if spend.duration else "time unknown"
    busy, waited = figures.seconds(spend.duration - spend.waited), figures.seconds(spend.waited)
    return f"{busy} and {waited} of waiting for a person"


def _cost(spend: Spend) -> str:
    """What an answer without a known price adds is not known: there is only a least that it cost, or not even that."""
    if not spend.unpriced and (spend.cost_nanousd or spend.input or spend.output):
        return figures.dollars(spend.cost_nanousd)
    return f"at least {figures.dollars(spend.cost_nanousd)}" if spend.cost_nanousd else "cost unknown"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{what} {count}" for what, count in counts.items()) or "none"


def _in_order(turns: Mapping[str, int]) -> Mapping[str, int]:
    return {turn: turns[turn] for turn in sorted(turns, key=int)}
