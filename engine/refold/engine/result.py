"""Results of runs: how a run ended, why, the last text and the usage. Nothing is raised by default."""

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
    """How a run ended, or that it waits for an operator.

    `code` is stable, `reason` a sentence, `text` the model's last text or "". `provider_error` is the
    provider's message for the failed request that ended the run, with its code first, redacted, on one line;
    else "". `source` is the origin of the text: `answer`, `grace` (a last response that a limit granted),
    `partial`, `fallback` (the policy's own text) or `none`. `where` is the state in which a run was cancelled
    or timed out. `seq` is the event that ended the run.
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
    """A call that waits for an operator: may it run (`approval`), or how did it end (`doubt`).

    `arguments` is its JSON text; None if it was erased.
    """

    id: str
    tool: str
    arguments: str | None
    asked: Literal["approval", "doubt"]


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has ended or waits.

    `usage` has the tokens, `spent` everything (steps, tokens, nano-dollars, nanoseconds), `messages` the next
    prompt, `limit` the limit that ended the run, `pending` the calls that wait for an operator. If a payload
    of the prompt was erased, `messages` is empty, and `erased` is the event that held it.
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
        """The model's last text or "": `outcome.text`."""
        return self.outcome.text

    @property
    def usage(self) -> Usage:
        """The counted tokens."""
        return self.spent.usage

    @property
    def cost(self) -> float | None:
        """The cost in US dollars; None if the price of a response is unknown."""
        return None if self.spent.unpriced else self.spent.cost_nanousd / NANO

    def __repr__(self) -> str:
        """Return one line: `<RunResult 0e6d10e8 COMPLETED (end_turn), step 2, text='It is 30 cents.'>`."""
        ended = self.outcome
        text = ended.text if len(ended.text) <= _SHOWN else f"{ended.text[:_SHOWN]}…"
        error = f", provider_error={ended.provider_error!r}" if ended.provider_error else ""
        return f"<RunResult {self.run} {self.state} ({ended.code}), step {ended.step}, text={text!r}{error}>"

    def raise_for_limit(self) -> None:
        """Raise `LimitError` if a limit ended the run."""
        if self.limit is not None:
            raise LimitError(self.run, self.limit)


class LimitError(RefoldError):
    """A limit ended the run. Raised only by `RunResult.raise_for_limit`."""

    def __init__(self, run: str, limit: LimitHit) -> None:
        super().__init__(run, limit)
        self.run, self.limit = run, limit

    def __str__(self) -> str:
        hit = self.limit
        used, value = amount(hit.used, hit.unit).removesuffix(f" {hit.unit}"), amount(hit.value, hit.unit)
        outcome = (
            f"reached: {used}" if is_reached(hit) else f"cannot be checked, usage unknown: at least {used}"
        )
        return f"run {self.run}: limit {hit.name!r} {outcome} of {value} at step {hit.step}"


MessagesOf = Callable[[RunState, Mapping[int, Event]], Sequence[Message]]
"""(state, contents) -> the next prompt, as `view` returns it."""


def result_of(
    state: RunState,
    contents: Mapping[int, Event],
    messages_of: MessagesOf = view,
) -> RunResult:
    """Return the result for a state; `contents` has the events of its window and its last response.

    `messages_of` returns the next prompt.
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
    """Return the outcome of an ended run."""
    if ended.source == "fallback":
        values: dict[str, str | int] = {"max": policy_value(state.limit)} if state.limit else {}
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
    """Return the provider's message for the last failed request before an event, or ""."""
    failed = [seq for seq, event in contents.items() if isinstance(event, ModelFailed) and seq < before]
    last = contents[max(failed)] if failed else None
    return last.content.message if isinstance(last, ModelFailed) and last.content else ""


def words_in(contents: Mapping[int, Event], seqs: tuple[int, ...]) -> str:
    """Join the model's texts in these events without a separator: a partial response and its continuation."""
    texts: list[str] = []
    for seq in seqs:
        match contents.get(seq):
            case ModelResponded(content=answer) if answer is not None:
                texts.append(answer.text)
            case ModelFailed(content=failure) if failure is not None:
                texts.append(failure.partial_text)
            case _:
                pass
    return "".join(texts)


def _waits(state: RunState) -> str:
    if state.approval is not None:
        return f"the run waits for approval of {', '.join(state.approval.event.calls)}"
    if doubted := unknown_calls(state):
        return f"the run waits for an operator to resolve {', '.join(doubted)} (outcome unknown)"
    if children := ", ".join(open_children(state)):
        return f"a child run waits for an operator: {children}"
    waits_for = "a message" if state.agent_state.awaits_operator else "a worker"
    return f"the run waits for {waits_for}"


def policy_value(hit: LimitHit) -> str:
    """Return the value of a limit in the units of policies: seconds and USD instead of billionths."""
    billionths = hit.unit in (LimitUnit.NANOSECONDS, LimitUnit.NANO_USD)
    return f"{hit.value / NANO:g}" if billionths else str(hit.value)
