"""A life as a transcript would have it that lacks some of it: tools, tokens, prices, times, errors, results,
blotted out by chance.

What is left is derived anew, as an import does it: each fact stands where it stood, with what its source says
of it right behind it, and what has no time of its own stands at the instant of what came before.
"""

import random
from bisect import bisect_right
from typing import NamedTuple

from msgspec.structs import replace

from refold.reducers import composition
from refold.reducers.events import (
    Event,
    Fact,
    ModelFailed,
    ModelResponded,
    RunStarted,
    SourceRecorded,
    SummaryReturned,
    ToolReturned,
)
from refold.reducers.evolution import evolve
from refold.reducers.folds import advance
from refold.reducers.messages import Usage
from refold.reducers.state import NEW, RunState
from refold.reducers.vocabulary import StopReason, Unknown


class Blots(NamedTuple):
    """How much of each is lost, from 0 to 1, by a seed."""

    seed: int
    tools: float = 0
    tokens: float = 0
    prices: float = 0
    times: float = 0
    context: float = 0
    errors: float = 0
    results: float = 0
    stops: float = 0


class Blotted:
    """The log of a life with blots in it. `facts` are the numbers of its facts, in their order."""

    def __init__(self, log: list[Event], blots: Blots) -> None:
        self._chance, self._blots = random.Random(blots.seed), blots
        self.log: list[Event] = []
        self.facts: list[int] = []
        self._state: RunState = NEW
        for event in log:
            if isinstance(event, Fact):
                self._tell(event)

    def place(self, seq: int) -> int:
        """The how-manieth fact the event follows from, or is."""
        return bisect_right(self.facts, seq) - 1

    def _lost(self, share: float) -> bool:
        return self._chance.random() < share

    def _tell(self, fact: Fact) -> None:
        before, lost = self._state.at, self._lost(self._blots.times)
        fact = self._blot(fact)
        if lost:
            at = fact.at if isinstance(fact, RunStarted) else before
            fact = replace(fact, at=at, unknown=(Unknown.TIME, *fact.unknown))
        seq = self._state.seq + 1
        self.facts.append(seq)
        self._state, events = advance(self._state, replace(fact, at=max(fact.at, before)))
        self.log += events
        note = SourceRecorded(at=self._state.at, format="test", source="", position="", seq=seq)
        self._state = evolve(self._state, note)
        self.log.append(note)

    def _blot(self, fact: Fact) -> Fact:
        """The fact as the source has it."""
        pending = self._state.request or self._state.summary
        request = pending.seq if pending else 0
        match fact:
            case RunStarted(tools=tools, context=context):
                tools = tuple(tool for tool in tools if not self._lost(self._blots.tools))
                context = None if self._lost(self._blots.context) else context
                lacks = [Unknown.TOOLS] + [Unknown.CONTEXT] * (context is None)
                return replace(fact, tools=tools, context=context, unknown=tuple(lacks))
            case ModelResponded() | SummaryReturned():
                uncounted, unpriced = self._lost(self._blots.tokens), self._lost(self._blots.prices)
                usage = self._least(fact.usage) if uncounted else fact.usage
                cost = None if unpriced else fact.cost_nanousd
                unsaid = (Unknown.USAGE,) if uncounted or usage == Usage() else ()
                fact = replace(fact, request=request, usage=usage, cost_nanousd=cost, unknown=unsaid)
                return self._unstopped(fact) if isinstance(fact, ModelResponded) else fact
            case ModelFailed():
                fact = replace(fact, request=request, usage=Usage(), cost_nanousd=None, retry_after=None)
                return replace(fact, unknown=(Unknown.USAGE, Unknown.COST))
            case ToolReturned():
                fact = replace(fact, duration=0)
                if self._lost(self._blots.results):
                    return self._no_result(fact)
                lost = self._lost(self._blots.errors)  # nobody says whether it failed
                return replace(fact, error=None, unknown=(Unknown.ERRORS,)) if lost else fact
            case _:
                return fact

    def _unstopped(self, fact: ModelResponded) -> ModelResponded:
        """The answer, of which nobody may say why it stopped: with calls that is seen by them."""
        if fact.calls or not self._lost(self._blots.stops):
            return fact
        return replace(fact, stop=StopReason.END_TURN, stop_raw="", unknown=(*fact.unknown, Unknown.STOP))

    def _no_result(self, fact: ToolReturned) -> Fact:
        lost = ToolReturned(at=fact.at, call=fact.call, unknown=(Unknown.RESULT,))
        return composition.returned(self._state, lost, "", "", None, b"")

    def _least(self, usage: Usage) -> Usage:
        return self._chance.choice((Usage(), replace(usage, output=0)))
