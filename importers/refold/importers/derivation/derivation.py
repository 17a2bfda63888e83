"""Items into a log: each becomes the fact that it is, and what follows from a fact is derived by the machine.

An answer needs a request, and a request is made as soon as nothing else is waited for. So what stands between
two answers is collected, and told in the order in which the machine asks once, with all of it in the window;
a prompt that the source recorded is compared with what the window would show, and what the source's harness
did besides is observed as such. What the machine would not take is an annotation, never dropped and never
forced in. Right behind a fact stands where it came from.
"""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from refold.importers.derivation import facts
from refold.importers.derivation.beginning import FirstWindow, began_at, opened
from refold.importers.derivation.facts import refused_calls, without_call
from refold.importers.derivation.gap import PromptGap, Reply, beside, bridged, is_persons
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
"""The policy of every imported run: nothing is decided that its own harness did not do."""

_WAITING = 1000  # remarks between two answers; more of them do not wait for what stands before them

_UNSAID = (
    Unknown.TOOLS,
    Unknown.CONTEXT,
)  # no source says which tools only read, nor how large the context was


class Fit(msgspec.Struct, frozen=True):
    """What became of the prompts that a source recorded, each with an answer.

    `first` began a run. `equal`: the view was the same by itself; `changed`: once what the source's harness
    did was observed; `unequal`: not even then. `halves`: prompts that held half of a pair.
    """

    first: int = 0
    equal: int = 0
    changed: int = 0
    unequal: int = 0
    halves: int = 0

    def plus(self, other: "Fit") -> "Fit":
        """Both together."""
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        return Fit(*(one + another for one, another in pairs))


class Derivation:
    """Makes one run's log of its items, in their order. What it holds back waits for the next answer, no
    longer.

    Of a log that is there and goes on now, `between` has what its source never said. `parent`: the run and
    the call that began it.
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
        """An answer that waits for what follows: results may show that calls of it were refused, or a
        person's stop why it ended.
        """

    @property
    def state(self) -> RunState:
        """The state after all that was written."""
        return self._log.state

    @property
    def call_ids(self) -> Mapping[str, str]:
        """The ids of its calls, by the providers'."""
        return self._log.call_ids

    def take(self, item: Item) -> list[Derived]:
        """What can be written once this item is known."""
        full = len(self._gap) >= _WAITING
        if full or not self._waits_behind(item):
            self._settle(stopped=isinstance(item, Cancelled))
        match item:
            case Answered():
                self._reach(item)
                self._held = item
            case RequestFailed():
                self._reach(item)
                facts.failure(self._log, item)
            case RunEnded():
                self._end(item)
            case Remarked() | Unread() if self._log.state.seq and full:
                beside(self._log, item)
            case _:
                self._gap.append(item)
        if self._held is not None and _is_over(self._held):
            self._settle()
        return self._log.taken()

    def _waits_behind(self, item: Item) -> bool:
        """Whether the answer that is held waits still: of one with calls a result may follow, of another a
        person's stop.
        """
        if self._held is not None and self._held.calls:
            return not isinstance(item, Answered | RequestFailed | RunEnded)
        return _goes_by(item)

    def _settle(self, *, stopped: bool = False) -> None:
        """Tell the answer that waits; `stopped`: a person did it."""
        held, self._held = self._held, None
        if held is not None:
            refused = refused_calls(held.calls, self._gap)
            facts.answer(self._log, held, stopped=stopped and not held.calls, refused=refused)

    def _reach(self, asked: Reply | None, cancel: Cancelled | None = None) -> None:
        """Come to the request that `asked` answers, or to the end of the source."""
        items, self._gap = self._gap, []
        if not self._log.state.seq:
            self._begin(items, asked, unasked=asked is None and cancel is None)
            if cancel is not None:
                facts.cancel(self._log, cancel)
                facts.cancelled_request(self._log, cancel)
            return
        gap = PromptGap(items, asked, cancel)
        plan = bridged(self._log, gap)
        if gap.prompt is not None:
            self._compare(gap.prompt, plan, asked)

    def _compare(self, prompt: Prompted, plan: WindowPlan, asked: Reply | None) -> None:
        """Say whether what is shown now is what the source's prompt says was shown."""
        verdict = self._verdict(plan, asked)
        for half in plan.halves:
            problem = "the prompt holds a call without its result, or a result without its call"
            self._log.diagnose("half_pair", problem, prompt, text=self._half(half))
        rest = "" if plan.change else prompt.rest  # else it stands with the fact
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
        shown = tuple(key for unit in self._log.standing({}) for key in unit.keys)
        if shown != plan.keys and (
            asked is not None or not plan.change
        ):  # what left does so with the next request
            return "unequal"
        return "changed" if plan.change else "equal"

    def _begin(self, items: list[Item], asked: Reply | None, *, unasked: bool) -> None:
        start = opened(items)
        began = next((each for each in items if isinstance(each, RunBegan)), RunBegan(position="", key=""))
        model = began.model or (asked.model if isinstance(asked, Answered) else "")
        at = began_at(items, asked)
        seq = self._log.tell(
            lambda _, at, salt: composition.started(
                self._started(began, at, model, start, unasked=unasked), start.messages, salt
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
                beside(self._log, item)

    def _diagnose_beginning(self, start: FirstWindow, began: RunBegan, seq: int) -> None:
        for unit in start.hidden:
            problem = "something was said that the first prompt has not"
            self._log.diagnose("not_shown", problem, began, seq=seq, text=words_of(unit))
        for orphan in start.orphans:
            self._log.diagnose("result_without_call", without_call(orphan), orphan, text=orphan.output)
        for half in start.halves:
            problem = "the run begins with a call without its result, or a result without its call"
            self._log.diagnose("half_pair", problem, began, seq=seq, text=self._half(half))

    def _half(self, unit: Unit) -> str:
        """What of half a pair no message says; each prompt may show it again."""
        told = unit.rest in self._halves
        self._halves.add(unit.rest)
        return "" if told else unit.rest

    def _started(
        self, began: RunBegan, at: int, model: str, start: FirstWindow, *, unasked: bool
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
            unasked=unasked,
            unknown=_UNSAID,
        )

    def _end(self, item: RunEnded) -> None:
        cancel = _stopped(self._gap)
        if cancel is not None:
            self._gap.remove(cancel)
        self._reach(None, cancel)
        counted = (
            ("requests", item.requests, self._log.requests),
            ("calls", item.asked, self._log.calls),
        )
        for what, of_source, of_log in counted:
            if of_source is not None and of_source > of_log:
                problem = f"by the source the run has {of_source} {what}, in this log {of_log}"
                self._log.diagnose(f"{what}_missing", problem, item)
        self._log.record(item, what=f"{END}{item.end}", text=item.end_source)


def _is_over(answer: Answered) -> bool:
    """Whether nothing that follows an answer can tell how it stopped."""
    return answer.stop is not None and not answer.calls


def _goes_by(item: Item) -> bool:
    """Whether an item says nothing of how the answer before it stopped: the harness, too, words a person's
    stop first.
    """
    return isinstance(item, Remarked | Unread) or (isinstance(item, Said) and not is_persons(item))


def _stopped(items: list[Item]) -> Cancelled | None:
    """The cancellation that a source ends with: after it nobody said, answered or returned anything."""
    for item in reversed(items):
        if isinstance(item, Cancelled):
            return item
        if isinstance(item, Returned | Prompted) or is_persons(item):
            return None
    return None
