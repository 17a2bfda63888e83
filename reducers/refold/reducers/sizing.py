"""The sizes of what was said, as the body of a fact has them: filled in when it is made, and measured again by whoever checks.

Limits and pruning go by these numbers alone and never read a text. So a log in which somebody made one smaller
would say that no limit was reached: whoever has the words holds the numbers against them.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from refold.reducers.arguments import is_object
from refold.reducers.errors import WrongUse
from refold.reducers.events import (
    Annotation,
    Answer,
    Call,
    ContextObserved,
    Fact,
    Failure,
    Input,
    InputReceived,
    MessageSize,
    ModelFailed,
    ModelResponded,
    Opening,
    Output,
    RunForked,
    RunStarted,
    Summary,
    SummaryReturned,
    ToolReturned,
)
from refold.reducers.failures import overflows
from refold.reducers.history import previewed
from refold.reducers.knobs import Overflow
from refold.reducers.measure import measured
from refold.reducers.messages import Message, MessageCall
from refold.reducers.policy import Policy
from refold.reducers.state import RunState
from refold.reducers.text import hollow, size_of
from refold.reducers.views import summary_text
from refold.reducers.vocabulary import Role

AnyFact = TypeVar("AnyFact", bound=Annotation | Fact)
SIZED = (
    RunStarted,
    RunForked,
    ContextObserved,
    ModelResponded,
    ModelFailed,
    ToolReturned,
    InputReceived,
    SummaryReturned,
)
"""The facts whose bodies hold sizes of their contents."""


def sized(fact: AnyFact, policy: Policy) -> AnyFact:
    """The fact with the sizes of its content, as the policy in force measures; without content, as it is.

    Of an output that was cut the size stays: what it is of is gone. Raises `WrongUse` where the messages of the content do
    not belong together.
    """
    return replace(fact, **_sizes(fact, policy))


def misfit(state: RunState, fact: Fact) -> str:
    """Which size in the body of a fact that comes now is not that of its content, as a sentence; "" if all are, or it has none."""
    try:
        sizes = _sizes(fact, state.policy)
    except WrongUse as error:
        return f"its content cannot be measured: {error}"
    for name, size in sizes.items():
        for path, recorded, measured_ in _parted(name, getattr(fact, name), size):
            return (
                "a size in its body is not that of its content: "
                f"{path} is {recorded}, and was measured as {measured_}"
            )
    match fact:
        case ToolReturned(cut=False, content=Output(output=output, sha256=sha256)) if sha256:
            return (
                "" if sha256 == sha256_of(output) else "the sha256 in its content is not that of its output"
            )
        case _:
            return ""


def sha256_of(output: str) -> str:
    """The digest of an output that was not cut, hex."""
    return hashlib.sha256(output.encode()).hexdigest()


def units(messages: Sequence[Message]) -> list[int]:
    """For each message the index of the reply whose calls it belongs to, its own if it is alone.

    Raises `WrongUse` where a result follows no call, or a call has no result.
    """
    found: list[int] = []
    open_calls: list[str] = []
    reply = 0
    for place, message in enumerate(messages):
        if (message.role is Role.TOOL) != (message.call is not None):
            raise WrongUse(f"messages[{place}]: a tool's result, and nothing else, names the call it answers")
        if message.call is not None:
            if message.call not in open_calls:
                raise WrongUse(
                    f"messages[{place}]: a result of call {message.call!r}, which no message before it made"
                )
            open_calls.remove(message.call)
        elif open_calls:
            raise WrongUse(f"messages[{place}]: call {open_calls[0]!r} has no result before it")
        else:
            reply = place
            open_calls = [call.id for call in message.calls]
        found.append(reply)
    if open_calls:
        raise WrongUse(f"messages: call {open_calls[0]!r} has no result")
    return found


def _sizes(fact: Annotation | Fact, policy: Policy) -> dict[str, Any]:
    """The fields of the body that follow from the content."""
    match fact:
        case ModelResponded(content=Answer() as answer):
            return _answer(fact.calls, answer, policy)
        case ToolReturned(content=Output(output=output)):
            sizes = _message(policy, Role.TOOL, output)
            sizes["preview"] = previewed(policy.history, output, sizes["tokens"])
            return sizes if fact.cut else {**sizes, "size": size_of(output)}
        case RunStarted(content=Opening(messages=said)):
            return {"messages": _messages(fact.policy, said)}
        case ContextObserved(content=Opening(messages=said)):
            return {"messages": _messages(policy, said)}
        case ModelFailed(content=Failure() as failure):
            return _failure(failure, policy)
        case InputReceived(content=Input(text=text), approvals=()):
            return _message(policy, Role.USER, text)
        case RunForked(content=Input(text=text)):
            return _message(fact.policy or policy, Role.USER, text)
        case SummaryReturned(content=Summary(text=text)):
            return _message(policy, Role.USER, summary_text(policy, text))
        case _:
            return {}


def _message(policy: Policy, role: Role, text: str) -> dict[str, Any]:
    chars, tokens = measured(policy.estimator, Message(role=role, text=text))
    return {"chars": chars, "tokens": tokens}


def _messages(policy: Policy, messages: Sequence[Message]) -> tuple[MessageSize, ...]:
    found: list[MessageSize] = []
    for message, unit in zip(messages, units(messages), strict=True):
        chars, tokens = measured(policy.estimator, message)
        found.append(
            MessageSize(
                role=message.role,
                chars=chars,
                tokens=tokens,
                unit=unit,
                call=message.call,
                reasoning=len(message.reasoning),
                arguments=sum(len(call.arguments) for call in message.calls),
            )
        )
    return tuple(found)


def _answer(calls: Sequence[Call], answer: Answer, policy: Policy) -> dict[str, Any]:
    made = tuple(zip(calls, answer.arguments, strict=True))
    shown = tuple(MessageCall(call.id, call.name, arguments) for call, arguments in made)
    message = Message(role=Role.ASSISTANT, text=answer.text, reasoning=answer.reasoning, calls=shown)
    chars, tokens = measured(policy.estimator, message)
    return {
        "calls": tuple(
            replace(call, chars=len(arguments), complete=is_object(arguments)) for call, arguments in made
        ),
        "chars": chars,
        "reasoning_chars": len(answer.reasoning),
        "tokens": tokens,
        "blank": not answer.text.strip(),
        "hollow": hollow(answer.text),
    }


def _failure(failure: Failure, policy: Policy) -> dict[str, Any]:
    sizes = _message(policy, Role.ASSISTANT, failure.partial_text)
    return {
        "single": overflows(failure.message, (policy.overflow or Overflow()).single_patterns),
        "partial_chars": sizes["chars"] if failure.partial_text.strip() else 0,
        "partial_tokens": sizes["tokens"],
    }


def _parted(path: str, recorded: Any, derived: Any) -> Iterator[tuple[str, Any, Any]]:
    """Where two values part, in which of their parts if they have some."""
    if recorded == derived:
        return
    if not isinstance(recorded, tuple):
        yield path, recorded, derived
        return
    ones: tuple[Any, ...] = recorded  # pyright: ignore[reportUnknownVariableType]
    if len(ones) != len(derived):
        yield f"the number of {path}", len(ones), len(derived)
    for place, (one, other) in enumerate(zip(ones, derived, strict=False)):
        for field in one.__struct_fields__:
            yield from _parted(f"{path}[{place}].{field}", getattr(one, field), getattr(other, field))
