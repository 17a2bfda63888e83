"""Failed requests: their classes, and which of them are tried again.

The status decides, as far as it says anything; providers choose it with more care than their words.
Two things it cannot say are read from the text: that the context was too long (most providers answer
400 for it, some 500) and, where there is no status at all, everything else.

Back-off with jitter after "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015); the chance in it
is a keyed hash of the run's seed and the event's number, so that a replay waits equally long.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from refold.reducers.errors import PolicyError, shown
from refold.reducers.limits import Amount, Whole
from refold.reducers.patterns import matches, problem_of
from refold.reducers.vocabulary import NANO, FailureClass, Knob, Ordinal, nano, scaled

# How providers and servers word "the request is longer than the context", any case. The first eight
# are the policy language's minimum; the rest are what OpenAI, Anthropic, Bedrock, Gemini and llama.cpp
# write today.
OVERFLOW_PATTERNS: tuple[str, ...] = (
    r"context.?overflow",
    r"prompt.?too.?large",
    r"too many tokens",
    r"maximum context",
    r"token limit",
    r"prompt is too long",
    r"context window",
    r"context.?length",
    r"context.?size",
    r"context limit",
    r"input is too long",
    r"input token count",
    r"reduce the length of the messages",
)

# How vendors say that nothing is left to spend: waiting does not help, so it is no rate limit, though most
# answer 429 for both. OpenAI, DeepSeek, Anthropic, OpenRouter, Moonshot, xAI. Gemini words a limit per minute
# like an exhausted quota, and tells them apart by when to retry.
QUOTA_PATTERNS: tuple[str, ...] = (
    r"insufficient.?(?:quota|balance|credits?|funds)",
    r"credit balance is too low",
    r"billing.?(?:hard.?limit|not.?active|error)",
    r"exceeded.?(?:your.)?current.?quota",
    r"(?:used all|run out of|out of) (?:available |your )?credits",
)
_RETRY_SOON = re.compile(r"retry (?:in|after) \d", re.IGNORECASE)

BY_STATUS: Mapping[int, FailureClass] = MappingProxyType(
    {
        401: FailureClass.AUTH,
        402: FailureClass.QUOTA,
        403: FailureClass.AUTH,
        408: FailureClass.TIMEOUT,
        413: FailureClass.CONTEXT_OVERFLOW,
        429: FailureClass.RATE_LIMIT,
    }
)

_LONGEST_REASON = 500  # characters: every reason seen fits, and a page of HTML does not flood a terminal

# What a text without a status says: the first row with a fragment in it holds. A number counts as a
# whole word only, so `port 5000` is no server error; words count inside words too (`interconnection`).
BY_TEXT: tuple[tuple[FailureClass, tuple[str, ...]], ...] = (
    (FailureClass.RATE_LIMIT, ("429", "too many requests", "rate limit")),
    (FailureClass.TIMEOUT, ("timeout", "timed out")),
    (
        FailureClass.NETWORK,
        ("connection", "network", "reset by peer", "broken pipe", "eof", "error sending request"),
    ),
    (
        FailureClass.OVERLOADED,
        ("503", "unavailable", "temporar", "500", "502", "504", "server error", "bad gateway"),
    ),
    (FailureClass.AUTH, ("401", "403", "unauthorized", "forbidden", "invalid api key")),
    (FailureClass.BAD_REQUEST, ("400", "404", "422", "invalid_request", "bad request")),
)


def classify(status: int | None, text: str, patterns: Iterable[str] = OVERFLOW_PATTERNS) -> FailureClass:
    """The class of a failed request. Pure; total over any status and text.

    `status` is the HTTP status, None or anything outside 400 to 599 when there was none. `patterns` are
    regular expressions, any case, that mean a context overflow. They do not overrule a status that
    names another cause (401, 402, 403, 408, 429): Bedrock words a throttled request `Too many tokens`, and
    pruning would not help it.
    """
    if status in (None, 400, 403, 429) and _is_spent(text):
        return FailureClass.QUOTA
    if status is not None and status in BY_STATUS:
        return BY_STATUS[status]
    if overflows(text, patterns):
        return FailureClass.CONTEXT_OVERFLOW
    if status is not None and 400 <= status < 600:
        return FailureClass.BAD_REQUEST if status < 500 else FailureClass.OVERLOADED
    return _by_text(text)


def provider_error(code: str, message: str) -> str:
    """The provider's own reason for the end of a run with this code: on one line, 500 characters at most.

    "" for a run that no failed request ended.
    """
    if not (code.startswith("provider:") or code == "context_overflow"):
        return ""
    line = " ".join(message.split())
    return line if len(line) <= _LONGEST_REASON else f"{line[:_LONGEST_REASON]}..."


def overflows(text: str, patterns: Iterable[str] = OVERFLOW_PATTERNS) -> bool:
    """Return whether a failure's text says, in its first 4,000 characters, that the request was longer than
    the context.

    Raises `PolicyError` for a pattern that is not one of RE2: no policy is accepted with it, but a log may
    come from anywhere.
    """
    begun = text[:4000]
    return any(_fit(pattern) and matches(pattern, begun, any_case=True) for pattern in patterns)


def _is_spent(text: str) -> bool:
    shown = text[:4000]
    return _QUOTA.search(shown) is not None and _RETRY_SOON.search(shown) is None


def _by_text(text: str) -> FailureClass:
    lowered = text.lower()
    for failure, expression in _TEXT_EXPRESSIONS:
        if expression.search(lowered):
            return failure
    return FailureClass.OTHER


def _expression(fragments: tuple[str, ...]) -> re.Pattern[str]:
    words = (rf"\b{part}\b" if part.isdigit() else re.escape(part) for part in fragments)
    return re.compile("|".join(words))


_QUOTA = re.compile("|".join(QUOTA_PATTERNS), re.IGNORECASE)
_TEXT_EXPRESSIONS = tuple((failure, _expression(fragments)) for failure, fragments in BY_TEXT)


def _fit(pattern: str) -> bool:
    if problem := problem_of(pattern):
        raise PolicyError("overflow.patterns", f"{problem}; got {shown(pattern)}")
    return True


_MAX_DOUBLINGS = 20
_MILLI = NANO // 1000

Attempts = Annotated[int, Meta(ge=1, le=1_000_000)]


def failure_of(failure: FailureClass, model: str) -> str:
    """The name under which the failures of this class of a model are tallied, "" for the run's own model."""
    return f"{failure}:{model}"


class Jitter(Knob, frozen=True, kw_only=True):
    """Chance in a wait, said in one of four ways, else `{add: 1}`; u is uniform in 0..1, base the wait
    without it.

    `add`: up to so many seconds more, below the cap. `scale`: base times a + u * (b - a). `full`: from so
    many seconds up to base. `spread`: base within so many per cent (at most 100), in whole milliseconds,
    below the cap.
    """

    add: Amount | None = None
    scale: tuple[Amount, Amount] | None = None
    full: Amount | None = None
    spread: Whole | None = None

    def __post_init__(self) -> None:
        given = [way for way in self.__struct_fields__ if getattr(self, way) is not None]
        if len(given) > 1:
            raise ValueError(f"expected one of add, scale, full and spread, not {' and '.join(given)}")
        if self.scale is not None and self.scale[0] > self.scale[1]:
            raise ValueError("expected a scale of the smaller factor and the larger one")
        if not given:
            msgspec.structs.force_setattr(self, "add", 1)


class ClassRetry(Knob, frozen=True, kw_only=True):
    """Numbers for one class of failures, which then has a count of its own. What is null is as for the
    others.

    With `step` the wait is linear: initial + step * (n - 1).
    """

    attempts: Attempts | None = None
    initial: Amount | None = None
    max: Amount | None = None
    step: Amount | None = None


class FallbackWhen(Knob, frozen=True, kw_only=True):
    """From attempt number `attempt` on, or once so many streams of one model broke: one of the two."""

    attempt: Ordinal | None = None
    stream_failures: Ordinal | None = None

    def __post_init__(self) -> None:
        if (self.attempt is None) == (self.stream_failures is None):
            raise ValueError("expected one of attempt and stream_failures")


class Fallback(Knob, frozen=True, kw_only=True):
    """Models to ask after the run's own, in order, each once, and `when` the next one is asked.

    A success returns to the first, unless `sticky`.
    """

    models: tuple[Annotated[str, Meta(min_length=1)], ...]
    when: tuple[Literal["exhausted", "unretryable"] | FallbackWhen, ...]
    sticky: bool = False

    def __post_init__(self) -> None:
        if len(set(self.models)) < len(self.models):
            raise ValueError("expected each model once")


class Retry(Knob, frozen=True, kw_only=True):
    """How often, how long to wait, and what then.

    `attempts` counts the first one; null is as often as `window`, or a time limit, allows. The wait after
    attempt n is min(max, initial * 2**(n - 1)) in seconds, with `jitter`; `max: null` is no cap. A provider's
    `retry_after` is a lower bound. `window`: seconds since a step's first failure, past which no wait may
    end.
    """

    attempts: Attempts | None = 6
    initial: Amount = 1
    max: Amount | None = 60
    jitter: Jitter = Jitter(add=1)
    window: Amount | None = None
    classes: tuple[FailureClass, ...] = (
        FailureClass.RATE_LIMIT,
        FailureClass.OVERLOADED,
        FailureClass.TIMEOUT,
        FailureClass.NETWORK,
        FailureClass.STREAM_BROKEN,
    )
    by_class: dict[FailureClass, ClassRetry] = {}
    fallback: Fallback | None = None


def chance(seed: int, seq: int) -> int:
    """64 bits that depend on nothing but the run's seed and an event's number."""
    key = (seed % (1 << 64)).to_bytes(8, "big")
    return int.from_bytes(hashlib.blake2b(seq.to_bytes(8, "big"), digest_size=8, key=key).digest(), "big")


def delay(
    retry: Retry,
    failed_attempt: int,
    hash64: int,
    retry_after: int | None,
    failure: FailureClass | None = None,
) -> int:
    """Nanoseconds to wait after attempt number `failed_attempt`, counted from 1 as `attempts` counts them.

    A class that `by_class` has is counted by itself.
    """
    own = _own(retry, failure)
    initial = nano(retry.initial if own.initial is None else own.initial)
    longest = retry.max if own.max is None else own.max
    if own.step is None:
        plain = initial << min(failed_attempt - 1, _MAX_DOUBLINGS)
    else:
        plain = initial + nano(own.step) * (failed_attempt - 1)
    cap = None if longest is None else max(nano(longest), initial)
    return max(_jittered(retry.jitter, plain, cap, hash64), retry_after or 0)


def in_window(retry: Retry, elapsed: int, wait: int) -> bool:
    """Whether a wait that begins so many nanoseconds after the step's first failure ends within the window.

    If not there is neither another attempt nor another model.
    """
    return retry.window is None or elapsed + wait <= nano(retry.window)


def allows(retry: Retry, failed_attempt: int, elapsed: int, wait: int, failure: FailureClass) -> bool:
    """Whether the same model is asked again after `wait`: its class, its number (as in `delay`) and the
    window.
    """
    attempts = _own(retry, failure).attempts or retry.attempts
    again = failure in retry.classes and (attempts is None or failed_attempt < attempts)
    return again and in_window(retry, elapsed, wait)


def next_model(
    fallback: Fallback | None,
    current: int,
    failed_attempt: int,
    *,
    retryable: bool,
    exhausted: bool,
    stream_failures: int,
) -> str | None:
    """The model that is asked next instead, None for the same. `current` is 0 for the run's own, n for
    models[n - 1].

    `stream_failures` are those of the current model. Of several `attempt` conditions each leads one model on:
    where the first has led already, only the next one leads further.
    """
    if fallback is None or current >= len(fallback.models):
        return None
    whens = [when for when in fallback.when if isinstance(when, FallbackWhen)]
    reached = sum(when.attempt is not None and failed_attempt + 1 >= when.attempt for when in whens)
    broken = any(
        when.stream_failures is not None and stream_failures >= when.stream_failures for when in whens
    )
    spent = (exhausted and "exhausted" in fallback.when) or (not retryable and "unretryable" in fallback.when)
    return fallback.models[current] if spent or broken or reached > current else None


_AS_ALL = ClassRetry()


def _own(retry: Retry, failure: FailureClass | None) -> ClassRetry:
    return _AS_ALL if failure is None else retry.by_class.get(failure, _AS_ALL)


def _jittered(jitter: Jitter, plain: int, cap: int | None, hash64: int) -> int:
    base = _capped(plain, cap)
    if jitter.add is not None:
        return _capped(plain + scaled(hash64, nano(jitter.add)), cap)
    if jitter.spread is not None:
        milliseconds = _spread(base // _MILLI, jitter.spread, None if cap is None else cap // _MILLI, hash64)
        return milliseconds * _MILLI
    if jitter.scale is not None:
        low, high = (base * nano(factor) // NANO for factor in jitter.scale)
    else:
        low, high = nano(jitter.full or 0), base
    return low + scaled(hash64, high - low)


def _spread(base: int, percent: int, cap: int | None, hash64: int) -> int:
    width = base * min(percent, 100) // 100
    low, high = base - width, _capped(base + width, cap)
    return low + hash64 % (high - low + 1)


def _capped(wait: int, cap: int | None) -> int:
    return wait if cap is None else min(wait, cap)
