"""What a caller gets of a run: how it ended, why, what was said and spent. Nothing is raised by default."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from refold.reducers.errors import RefoldError
from refold.reducers.events import Event, ModelFailed, ModelResponded
from refold.reducers.failures import provider_error
from refold.reducers.limits import LimitHit, LimitUnit, amount, is_reached
from refold.reducers.machine import AgentState
from refold.reducers.messages import Message, Usage
from refold.reducers.meters import open_children
from refold.reducers.pending import unknown_calls
from refold.reducers.state import Outcome, RunState, Spent
from refold.reducers.text import render
from refold.reducers.views import MissingContent, arguments_of, view
from refold.reducers.vocabulary import NANO

_SHOWN = 200  # characters of a text in the short form of a result


class RunOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended, or that it waits for a person.

    `code` is stable, `reason` a sentence, `text` the last thing the model said, "" if it said nothing.
    `provider_error` is what the provider said of the request that ended the run, its code in front, redacted,
    on one line; "" where no failed request ended it. `source` says what the text is: `answer`, `grace` (the
    last word that a limit granted), `partial`, `fallback` (the policy's own) or `none`. `where` says what was
    going on at a cancellation or a time-out. `seq` is the event that ended it.
    """

    code: str
    reason: str
    text: str
    source: str
    step: int
    seq: int
    where: str | None = None
    provider_error: str = ""


class WaitingCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call about which a person is asked: whether it may run (`approval`), or how it ended (`doubt`).

    `arguments` are the JSON text with which it would run or did run; None where they were erased.
    """

    id: str
    tool: str
    arguments: str | None
    asked: Literal["approval", "doubt"]


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it stands when nothing more is to be done now.

    `usage` are the tokens, `spent` all that was (steps, tokens, nano-dollars, nanoseconds), `messages` what
    the model would see next, `limit` the limit that ended the run, if one did, `pending` the calls about
    which a person is asked. Where words that they need were erased, `messages` is empty, and `erased` is the
    event that had them.
    """

    run: str
    state: AgentState
    outcome: RunOutcome
    spent: Spent
    messages: tuple[Message, ...]
    limit: LimitHit | None = None
    pending: tuple[WaitingCall, ...] = ()
    erased: int | None = None

    @property
    def text(self) -> str:
        """The last thing that the model said, "" if it said nothing: `outcome.text`."""
        return self.outcome.text

    @property
    def usage(self) -> Usage:
        """The tokens that were counted."""
        return self.spent.usage

    @property
    def cost(self) -> float | None:
        """What the run cost, in US dollars; None where the price of one of its answers is not known."""
        return None if self.spent.unpriced else self.spent.cost_nanousd / NANO

    def __repr__(self) -> str:
        """One line: `<RunResult 0e6d10e8 COMPLETED (end_turn), step 2, text='It is 30 cents.'>`."""
        ended = self.outcome
        text = ended.text if len(ended.text) <= _SHOWN else f"{ended.text[:_SHOWN]}…"
        said = f", provider_error={ended.provider_error!r}" if ended.provider_error else ""
        return f"<RunResult {self.run} {self.state} ({ended.code}), step {ended.step}, text={text!r}{said}>"

    def raise_for_limit(self) -> None:
        """Raise `LimitError` if a limit ended the run."""
        if self.limit is not None:
            raise LimitError(self.run, self.limit)


class LimitError(RefoldError):
    """A limit ended the run. Raised by `RunResult.raise_for_limit`, never on its own."""

    def __init__(self, run: str, limit: LimitHit) -> None:
        super().__init__(run, limit)
        self.run, self.limit = run, limit

    def __str__(self) -> str:
        hit = self.limit
        used, value = amount(hit.used, hit.unit).removesuffix(f" {hit.unit}"), amount(hit.value, hit.unit)
        said = (
            f"reached: {used}"
            if is_reached(hit)
            else f"cannot be kept: {used} and nobody knows how much more"
        )
        return f"run {self.run}: limit {hit.name!r} {said} of {value} at step {hit.step}"


MessagesOf = Callable[[RunState, Mapping[int, Event]], Sequence[Message]]
"""(state, contents) -> what the model would see, as `view` tells."""


def result_of(
    state: RunState,
    contents: Mapping[int, Event],
    messages_of: MessagesOf = view,
) -> RunResult:
    """The result that a state stands for; `contents` has the words of its window and its last answer.

    `messages_of` gives the messages that the next request would have.
    """
    messages: tuple[Message, ...] = ()
    erased: int | None = None
    try:
        messages = tuple(messages_of(state, contents))
    except MissingContent as error:
        erased = error.seq
    return RunResult(
        run=state.setup.run,
        state=state.agent_state,
        outcome=_outcome(state, contents),
        spent=state.spent,
        messages=messages,
        limit=state.limit if state.ended else None,
        pending=_pending(state, contents),
        erased=erased,
    )


def _pending(state: RunState, contents: Mapping[int, Event]) -> tuple[WaitingCall, ...]:
    if state.asked_at is None or state.batch is None:
        return ()
    asked = unknown_calls(state) if state.approval is None else state.approval.event.calls
    kind: Literal["approval", "doubt"] = "doubt" if state.approval is None else "approval"
    return tuple(
        [
            WaitingCall(
                id=call.id, tool=call.name, arguments=_arguments(state, call.id, contents), asked=kind
            )
            for call in state.batch.calls
            if call.id in asked
        ]
    )


def _arguments(state: RunState, call: str, contents: Mapping[int, Event]) -> str | None:
    try:
        return arguments_of(state, call, contents)
    except MissingContent:
        return None


def _outcome(state: RunState, contents: Mapping[int, Event]) -> RunOutcome:
    if state.outcome is not None:
        return _final(state, state.outcome, contents)
    text = words_in(contents, () if state.answer is None else (state.answer.seq,))
    return RunOutcome(
        code="waiting",
        reason=_waits(state),
        text=text,
        source="partial" if text else "none",
        step=state.spent.steps,
        seq=state.seq,
    )


def _final(state: RunState, ended: Outcome, contents: Mapping[int, Event]) -> RunOutcome:
    """Return how an ended run ended."""
    if ended.source == "fallback":
        values: dict[str, str | int] = {"max": plainly(state.limit)} if state.limit else {}
        text = render(state.policy.fallback or "", values)
    else:
        text = words_in(contents, (*ended.parts, *(() if ended.answer is None else (ended.answer,))))
    return RunOutcome(
        code=ended.code,
        reason=ended.reason,
        text=text,
        source=ended.source,
        step=ended.step,
        seq=ended.seq,
        where=ended.event.where,
        provider_error=provider_error(ended.code, _last_failure(contents, ended.seq)),
    )


def _last_failure(contents: Mapping[int, Event], before: int) -> str:
    """Return what the provider reported in the last failed request before an event, "" for nothing."""
    failed = [seq for seq, event in contents.items() if isinstance(event, ModelFailed) and seq < before]
    last = contents[max(failed)] if failed else None
    return last.content.message if isinstance(last, ModelFailed) and last.content else ""


def words_in(contents: Mapping[int, Event], seqs: tuple[int, ...]) -> str:
    """What the model said in these events, nothing between: an answer that was cut, and what went on from
    there.
    """
    said: list[str] = []
    for seq in seqs:
        match contents.get(seq):
            case ModelResponded(content=answer) if answer is not None:
                said.append(answer.text)
            case ModelFailed(content=failure) if failure is not None:
                said.append(failure.partial_text)
            case _:
                pass
    return "".join(said)


def _waits(state: RunState) -> str:
    if state.approval is not None:
        return f"the run waits for approval of {', '.join(state.approval.event.calls)}"
    if doubted := unknown_calls(state):
        return f"the run waits for a person to say how {', '.join(doubted)} ended"
    children = ", ".join(open_children(state))
    return f"a child run waits for a person: {children}" if children else "the run waits for a message"


def plainly(hit: LimitHit) -> str:
    """The value of a limit as a policy writes it: seconds and USD, not billionths of them."""
    billionths = hit.unit in (LimitUnit.NANOSECONDS, LimitUnit.NANO_USD)
    return f"{hit.value / NANO:g}" if billionths else str(hit.value)
