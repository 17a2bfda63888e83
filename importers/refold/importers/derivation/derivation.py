"""Derivation of a log from items: each item becomes a fact, and the machine derives the decisions.

The machine makes a request as soon as nothing else is pending. So items between two responses are collected,
and written in the order in which the machine requests once, with all of them in the window. A recorded prompt
is compared with the derived one; other changes by the source's harness are recorded as `context_observed`.
Items that the machine rejects become annotations: they are neither dropped nor forced. Each fact is followed
by its source position.
"""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from refold.importers.derivation import facts
from refold.importers.derivation.beginning import FirstWindow, derive_window, find_start_time
from refold.importers.derivation.facts import describe_orphan, refused_calls
from refold.importers.derivation.gap import PromptGap, Reply, is_from_user, record_beside, write_gap
from refold.importers.derivation.log import (
    Derived,
    ImportProblem,
    Interludes,
    Salts,
    TranscriptOrigin,
    Writer,
)
from refold.importers.derivation.units import (
    Unit,
    WindowPlan,
    words_of,
)
from refold.importers.items import (
    Answered,
    Cancelled,
    Item,
    Prompted,
    Remarked,
    RequestFailed,
    Returned,
    RunBegan,
    RunEnded,
    Said,
    Unread,
)
from refold.reducers import composition
from refold.reducers.events import FORMAT, RunStarted
from refold.reducers.events.parts import Parent
from refold.reducers.parser import parse
from refold.reducers.rules.order import RULES
from refold.reducers.source_marks import END, PARENT_LABEL
from refold.reducers.state import RunState
from refold.reducers.text import clean
from refold.reducers.vocabulary import SOURCE_LABEL, Unknown

OBSERVED = parse({"preset": "observed"})
"""The policy of every imported run: it decides nothing that the source's harness did not do."""

_WAITING = 1000  # remarks between two responses; more are written at once

_UNSAID = (
    Unknown.TOOLS,
    Unknown.CONTEXT,
)  # no source records which tools are read-only, or the size of the context window


class Fit(msgspec.Struct, frozen=True):
    """Results of comparing the prompts that a source recorded.

    `first` began a run. `equal`: the derived prompt was the same; `changed`: it was the same after a change
    by the harness was recorded; `unequal`: it still differed. `halves`: prompts with half of a pair of call
    and result.
    """

    first: int = 0
    equal: int = 0
    changed: int = 0
    unequal: int = 0
    halves: int = 0

    def plus(self, other: "Fit") -> "Fit":
        """Return the sum of both."""
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        return Fit(*(one + another for one, another in pairs))


class Derivation:
    """Derives one run's log from its items, in order. Items are held back until the next response at most.

    `between`: events of an existing log that are not from its source, if that log is continued. `parent`: the
    run and the call that started this one.
    """

    def __init__(
        self,
        run: str,
        origin: TranscriptOrigin,
        salts: Salts,
        between: Interludes = MappingProxyType({}),
        parent: Parent | None = None,
    ) -> None:
        self.fit = Fit()
        self.problems: list[ImportProblem] = []
        self._run, self._origin, self._parent = run, origin, parent
        self._log = Writer(origin, salts, self.problems.append, between)
        self._gap: list[Item] = []
        self._halves: set[str] = set()
        self._held: Answered | None = None
        """A response held until the next item: results may show that its calls were refused, or an
        interruption why it ended.
        """

    @property
    def state(self) -> RunState:
        """The state after all written events."""
        return self._log.state

    @property
    def call_ids(self) -> Mapping[str, str]:
        """Our ids of its calls, by the providers' ids."""
        return self._log.call_ids

    def take(self, item: Item) -> list[Derived]:
        """Return the events that can be written once this item is known."""
        full = len(self._gap) >= _WAITING
        if full or not self._keeps_waiting(item):
            self._settle(stopped=isinstance(item, Cancelled))
        match item:
            case Answered():
                self._advance(item)
                self._held = item
            case RequestFailed():
                self._advance(item)
                facts.write_failure(self._log, item)
            case RunEnded():
                self._end(item)
            case Remarked() | Unread() if self._log.state.seq and full:
                record_beside(self._log, item)
            case _:
                self._gap.append(item)
        if self._held is not None and _is_over(self._held):
            self._settle()
        return self._log.take_written()

    def _keeps_waiting(self, item: Item) -> bool:
        """Return whether the held response still waits.

        With calls, a result may follow; without, an interruption by the user.
        """
        if self._held is not None and self._held.calls:
            return not isinstance(item, Answered | RequestFailed | RunEnded)
        return _is_irrelevant(item)

    def _settle(self, *, stopped: bool = False) -> None:
        """Write the held response; `stopped`: the user interrupted it."""
        held, self._held = self._held, None
        if held is not None:
            refused = refused_calls(held.calls, self._gap)
            facts.write_response(self._log, held, stopped=stopped and not held.calls, refused=refused)

    def _advance(self, asked: Reply | None, cancel: Cancelled | None = None) -> None:
        """Advance to the request that `asked` replies to, or to the end of the source."""
        items, self._gap = self._gap, []
        if not self._log.state.seq:
            self._begin(items, asked, no_request=asked is None and cancel is None)
            if cancel is not None:
                facts.write_cancellation(self._log, cancel)
                facts.write_cancelled_request(self._log, cancel)
            return
        gap = PromptGap(items, asked, cancel)
        plan = write_gap(self._log, gap)
        if gap.prompt is not None:
            self._compare(gap.prompt, plan, asked)

    def _compare(self, prompt: Prompted, plan: WindowPlan, asked: Reply | None) -> None:
        """Record whether the derived prompt equals the recorded one."""
        verdict = self._verdict(plan, asked)
        for half in plan.halves:
            problem = "the prompt has a call without its result, or a result without its call"
            self._log.diagnose("half_pair", problem, prompt, text=self._take_half(half))
        rest = "" if plan.change else prompt.rest  # otherwise recorded with the fact
        self._log.record(msgspec.structs.replace(prompt, rest=rest), what=f"{prompt.why}:{verdict}")
        if asked is not None and prompt.why == "prompt":
            self.fit = self.fit.plus(
                Fit(
                    equal=int(verdict == "equal"),
                    changed=int(verdict == "changed"),
                    unequal=int(verdict == "unequal"),
                    halves=int(bool(plan.halves)),
                )
            )

    def _verdict(self, plan: WindowPlan, asked: Reply | None) -> str:
        shown = tuple(key for unit in self._log.list_standing({}) for key in unit.keys)
        if shown != plan.keys and (
            asked is not None or not plan.change
        ):  # removals take effect with the next request
            return "unequal"
        return "changed" if plan.change else "equal"

    def _begin(self, items: list[Item], asked: Reply | None, *, no_request: bool) -> None:
        start = derive_window(items)
        began = next((each for each in items if isinstance(each, RunBegan)), RunBegan(position="", key=""))
        model = began.model or (asked.model if isinstance(asked, Answered) else "")
        at = find_start_time(items, asked)
        seq = self._log.write_fact(
            lambda _, at, salt: composition.started(
                self._make_start(began, at, model, start, no_request=no_request), start.messages, salt
            ),
            Item(began.position, at),
            *start.messages,
        )
        for item in items:
            self._tell_first(item, seq, asked)
        self._diagnose_beginning(start, began, seq)

    def _tell_first(self, item: Item, seq: int, asked: Reply | None) -> None:
        match item:
            case RunBegan() | Said() | Returned():
                self._log.record(item, seq)
            case Prompted():
                self._log.record(item, seq, f"{item.why}:first")
                self.fit = self.fit.plus(Fit(first=int(asked is not None and item.why == "prompt")))
            case _:
                record_beside(self._log, item)

    def _diagnose_beginning(self, start: FirstWindow, began: RunBegan, seq: int) -> None:
        for unit in start.hidden:
            problem = "an earlier message is missing in the first prompt"
            self._log.diagnose("not_shown", problem, began, seq=seq, text=words_of(unit))
        for orphan in start.orphans:
            self._log.diagnose("result_without_call", describe_orphan(orphan), orphan, text=orphan.output)
        for half in start.halves:
            problem = "the run begins with a call without its result, or a result without its call"
            self._log.diagnose("half_pair", problem, began, seq=seq, text=self._take_half(half))

    def _take_half(self, unit: Unit) -> str:
        """Return the part of half a pair that no message has, once; later prompts may repeat it."""
        recorded = unit.rest in self._halves
        self._halves.add(unit.rest)
        return "" if recorded else unit.rest

    def _make_start(
        self, began: RunBegan, at: int, model: str, start: FirstWindow, *, no_request: bool
    ) -> RunStarted:
        labels = {
            SOURCE_LABEL: self._origin.format,
            "source.file": self._origin.file,
            "source.key": began.key,
            **({PARENT_LABEL: began.parent} if began.parent else {}),
            **({"source.call": began.call} if began.call else {}),
        }
        return RunStarted(
            format=FORMAT,
            at=at,
            run=self._run,
            rules=RULES,
            policy=OBSERVED,
            model=clean(model),
            settings={clean(name): clean(value) for name, value in began.settings.items()},
            tools=began.tools,
            agent=began.agent,
            parent=self._parent,
            labels={**began.labels, **labels},
            task=start.task,
            no_request=no_request,
            unknown=_UNSAID,
        )

    def _end(self, item: RunEnded) -> None:
        cancel = _find_final_cancellation(self._gap)
        if cancel is not None:
            self._gap.remove(cancel)
        self._advance(None, cancel)
        counted = (
            ("requests", item.requests, self._log.requests),
            ("calls", item.asked, self._log.calls),
        )
        for what, of_source, of_log in counted:
            if of_source is not None and of_source > of_log:
                problem = f"the source records {of_source} {what} for this run, this log has {of_log}"
                self._log.diagnose(f"{what}_missing", problem, item)
        self._log.record(item, what=f"{END}{item.end}", text=item.end_source)


def _is_over(answer: Answered) -> bool:
    """Return whether no later item can affect how a response ended."""
    return answer.stop is not None and not answer.calls


def _is_irrelevant(item: Item) -> bool:
    """Return whether an item is irrelevant to how the previous response ended.

    The harness may add its message before an interruption by the user.
    """
    return isinstance(item, Remarked | Unread) or (isinstance(item, Said) and not is_from_user(item))


def _find_final_cancellation(items: list[Item]) -> Cancelled | None:
    """Return the cancellation that ends a source: no message, response or result follows it."""
    for item in reversed(items):
        if isinstance(item, Cancelled):
            return item
        if isinstance(item, Returned | Prompted) or is_from_user(item):
            return None
    return None
