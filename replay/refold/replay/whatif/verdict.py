"""What is said of a run under another policy: the verdict, how far the record is evidence, and what was spent by then."""

from enum import StrEnum, unique

import msgspec

from refold.reducers.errors import Complaint
from refold.reducers.machine import AgentState
from refold.reducers.state import RunState
from refold.replay.whatif.shown import Parting
from refold.replay.whatif.subjects import Subject

MOST = 100
"""How many decisions of guards and limits are kept of a run; further ones are counted."""

UNTIMED = "time limits: the record does not say when everything happened"
UNPRICED = "cost limits: the record has no price of some answers"
UNCOUNTED = "token limits: the record does not say how many tokens some answers took"


@unique
class Verdict(StrEnum):
    """What may be said of a run under another policy."""

    AGREE = "agree"
    STOPS = "stops"
    DIVERGES = "diverges"
    INCONCLUSIVE = "inconclusive"


class Spend(msgspec.Struct, frozen=True, kw_only=True):
    """What was used up: steps, tokens as the provider counted them, nano-dollars, nanoseconds.

    `unpriced` counts answers without a known price: where there are any, the cost is only the least that it was. `waited`
    is the part of `duration` in which a person was waited for: nobody's machine was busy.
    """

    steps: int = 0
    input: int = 0
    output: int = 0
    cost_nanousd: int = 0
    unpriced: int = 0
    duration: int = 0
    waited: int = 0

    def __add__(self, other: "Spend") -> "Spend":
        return Spend(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})

    def __sub__(self, other: "Spend") -> "Spend":
        left = {name: max(0, getattr(self, name) - getattr(other, name)) for name in self.__struct_fields__}
        return Spend(**left)


class Fired(msgspec.Struct, frozen=True, kw_only=True):
    """A guard or a limit that did not simply allow, under the other policy, after the fact at event `fact`."""

    fact: int
    who: str
    said: str
    code: str


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """A run under another policy, as far as its record is evidence.

    `began` is when the run did, in nanoseconds since the epoch (0: unknown), and `task` the beginning of its task, None where
    it was erased.
    `fact` is the last event that both runs share, `seq` where they part (of the recorded log, 0: nowhere), in `turn`.
    `kind` says in what, `why` in a sentence; `subject` is the call that a rule of either policy found there. `recorded` and `derived` are the decisions that part, JSON text, None
    where that side has none. `agent_state` and `code` are how the other run stands then, `recorded_state` and
    `recorded_code` how the recorded one ends; `state` is the other run's state there, JSON text, "" where both agree.
    `until` was spent by then and `saved` after it: of a run that stops, what the other policy would not have spent.
    `exact`: that is so to the token; else something was under way when it stopped, and counts as spent. `fired` are the
    first guards and limits that spoke, `more` counts the others. `unknown` names what could not be judged.
    `shared` is the last event that is counted with another run, of which this one is a fork (0: none), and `again` the
    part of `saved` that lies before it: see `Totals`. `prices` names the table that was used where the record has no price,
    and `priced` counts the answers that it had one for; `contexts` names that of context lengths, and `context` is what it
    says where the record does not. `unseen` are facts of a run that agrees, by their event and
    in a sentence, that the other policy would have had recorded in other words: nobody was shown them to the record's end.
    `tools` is how many tools the run is known to have, `unfit` are names in the other policy of tools that the run lacks, and of fields that neither its tools nor its calls have:
    such a rule says nothing. `defaults` are settings that the other policy's file does not name and that cause this verdict,
    as `end_of_turn: complete`; only `refold whatif` knows the file, elsewhere there are none.
    """

    run: str
    verdict: Verdict
    began: int = 0
    task: str | None = ""
    events: int
    fact: int
    seq: int = 0
    turn: int = 0
    kind: Parting | str = ""
    why: str = ""
    subject: Subject | None = None
    recorded: str | None = None
    derived: str | None = None
    agent_state: str
    code: str = ""
    recorded_state: str
    recorded_code: str = ""
    until: Spend
    saved: Spend = Spend()
    shared: int = 0
    again: Spend = Spend()
    exact: bool = True
    fired: tuple[Fired, ...] = ()
    more: int = 0
    unknown: tuple[str, ...] = ()
    prices: str = ""
    priced: int = 0
    contexts: str = ""
    context: int | None = None
    unseen: tuple[tuple[int, str], ...] = ()
    tools: int = 0
    unfit: tuple[Complaint, ...] = ()
    defaults: tuple[str, ...] = ()
    state: str = ""

    @property
    def saves(self) -> bool:
        """Whether the other policy would have cut the run short: a task that is done sooner is another thing."""
        return (
            self.verdict is Verdict.STOPS
            and self.agent_state != AgentState.COMPLETED
            and self.saved != Spend()
        )


def spend_of(state: RunState) -> Spend:
    """What a run has used up, all in all."""
    # Of a run that began at no known instant nobody knows how long it took.
    spent, duration = state.spent, state.fact_at - state.lineage.at if state.lineage.at else 0
    waiting = 0 if state.asked_at is None else state.fact_at - state.asked_at
    return Spend(
        steps=spent.steps,
        input=spent.usage.input,
        output=spent.usage.output,
        cost_nanousd=spent.cost_nanousd,
        unpriced=spent.unpriced,
        duration=duration,
        waited=max(0, min(duration, spent.person_wait + waiting)),
    )
