"""Facts made from responses, results and input.

Pure: the instant, the salt and the ids come from the caller. Texts are cleaned of lone surrogates, and of
secrets: user input by the caller's `redactor` here; texts of models and tools before they get here, because
they are streamed and hashed first.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args

import msgspec
from msgspec.structs import replace

from refold.reducers import events
from refold.reducers import events as ev
from refold.reducers.errors import WrongUse
from refold.reducers.failures import overflows
from refold.reducers.messages import Message, MessageCall, ReplyCall
from refold.reducers.patterns import is_object
from refold.reducers.pending import asks_anew, left_open, may_be_said, underway
from refold.reducers.policy import Overflow, Policy, ToolOutput, text_of
from refold.reducers.secrets import PLAIN, Redactor
from refold.reducers.sizes import UNMEASURED, sized, units
from refold.reducers.state import RunState
from refold.reducers.text import clean, clean_fields, cut_output, label, render
from refold.reducers.vocabulary import NANO, FailureClass, ToolError

_LONGEST_WAIT = 7 * 24 * 3600 * NANO
AnyFact = TypeVar("AnyFact", bound=events.Fact | events.Annotation)


def told(fact: AnyFact, content: events.Content, salt: bytes, policy: Policy, **more: Any) -> AnyFact:
    """Return the fact with its content and the fields `more`, and with sizes as the policy measures them."""
    return sized(replace(fact, content=content, **more), policy, salt)


def started(
    fact: events.RunStarted, messages: Sequence[Message], salt: bytes, redactor: Redactor = PLAIN
) -> events.RunStarted:
    """Return `run_started` with its messages, in order: system prompt, earlier messages, the task.

    Calls in earlier messages get ids of their own (`e1`, `e2`, …), which no call of the run can have.

    Raises:
        WrongUse: A result follows no call, or a call has no result.
    """
    redactor = redactor.under(fact.policy.redact)
    said = earlier(messages, "e", redactor)
    shown = replace(
        fact,
        tools=tuple(offered(tool, redactor) for tool in fact.tools),
        agent=redactor.text(fact.agent),
        labels={redactor.text(key): redactor.text(value) for key, value in fact.labels.items()},
    )
    return told(shown, events.Opening(messages=said), salt, fact.policy)


def earlier(messages: Sequence[Message], prefix: str, redactor: Redactor = PLAIN) -> tuple[Message, ...]:
    """Return messages that are not responses of this run, with new ids for their calls.

    Raises:
        WrongUse: A result follows no call, or a call has no result.
    """
    cleaned = tuple(_cleaned(message, redactor) for message in messages)
    units(cleaned)
    return _renamed(cleaned, prefix)


def offered(tool: events.Manifest, redactor: Redactor) -> events.Manifest:
    """Return a tool as recorded and offered: a default value in its schema may be a secret."""
    return replace(tool, description=redactor.text(tool.description), schema=redactor.json(tool.schema))


def responded(
    state: RunState,
    fact: events.ModelResponded,
    answer: events.Answer,
    calls: Sequence[ReplyCall],
    salt: bytes,
) -> events.ModelResponded:
    """Return `model_responded` with the response; each call gets an id unique in the run (`c1`, `c2`, …)."""
    made = [clean_fields(call) for call in calls]
    listed = [
        events.Call(id=f"c{number}", name=call.name, provider_id=call.provider_id)
        for number, call in enumerate(made, state.spent.calls + 1)
    ]
    content = replace(clean_fields(answer), arguments=tuple([call.arguments for call in made]))
    return told(clean_fields(fact), content, salt, state.policy, calls=tuple(listed))


def failed(
    fact: events.ModelFailed, message: str, partial_text: str, salt: bytes, policy: Policy | None = None
) -> events.ModelFailed:
    """Return `model_failed` with the provider's message and the partial text; the wait is bounded.

    The policy's patterns add messages that mean that the context, or one message, was too long.
    """
    content = clean_fields(events.Failure(message=message, partial_text=partial_text))
    wait = None if fact.retry_after is None else min(max(0, fact.retry_after), _LONGEST_WAIT)
    status = fact.status if fact.status is not None and 0 <= fact.status < 1000 else None
    policy = policy or Policy()
    overflow = policy.overflow or Overflow()
    said = overflow.patterns is not None and overflows(content.message, overflow.patterns)
    failure = FailureClass.CONTEXT_OVERFLOW if said else fact.failure
    return told(fact, content, salt, policy, failure=failure, retry_after=wait, status=status)


def summarised(
    state: RunState, fact: events.SummaryReturned, text: str, salt: bytes
) -> events.SummaryReturned:
    """Return `summary_returned` with the model's text; its sizes are those of the resulting message."""
    return told(clean_fields(fact), events.Summary(text=clean(text)), salt, state.policy)


def returned(
    state: RunState, fact: events.ToolReturned, output: str, tool: str, sha256: str | None, salt: bytes
) -> events.ToolReturned:
    """Return `tool_returned` with the output after the policy's cap; uncut if the fact has its bytes.

    For an output that was not cut, bytes and digest are those of the recorded text. `sha256` "" stays; None
    means the digest of `output`.
    """
    policy = state.policy
    text = clean(output)
    cut = fact.cut
    size = fact.output_bytes
    if not size:
        cap = policy.tool_output or ToolOutput(max=None)
        capped = cut_output(text, cap.max, text_of(policy, "output_cut"), tool, cap.unit, cap.keep)
        if sha256 is None and capped.cut:
            sha256 = hashlib.sha256(text.encode()).hexdigest()
        text, size, cut = capped.text, capped.size, capped.cut
    if sha256 is None:
        sha256 = UNMEASURED
    said = events.Output(output=text, sha256=sha256)
    return told(fact, said, salt, policy, output_bytes=size, cut=cut)


def received(
    state: RunState, fact: events.InputReceived, text: str, salt: bytes, redactor: Redactor = PLAIN
) -> events.InputReceived:
    """Return `input_received` with a user's message."""
    said = events.Input(text=redactor.text(text))
    return told(fact, said, salt, state.policy, by=label(redactor.text(fact.by)))


def cancelled(
    fact: events.CancelRequested, reason: str, redactor: Redactor = PLAIN
) -> events.CancelRequested:
    """Return `cancel_requested` with the reason."""
    by = label(redactor.text(fact.by))
    return replace(fact, by=by, content=events.Reason(reason=redactor.text(reason)))


def resolved(
    state: RunState, fact: events.DoubtResolved, note: str, redactor: Redactor = PLAIN
) -> events.DoubtResolved:
    """Return `doubt_resolved` with the outcome and a note.

    Raises:
        WrongUse: The call is not in doubt; the error lists the calls that are.
    """
    doubted = [call.id for call in underway(state) if may_be_said(call, fact.doubt)]
    if fact.call not in doubted:
        raise WrongUse(
            f"run {state.setup.run}: call {fact.call!r} is not in doubt (calls in doubt: {', '.join(doubted) or 'none'})"
        )
    by = label(redactor.text(fact.by))
    return replace(fact, by=by, content=events.Note(note=redactor.text(note)))


def said_error(state: RunState, error: ToolError, values: dict[str, str | int]) -> str:
    """Return the text that the model gets for a failed call; it begins with the error's class."""
    return render(text_of(state.policy, str(error)), values)


def _cleaned(message: Message, redactor: Redactor) -> Message:
    calls = tuple(
        MessageCall(redactor.text(call.id), redactor.text(call.name), redactor.json(call.arguments))
        for call in message.calls
    )
    return replace(
        message,
        text=redactor.text(message.text),
        reasoning=redactor.text(message.reasoning),
        calls=calls,
        call=None if message.call is None else redactor.text(message.call),
        name=None if message.name is None else redactor.text(message.name),
        provider_data=redactor.opaque(message.provider_data),
    )


def _renamed(messages: tuple[Message, ...], prefix: str = "e") -> tuple[Message, ...]:
    renamed: list[Message] = []
    made = 0
    waiting: list[tuple[str, str]] = []
    for message in messages:
        if message.call is not None:
            pair = next(pair for pair in waiting if pair[0] == message.call)
            waiting.remove(pair)
            renamed.append(replace(message, call=pair[1]))
            continue
        waiting = [(call.id, f"{prefix}{made + place}") for place, call in enumerate(message.calls, start=1)]
        made += len(waiting)
        calls = (
            MessageCall(name, call.name, call.arguments)
            for call, (_, name) in zip(message.calls, waiting, strict=True)
        )
        renamed.append(replace(message, calls=tuple(calls)))
    return tuple(renamed)


Answer = Literal["approve", "reject", "edit", "escalate", "terminate"]
ANSWERS: tuple[str, ...] = get_args(Answer)


def approved(
    state: RunState,
    fact: ev.ApprovalAnswered,
    answers: Mapping[str, Answer],
    arguments: Mapping[str, str],
    note: str,
    salt: bytes,
    redactor: Redactor = PLAIN,
) -> ev.ApprovalAnswered:
    """Return `approval_answered` with an approver's answers by call id; `arguments` are JSON texts of edits.

    Calls without an answer are asked about again.

    Raises:
        WrongUse: A call does not wait for approval, or new arguments are not a JSON object or have no edit.
    """
    asked = state.approval.event.calls if state.approval else ()
    _refuse_unasked(asked, answers)
    _refuse_edits(answers, arguments)
    edits = {call: redactor.json(text) for call, text in sorted(arguments.items())}
    ordered = tuple(ev.ApprovalAnswer(call=call, decision=answers[call]) for call in asked if call in answers)
    said = ev.Edits(arguments=edits, note=redactor.text(note))
    made = replace(fact, by=label(redactor.text(fact.by)), answers=ordered)
    return told(made, said, salt, state.policy)


def _refuse_edits(answers: Mapping[str, Answer], arguments: Mapping[str, str]) -> None:
    edited = {call for call, answer in answers.items() if answer == "edit"}
    for call in sorted(edited ^ set(arguments)):
        way = "give its new arguments" if call in edited else "answer 'edit' for it"
        raise WrongUse(f"call {call}: an edit is the answer 'edit' with new arguments; {way}")
    for call, text in arguments.items():
        if not is_object(text):
            raise WrongUse(f"call {call}: expected new arguments as one JSON object, got {text[:80]!r}")


def _refuse_unasked(asked: tuple[str, ...], answers: Mapping[str, Answer]) -> None:
    if not answers:
        raise WrongUse("expected an answer about one call or more, got none")
    for call, answer in answers.items():
        if call not in asked:
            raise WrongUse(
                f"call {call!r} is not waiting for approval; calls that are: {', '.join(asked) or 'none'}"
            )
        if answer not in ANSWERS:
            raise WrongUse(f"call {call}: expected one of {', '.join(ANSWERS)}, got {answer!r}")


def _refuse_message(state: RunState) -> None:
    if state.batch is not None:
        calls = ", ".join(call.id for call in state.batch.calls if call.result is None)
        raise WrongUse(
            f"run {state.setup.run}: calls {calls} have no result at event {state.seq}, so no message can be added "
            "there: fork at a later event, or give their results"
        )


def forked(
    state: RunState, fact: ev.RunForked, text: str, salt: bytes, redactor: Redactor = PLAIN
) -> ev.RunForked:
    """Return `run_forked` at this state of the parent, with a message if `text` is not empty.

    Calls in progress that cannot simply run again are in doubt, except those in `results`. An open request is
    made again if the fork changes it.

    Raises:
        WrongUse: A result is for a call that is not in progress, or a message would come before results.
    """
    redactor = redactor.under((fact.policy or state.policy).redact)
    tools = None if fact.tools is None else tuple(offered(tool, redactor) for tool in fact.tools)
    fact = msgspec.structs.replace(
        fact,
        tools=None if tools == state.setup.tools else tools,
        labels={redactor.text(key): redactor.text(value) for key, value in fact.labels.items()},
        by=label(redactor.text(fact.by)),
    )
    _refuse_results(state, fact.results)
    _refuse_refusals(state)
    if text:
        _refuse_message(state)
    fact = msgspec.structs.replace(
        fact,
        in_doubt=left_open(state, fact),
        downtime=max(0, fact.at - state.at),
        again=asks_anew(state, fact, text=bool(text)),
    )
    if not text:
        return fact
    return told(fact, ev.Input(text=redactor.text(text)), salt, state.policy)


def _refuse_refusals(state: RunState) -> None:
    # The text sent to the model is in the result, which the fork would never get.
    refused = (
        [call.id for call in state.batch.calls if call.refused and not call.result] if state.batch else []
    )
    if refused:
        raise WrongUse(
            f"run {state.setup.run}: the original agent refused call {', '.join(refused)}, and its refusal message is "
            f"recorded after event {state.seq}: fork at a later event"
        )


def _refuse_results(state: RunState, results: tuple[str, ...]) -> None:
    begun = [call.id for call in underway(state)]
    for call in results:
        if call not in begun:
            said = f"under way there: {', '.join(begun)}" if begun else "no call is under way there"
            raise WrongUse(
                f"run {state.setup.run}: call {call!r} waits for no result at event {state.seq}; {said}"
            )


def observed(
    state: RunState, fact: ev.ContextObserved, messages: Sequence[Message], salt: bytes
) -> ev.ContextObserved:
    """Return `context_observed` with the added messages, in order; `fact` has their places and what stayed.

    Their calls get ids of their own (`o17.1`, … for event 17), which no other call of the run has.

    Raises:
        WrongUse: A result follows no call of these messages, or a call has no result.
    """
    said = earlier(messages, f"o{state.seq + 1}.")
    return told(fact, ev.Opening(messages=said), salt, state.policy)
