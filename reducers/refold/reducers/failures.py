"""Failed requests: their classes, and which are retried.

The status decides if it can; providers choose it more carefully than their texts. Two things are read from
the text: a context overflow (most providers send 400 for it, some 500) and, without a status, everything
else.

Back-off with jitter after "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015). Its randomness is
a keyed hash of the run's seed and the event's number, so a replay computes the same wait.
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

# How providers report that a request exceeds the context, ignoring case. The first eight are the policy
# language's minimum; the others are current texts of OpenAI, Anthropic, Bedrock, Gemini and llama.cpp.
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

# How vendors report an exhausted quota. Waiting does not help, so this is not a rate limit, though most send
# 429 for both. OpenAI, DeepSeek, Anthropic, OpenRouter, Moonshot, xAI. Gemini words a limit per minute like
# an exhausted quota; only its retry delay differs.
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

_MAX_REASON_CHARS = 500  # longer than every reason seen; keeps a page of HTML off the terminal

# Classes of a text without a status; the first row with a matching fragment applies. A number must be a whole
# word, so `port 5000` is not a server error; words also match inside words (`interconnection`).
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
    """Return the class of a failed request. Pure and total.

    `status` is the HTTP status; None, or a number outside 400 to 599, means none. `patterns` are regular
    expressions for a context overflow, ignoring case. They do not override a status with another cause (401,
    402, 403, 408, 429): Bedrock reports a throttled request as `Too many tokens`, and pruning would not help.
    """
    if status in (None, 400, 403, 429) and _is_spent(text):
        return FailureClass.QUOTA
    if status is not None and status in BY_STATUS:
        return BY_STATUS[status]
    if overflows(text, patterns):
        return FailureClass.CONTEXT_OVERFLOW
    if status is not None and 400 <= status < 600:
        return FailureClass.BAD_REQUEST if status < 500 else FailureClass.OVERLOADED
    return _classify_text(text)


def provider_error(code: str, message: str) -> str:
    """Return the provider's reason for a run that ended with this code: one line, at most 500 characters.

    "" if no failed request ended the run.
    """
    if not (code.startswith("provider:") or code == "context_overflow"):
        return ""
    line = " ".join(message.split())
    return line if len(line) <= _MAX_REASON_CHARS else f"{line[:_MAX_REASON_CHARS]}..."


def overflows(text: str, patterns: Iterable[str] = OVERFLOW_PATTERNS) -> bool:
    """Return whether the first 4,000 characters of a failure's text report a context overflow.

    Raises `PolicyError` for an invalid pattern, which a log may hold although no policy is accepted with it.
    """
    begun = text[:4000]
    return any(_require_valid(pattern) and matches(pattern, begun, any_case=True) for pattern in patterns)


def _is_spent(text: str) -> bool:
    shown = text[:4000]
    return _QUOTA.search(shown) is not None and _RETRY_SOON.search(shown) is None


def _classify_text(text: str) -> FailureClass:
    lowered = text.lower()
    for failure, expression in _TEXT_EXPRESSIONS:
        if expression.search(lowered):
            return failure
    return FailureClass.OTHER


def _compile_fragments(fragments: tuple[str, ...]) -> re.Pattern[str]:
    words = (rf"\b{part}\b" if part.isdigit() else re.escape(part) for part in fragments)
    return re.compile("|".join(words))


_QUOTA = re.compile("|".join(QUOTA_PATTERNS), re.IGNORECASE)
_TEXT_EXPRESSIONS = tuple((failure, _compile_fragments(fragments)) for failure, fragments in BY_TEXT)


def _require_valid(pattern: str) -> bool:
    if problem := problem_of(pattern):
        raise PolicyError("overflow.patterns", f"{problem}; got {shown(pattern)}")
    return True


_MAX_DOUBLINGS = 20
_MILLI = NANO // 1000

Attempts = Annotated[int, Meta(ge=1, le=1_000_000)]


def failure_of(failure: FailureClass, model: str) -> str:
    """Return the name under which a model's failures of this class are counted; model "" is the run's own."""
    return f"{failure}:{model}"


class Jitter(Knob, frozen=True, kw_only=True):
    """Randomness of a wait, in one of four ways, by default `{add: 1}`.

    `add`: up to this many seconds more, below the cap. `scale`: the wait times a random factor between the
    two. `full`: from this many seconds up to the wait. `spread`: plus or minus this many per cent (at most
    100), in whole milliseconds, below the cap.
    """

    add: Amount | None = None
    scale: tuple[Amount, Amount] | None = None
    full: Amount | None = None
    spread: Whole | None = None

    def __post_init__(self) -> None:
        given = [way for way in self.__struct_fields__ if getattr(self, way) is not None]
        if len(given) > 1:
            raise ValueError(f"expected one of add, scale, full and spread, got {' and '.join(given)}")
        if self.scale is not None and self.scale[0] > self.scale[1]:
            raise ValueError("expected a scale of two factors, the smaller first")
        if not given:
            msgspec.structs.force_setattr(self, "add", 1)


class ClassRetry(Knob, frozen=True, kw_only=True):
    """Numbers for one class of failures, which then has its own count. Null: the general value.

    With `step` the wait is linear: initial + step * (n - 1).
    """

    attempts: Attempts | None = None
    initial: Amount | None = None
    max: Amount | None = None
    step: Amount | None = None


class FallbackWhen(Knob, frozen=True, kw_only=True):
    """From attempt `attempt` on, or after this many broken streams of one model; exactly one of the two."""

    attempt: Ordinal | None = None
    stream_failures: Ordinal | None = None

    def __post_init__(self) -> None:
        if (self.attempt is None) == (self.stream_failures is None):
            raise ValueError("expected one of attempt and stream_failures")


class Fallback(Knob, frozen=True, kw_only=True):
    """Models to try after the run's own, in order, once each, and `when` to switch to the next.

    A success returns to the first, unless `sticky`.
    """

    models: tuple[Annotated[str, Meta(min_length=1)], ...]
    when: tuple[Literal["exhausted", "unretryable"] | FallbackWhen, ...]
    sticky: bool = False

    def __post_init__(self) -> None:
        if len(set(self.models)) < len(self.models):
            raise ValueError("a model is listed twice; list each once")


class Retry(Knob, frozen=True, kw_only=True):
    """Retries of failed requests: how often, how long to wait, and the fallback.

    `attempts` includes the first; null: as many as `window` or a time limit allows. The wait after attempt n
    is min(max, initial * 2**(n - 1)) seconds, with `jitter`; `max: null` means no cap. A provider's
    `retry_after` is a lower bound. `window`: seconds after a step's first failure by which every wait ends.
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
    """Return 64 pseudo-random bits that depend only on the run's seed and an event's number."""
    key = (seed % (1 << 64)).to_bytes(8, "big")
    return int.from_bytes(hashlib.blake2b(seq.to_bytes(8, "big"), digest_size=8, key=key).digest(), "big")


def delay(
    retry: Retry,
    failed_attempt: int,
    hash64: int,
    retry_after: int | None,
    failure: FailureClass | None = None,
) -> int:
    """Return nanoseconds to wait after attempt `failed_attempt`, counted from 1.

    A class in `by_class` has its own count.
    """
    own = _settings_for(retry, failure)
    initial = nano(retry.initial if own.initial is None else own.initial)
    longest = retry.max if own.max is None else own.max
    if own.step is None:
        plain = initial << min(failed_attempt - 1, _MAX_DOUBLINGS)
    else:
        plain = initial + nano(own.step) * (failed_attempt - 1)
    cap = None if longest is None else max(nano(longest), initial)
    return max(_add_jitter(retry.jitter, plain, cap, hash64), retry_after or 0)


def in_window(retry: Retry, elapsed: int, wait: int) -> bool:
    """Return whether a wait that begins `elapsed` ns after the step's first failure ends within the window.

    If not, neither another attempt nor another model is tried.
    """
    return retry.window is None or elapsed + wait <= nano(retry.window)


def allows(retry: Retry, failed_attempt: int, elapsed: int, wait: int, failure: FailureClass) -> bool:
    """Return whether the same model is retried after `wait`, by class, attempt (as in `delay`) and window."""
    attempts = _settings_for(retry, failure).attempts or retry.attempts
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
    """Return the model to try next, None for the same. `current` is 0 for the run's own, n for models[n - 1].

    `stream_failures` are those of the current model. Each reached `attempt` condition advances one model
    only: after the first has advanced, the next one is needed to advance again.
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


_GENERAL = ClassRetry()


def _settings_for(retry: Retry, failure: FailureClass | None) -> ClassRetry:
    return _GENERAL if failure is None else retry.by_class.get(failure, _GENERAL)


def _add_jitter(jitter: Jitter, plain: int, cap: int | None, hash64: int) -> int:
    base = _limit(plain, cap)
    if jitter.add is not None:
        return _limit(plain + scaled(hash64, nano(jitter.add)), cap)
    if jitter.spread is not None:
        milliseconds = _pick_in_spread(
            base // _MILLI, jitter.spread, None if cap is None else cap // _MILLI, hash64
        )
        return milliseconds * _MILLI
    if jitter.scale is not None:
        low, high = (base * nano(factor) // NANO for factor in jitter.scale)
    else:
        low, high = nano(jitter.full or 0), base
    return low + scaled(hash64, high - low)


def _pick_in_spread(base: int, percent: int, cap: int | None, hash64: int) -> int:
    width = base * min(percent, 100) // 100
    low, high = base - width, _limit(base + width, cap)
    return low + hash64 % (high - low + 1)


def _limit(wait: int, cap: int | None) -> int:
    return wait if cap is None else min(wait, cap)
