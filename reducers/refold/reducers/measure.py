"""Measure messages as a policy says: characters counted, tokens estimated, cuts in tokens. Refuse what cannot be measured."""

from collections.abc import Iterator

from refold.reducers.errors import PolicyError
from refold.reducers.estimate import ESTIMATORS, Calls
from refold.reducers.history.trim_messages import TrimMessages, halves
from refold.reducers.messages import Message, Part, Size, TextCut, TokenCut
from refold.reducers.policy import Policy, passes_of
from refold.reducers.state import RunState
from refold.reducers.tokenizers import KIND, WAY_OUT, MissingTokenizer, characters, encode
from refold.reducers.window import refs


def measured(policy: Policy, text: str, reasoning: str = "", calls: Calls = (), digest: str = "") -> Size:
    """The size of a message that says this, as the policy measures; of calls the names and arguments.

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
    """The size of a message."""
    calls = [(call.name, call.arguments) for call in message.calls]
    return measured(policy, message.text, message.reasoning, calls, digest)


def may_exceed(size: Size, cap: int) -> bool:
    """Whether a message of this size may have more than `cap` tokens: each holds a byte, a character up to four."""
    return 4 * (size.chars + size.reasoning) > cap


def refuse_without_tokenizer(policy: Policy) -> None:
    """Raise `PolicyError` where a tokenizer that the policy names is not installed here: nothing could be decided by it."""
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
    """Raise `PolicyError` for a cap in tokens that a message of the window was not measured for, and may exceed.

    A run begins to measure with the policy that names the cap: where its tokens end, an earlier message does not say.
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
