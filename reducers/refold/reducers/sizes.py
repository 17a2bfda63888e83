"""Sizes and measures in the bodies of facts.

Limits and compaction use only these numbers and never read a text. A forged smaller number could hide a
reached limit, so readers with the content compare the numbers with it. Claims of a fact about the run, such
as the calls in doubt, are compared with the state.
"""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from refold.reducers import events as ev
from refold.reducers.codec import digest_named, digest_of
from refold.reducers.effects import doubtful
from refold.reducers.errors import PolicyError, WrongUse
from refold.reducers.estimate import ESTIMATORS, KIND, WAY_OUT, Calls, MissingTokenizer, characters, encode
from refold.reducers.failures import overflows
from refold.reducers.history import previewed
from refold.reducers.history.results import TrimMessages, halves
from refold.reducers.messages import Message, Part, Size, TextCut, TokenCut, Usage
from refold.reducers.patterns import is_object
from refold.reducers.pending import asks_anew, left_open
from refold.reducers.policy import Overflow, Policy, passes_of, text_of
from refold.reducers.state import RunState
from refold.reducers.text import blank_outside_think, render
from refold.reducers.vocabulary import SOURCE_LABEL, UNMETERED, Role, Unknown
from refold.reducers.window import refs


def measured(policy: Policy, text: str, reasoning: str = "", calls: Calls = (), digest: str = "") -> Size:
    """Return the size of a message, as the policy measures it; calls are names and arguments.

    Raises `MissingTokenizer`.
    """
    return Size(
        chars=len(text),
        reasoning=len(reasoning),
        arguments=sum([len(arguments) for _, arguments in calls]) if calls else 0,
        tokens=ESTIMATORS[policy.estimator].weigh(text, reasoning, calls),
        digest=digest,
        token_cuts=tuple(_token_cuts(policy, text, reasoning)) if policy.token_caps else (),
    )


def measured_message(policy: Policy, message: Message, digest: str = "") -> Size:
    """Return the size of a message."""
    calls = [(call.name, call.arguments) for call in message.calls]
    return measured(policy, message.text, message.reasoning, calls, digest)


def may_exceed(size: Size, cap: int) -> bool:
    """Return whether a message may have more than `cap` tokens: a token has at least a byte, a character up
    to four.
    """
    return 4 * (size.chars + size.reasoning) > cap


def refuse_without_tokenizer(policy: Policy) -> None:
    """Raise `PolicyError` if a tokenizer that the policy names is not installed."""
    named: list[tuple[str, str]] = [("estimator", policy.estimator)]
    named += [
        (f"{path}.codec", step.codec) for path, step in passes_of(policy) if isinstance(step, TrimMessages)
    ]
    for path, name in named:
        try:
            if name.startswith(KIND):
                encode(name, "a")
        except MissingTokenizer as error:
            problem = f"{name} needs a tokenizer, which is not installed here: {WAY_OUT}; or write 'chars4'"
            raise PolicyError(path, problem) from error


def refuse_unmeasured_cuts(state: RunState, policy: Policy) -> None:
    """Raise `PolicyError` for a cap in tokens for which a message of the window was not measured.

    Only messages that may exceed the cap count. A run measures a cap only after its policy names it.
    """
    for codec, cap in policy.token_caps:
        if (codec, cap) in state.policy.token_caps:
            continue
        for ref in refs(state.window):
            if not ref.gap and may_exceed(ref.whole, cap):
                raise PolicyError(
                    "history",
                    f"trim_messages with cap {cap} and codec {codec}: message {ref.number}, of "
                    f"{ref.whole.chars + ref.whole.reasoning} characters, was recorded under a policy without this cap, so "
                    "where to cut it is not known; fork before that message, or write codec: chars4",
                )


def _token_cuts(policy: Policy, text: str, reasoning: str) -> Iterator[TokenCut]:
    for codec, cap in policy.token_caps:
        if 4 * (len(text) + len(reasoning)) <= cap:
            continue
        parts: tuple[tuple[Part, list[int]], ...] = (
            ("text", encode(codec, text)),
            ("reasoning", encode(codec, reasoning)),
        )
        given = halves([len(tokens) for _, tokens in parts], cap)
        cuts = [
            TextCut(
                part=part,
                head=characters(codec, tokens[:half]),
                tail=characters(codec, tokens[len(tokens) - half :]),
                removed=len(tokens) - 2 * half,
            )
            for (part, tokens), half in zip(parts, given, strict=True)
            if half is not None
        ]
        if cuts:
            yield TokenCut(codec=codec, cap=cap, cuts=tuple(cuts))


AnyFact = TypeVar("AnyFact", bound=ev.Annotation | ev.Fact)
SIZED = (
    ev.RunStarted,
    ev.RunForked,
    ev.ContextObserved,
    ev.ModelResponded,
    ev.ModelFailed,
    ev.ToolReturned,
    ev.InputReceived,
    ev.SummaryReturned,
)
"""The facts whose bodies have sizes of their contents."""


UNMEASURED = "?"
"""A placeholder for the `sha256` of an output, until `sized` computes it."""


def sized(fact: AnyFact, policy: Policy, salt: bytes | None = None) -> AnyFact:
    """Return the fact with the sizes of its content, as the policy measures; without content, unchanged.

    The `sha256` of an output, if set, becomes that of the recorded text. Without a salt, digests stay, and so
    do the bytes of a cut output, whose full text is gone.

    Raises:
        WrongUse: Calls and results in the content do not match.
    """
    return replace(fact, **_sizes(fact, policy, salt))


def misfit(state: RunState, fact: ev.Fact) -> str:
    """Return how the body of a fact contradicts its content or the state, as a sentence; "" if it does not.

    Digests are not checked, because that needs the salt.
    """
    if misstated := _misstated(state, fact):
        return misstated
    try:
        sizes = _sizes(fact, state.policy)
    except WrongUse as error:
        return f"its content cannot be measured: {error}"
    for name, size in sizes.items():
        recorded = getattr(fact, name)
        parting = None if recorded is size or recorded == size else _first_difference(name, recorded, size)
        if parting is not None:
            path, recorded, derived = parting
            if name == "content":
                return "the sha256 in its content is not that of its output"
            return f"a size in its body is not that of its content: {path} is {recorded}, and was measured as {derived}"
    return ""


def units(messages: Sequence[Message]) -> list[int]:
    """Return for each message the index of the response that it belongs to, its own if it is alone.

    Raises:
        WrongUse: A result follows no call, or a call has no result.
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


def _sizes(fact: ev.Annotation | ev.Fact, policy: Policy, salt: bytes | None = None) -> dict[str, Any]:
    """Return the body's fields that depend on the content, and an output's own digest."""
    match fact:
        case ev.ModelResponded(content=ev.Answer() as answer):
            return _answer(fact, answer, policy, salt)
        case ev.ToolReturned(content=ev.Output() as said):
            return _result(fact, said, policy, salt)
        case ev.RunStarted(content=ev.Opening(messages=said)):
            return {"messages": _heads(fact.policy, said, fact.messages, salt)}
        case ev.ContextObserved(content=ev.Opening(messages=said)):
            return {"messages": _heads(policy, said, fact.messages, salt)}
        case ev.ModelFailed(content=ev.Failure() as failure):
            return _failure(fact, failure, policy, salt)
        case ev.InputReceived(content=ev.Input() as said):
            return {"size": _size(policy, said.text, said, fact.size, salt)}
        case ev.RunForked(content=ev.Input() as said):
            return {"size": _size(fact.policy or policy, said.text, said, fact.size, salt)}
        case ev.ApprovalAnswered(content=ev.Edits() as said):
            return {"digest": fact.digest if salt is None else digest_of(salt, said)}
        case ev.SummaryReturned(content=ev.Summary() as said):
            text = render(text_of(policy, "summary"), {"summary": said.text})
            return {"size": _size(policy, text, said, fact.size, salt)}
        case _:
            return {}


def _size(policy: Policy, text: str, said: ev.Content, recorded: Size | None, salt: bytes | None) -> Size:
    return measured(policy, text, digest=_digest(said, recorded, salt))


def _digest(
    said: ev.Content | Message,
    recorded: Size | None,
    salt: bytes | None,
    shows: ev.Fact | ev.Annotation | None = None,
) -> str:
    """Return the digest of a content, with the ids and names in the body of the event `shows`."""
    if salt is not None:
        return digest_named(digest_of(salt, said), ev.named_in(shows) if shows is not None else ())
    return recorded.digest if recorded else ""


def _heads(
    policy: Policy, messages: Sequence[Message], recorded: Sequence[ev.MessageHead], salt: bytes | None
) -> tuple[ev.MessageHead, ...]:
    sizes = (head.size for head in recorded)
    made = zip_longest(messages, units(messages), islice(sizes, len(messages)))
    return tuple(
        ev.MessageHead(
            role=message.role,
            unit=unit,
            call=message.call,
            size=measured_message(policy, message, _digest(message, size, salt)),
        )
        for message, unit, size in made
    )


def _answer(fact: ev.ModelResponded, answer: ev.Answer, policy: Policy, salt: bytes | None) -> dict[str, Any]:
    made = [*zip(fact.calls, answer.arguments, strict=True)]
    named = [(call.name, arguments) for call, arguments in made]
    text, digest = answer.text, _digest(answer, fact.size, salt, fact)
    return {
        "calls": tuple([_call(call, arguments) for call, arguments in made]),
        "size": measured(policy, text, answer.reasoning, named, digest),
        "blank": not text or text.isspace(),
        "blank_outside_think": blank_outside_think(text),
    }


def _call(call: ev.Call, arguments: str) -> ev.Call:
    complete = is_object(arguments)  # as it is, whenever a log is read again
    return call if call.complete is complete else replace(call, complete=complete)


def _failure(fact: ev.ModelFailed, failure: ev.Failure, policy: Policy, salt: bytes | None) -> dict[str, Any]:
    size = _size(policy, failure.partial_text, failure, fact.partial, salt)
    return {
        "single": overflows(failure.message, (policy.overflow or Overflow()).single_patterns),
        "partial": size if failure.partial_text.strip() else None,
    }


def _result(fact: ev.ToolReturned, said: ev.Output, policy: Policy, salt: bytes | None) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    if not fact.cut:
        data = said.output.encode()
        sha256 = hashlib.sha256(data).hexdigest() if said.sha256 else ""
        said = said if said.sha256 == sha256 else replace(said, sha256=sha256)
        whole = {"output_bytes": len(data), "content": said}
    digest = _digest(said, fact.size, salt, fact)
    size = measured(policy, said.output, digest=digest)
    preview = previewed(policy.history, said.output, size.tokens) if policy.history else 0
    return {"size": size, "preview": preview, **whole}


_OWN = "its run is no import, and only the source of one can leave open what it says of it"


def _misstated(state: RunState, fact: ev.Fact) -> str:
    """Return how the fact contradicts the state before it; "" if it does not."""
    if claimed := _only_of_imports(state, fact):
        return claimed
    match fact:
        case (
            ev.ModelResponded(unknown=unknown, usage=usage) | ev.SummaryReturned(unknown=unknown, usage=usage)
        ) if Unknown.UNCOUNTED in unknown and usage != Usage():
            return "it has tokens, and says that nobody counted them"
        case (
            ev.ModelResponded(unknown=unknown, cost_nanousd=int())
            | ev.SummaryReturned(unknown=unknown, cost_nanousd=int())
        ) if Unknown.UNPRICED in unknown:
            return "it has a cost, and says that nobody knows it"
        case ev.RunResumed(in_doubt=said):
            known = doubtful(state)
        case ev.RunForked(in_doubt=said):
            known = left_open(state, fact)
            if fact.again is not asks_anew(state, fact, text=fact.size is not None):
                return f"it says {fact.again} of whether the request under way is made anew"
        case _:
            return ""
    if said != known:
        in_doubt, recorded = (", ".join(calls) or "none" for calls in (known, said))
        return f"the calls in doubt are {in_doubt}, and it says {recorded}"
    return "" if fact.downtime <= max(0, fact.at - state.at) else "its downtime is longer than there was time"


def _only_of_imports(state: RunState, fact: ev.Fact) -> str:
    """Return the claim of a live run's fact that only an import can make; "" without one."""
    if SOURCE_LABEL in (fact.labels if isinstance(fact, ev.RunStarted) else state.setup.labels):
        return ""
    if fact.unknown or getattr(fact, "no_request", False):
        answers = isinstance(fact, ev.ModelResponded | ev.SummaryReturned | ev.ChildEnded)
        if not answers or not UNMETERED.issuperset(fact.unknown):
            return _OWN
    if _refused(fact):
        return "it says that a call was refused by its own harness, and its run is no import"
    return _OWN if isinstance(fact, ev.ContextObserved) else ""


def _refused(fact: ev.Fact) -> bool:
    """Return whether the fact records that the harness of an imported run refused a call."""
    if isinstance(fact, ev.ModelResponded):
        return any(call.refused for call in fact.calls)
    return isinstance(fact, ev.ToolReturned) and fact.refused_by is not None


_Pair = tuple[str, Any, Any]


def _first_difference(path: str, recorded: Any, derived: Any) -> _Pair | None:
    """Return the first difference of two values, with the path of the part that differs."""
    if recorded == derived:
        return None
    pairs: list[_Pair]
    if isinstance(recorded, Struct) and type(recorded) is type(derived):
        names = recorded.__struct_fields__
        pairs = [(f"{path}.{name}", getattr(recorded, name), getattr(derived, name)) for name in names]
    elif isinstance(recorded, tuple):
        ones: tuple[Any, ...] = recorded  # pyright: ignore[reportUnknownVariableType]
        others: tuple[Any, ...] = derived
        if len(ones) != len(others):
            return f"the number of {path}", len(ones), len(others)
        places = enumerate(zip(ones, others, strict=True))
        pairs = [(f"{path}[{place}]", one, other) for place, (one, other) in places]
    else:
        return path, recorded, derived
    return next(filter(None, (_first_difference(*pair) for pair in pairs)))
