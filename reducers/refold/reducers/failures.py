"""Why a model request failed: from an HTTP status and the provider's words to one of our classes.

The status decides, as far as it says anything; providers choose it with more care than their words.
Two things it cannot say are read from the text: that the context was too long (most providers answer
400 for it, some 500) and, where there is no status at all, everything else.
"""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from refold.reducers.errors import PolicyError
from refold.reducers.patterns import matches, problem_of
from refold.reducers.refusals import shown
from refold.reducers.vocabulary import FailureClass

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

# How vendors say that nothing is left to spend: waiting does not help, so it is no rate limit, though most answer 429
# for both. OpenAI, DeepSeek, Anthropic, OpenRouter, Moonshot, xAI. Gemini words a limit per minute like an
# exhausted quota, and tells them apart by when to retry.
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
    """Return whether a failure's text says, in its first 4,000 characters, that the request was longer than the context.

    Raises `PolicyError` for a pattern that is not one of RE2: no policy is accepted with it, but a log may come from
    anywhere.
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
