"""The `tirea` preset against tirea-agentos."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from conformance.drivers.passes import step_of
from conformance.drivers.stopping import stop_conditions
from conformance.replayer import TOOL, Failed, Replayer, Reply, Row, numbered
from conformance.suite import Case, Compared, Driver, LeftOut
from refold.reducers import Message, MessageCall, parse
from refold.reducers.estimate import ESTIMATORS
from refold.reducers.events import Manifest, MessageInjected, RetryScheduled
from refold.reducers.failures import classify, delay, in_window
from refold.reducers.vocabulary import NANO, Cause, FailureClass, Role, StopReason

PRESET = "tirea"
TASK: Row = ["user", "x", []]
_MILLI = NANO // 1000
_OURS = {
    "rate_limit": FailureClass.RATE_LIMIT,
    "timeout": FailureClass.TIMEOUT,
    "connection": FailureClass.NETWORK,
    "server_unavailable": FailureClass.OVERLOADED,
    "server_error": FailureClass.OVERLOADED,
    "auth": FailureClass.AUTH,
    "client_request": FailureClass.BAD_REQUEST,
    "unknown": FailureClass.OTHER,
}


def truncation(case: Case) -> Compared:
    """Which answers, cut at the output limit, are asked to go on. An answer that ends the run is not the last
    one there: the next is given to the state before it, for a "no" leaves the count.
    """
    run = Replayer.begin({"preset": PRESET, "end_of_turn": "continue"}, [TASK])
    asked: list[bool] = []
    used: list[int] = []
    for place, (stop, count) in enumerate(case.given["responses"]):
        before = run.state
        calls = [(f"{place}.{call}", TOOL, "{}") for call in range(count)]
        reason = None if stop == "none" else StopReason(stop)  # what an adapter infers is in the calls
        events = run.reply(Reply(text="x", calls=calls, stop=reason))
        asked.append(
            any(isinstance(event, MessageInjected) and event.text == "truncated" for event in events)
        )
        used.append((used[-1] if used else 0) + asked[-1])
        run.returned()
        if run.state.ended:
            run.state = before
    return Compared(case.expect, {"retry": asked, "retries": used})


def stream_retry(case: Case) -> Compared:
    """Which broken streams are asked for again. Retries of other failures are off: they would do it too."""
    retry = {"attempts": 1, "fallback": None}
    policy = {"preset": PRESET, "stream": {"max": case.given["max_retries"]}, "retry": retry}
    run = Replayer.begin(policy, [TASK])
    again: list[bool] = []
    for _ in range(case.given["failures"]):
        before = run.state
        events = run.fail(Failed(failure=FailureClass.STREAM_BROKEN))
        again.append(
            any(isinstance(event, RetryScheduled) and event.cause is Cause.STREAM for event in events)
        )
        if run.state.ended:
            run.state = before
        else:
            run.wait()
    return Compared(case.expect, {"retry": again})


def backoff(case: Case) -> Compared | LeftOut:
    """One wait before a retry, and whether it fits the window."""
    given = case.given
    if given["attempt"] < 1:
        return LeftOut("attempt 0")
    window = given["window_ms"]
    numbers = {
        "initial": given["initial_ms"] / 1000,
        "max": given["max_ms"] / 1000,
        "window": None if window is None else window / 1000,
    }

    def waits(percent: int) -> Callable[[int], int]:
        retry = parse({"preset": PRESET, "retry": {**numbers, "jitter": {"spread": percent}}}).retry
        return lambda chance: delay(retry, given["attempt"], chance, None)

    retry = parse({"preset": PRESET, "retry": numbers}).retry
    low, high = _bounds(waits(given["jitter_percent"]))
    fits = [in_window(retry, given["elapsed_ms"] * _MILLI, wait) for wait in (low, high)]
    got = {
        "base_ms": waits(0)(0) // _MILLI,
        "low_ms": low // _MILLI,
        "high_ms": high // _MILLI,
        "retry": "yes" if all(fits) else "depends" if any(fits) else "no",
    }
    return Compared(case.expect, got)


def _bounds(wait: Callable[[int], int]) -> tuple[int, int]:
    """The shortest and longest wait: chance c adds c ms until it has wrapped around, which bisection
    finds.
    """
    low, below, above = wait(0), 0, 1 << 40
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if wait(middle) == low + middle * _MILLI else (below, middle)
    return low, wait(below)


def error_class(case: Case) -> Compared | LeftOut:
    """The class of a failure, in our words, and whether it is tried again."""
    tag = next((tag for tag in ("overflow", "number inside a number") if tag in case.tags), None)
    if tag is not None:
        return LeftOut(tag)
    found = classify(case.given.get("status"), case.given.get("text", ""))
    expected = {"class": _OURS[case.expect["class"]], "retryable": case.expect["retryable"]}
    if (
        found is FailureClass.QUOTA
    ):  # a class of its own here: there it is any request that the client got wrong
        found = FailureClass.BAD_REQUEST
    retryable = found in parse({"preset": PRESET}).retry.classes
    return Compared(expected, {"class": found, "retryable": retryable})


def estimate(case: Case) -> Compared:
    """Tokens of one message."""
    given = case.given
    calls = [(name, said) for name, said in given["calls"]]
    estimator = ESTIMATORS[parse({"preset": PRESET}).estimator]
    return Compared(case.expect, {"tokens": estimator.weigh(given["text"], "", calls)})


def to_budget(case: Case) -> Compared:
    """A history into a context window. Messages are as heavy as the case says, by an estimator of
    characters.
    """
    given = case.given
    # A context that the answer takes whole is refused: with a token more for it, and for the tools, nothing
    # is left.
    taken = given["context"] <= given["output"]
    context = given["output"] + 1 if taken else given["context"]
    room = {"context": context, "minus_output": given["output"], "minus_tools": True}
    fit = step_of(PRESET, "fit", budget=room, min_last=given["min_recent"])
    policy = {"preset": PRESET, "estimator": "chars4", "history": [fit]}
    tools = _tools(given["tools"] + taken)
    run = Replayer.begin(policy, [_heavy(*row) for row in given["messages"]], tools=tools)
    requested = run.requests[0].event
    kept = numbered(requested.messages)
    tokens = requested.input_tokens + given["tools"]
    got = {"kept": kept, "dropped": len(given["messages"]) - len(kept), "tokens": tokens}
    if "task not pinned" not in case.tags:
        return Compared({key: case.expect[key] for key in got}, got)
    pinned = case.expect["pinned"]
    weight = sum(given["messages"][index][1] for index in pinned) + given["tools"]
    expected = {"kept": pinned, "dropped": len(given["messages"]) - len(pinned), "tokens": weight}
    return Compared(expected, got, ("task not pinned",))


def _heavy(role: str, tokens: int, ids: list[str]) -> Message:
    # The name of a call is a character, and four are a token.
    if role == "tool":
        return Message(role=Role.TOOL, text="x" * (4 * tokens), call=ids[0])
    calls = tuple(MessageCall(name, "f", "") for name in ids)
    return Message(role=Role(role), text="x" * (4 * tokens - len(ids)), calls=calls)


def _tools(tokens: int) -> tuple[Manifest, ...]:
    # Name and schema take a token, the description the rest.
    return (Manifest(name="ab", schema="{}", description="x" * (4 * tokens - 4)),) if tokens else ()


DRIVERS: Mapping[str, Driver] = MappingProxyType(
    {
        "tirea_backoff": backoff,
        "tirea_error_classes": error_class,
        "tirea_estimate": estimate,
        "tirea_stop_conditions": stop_conditions,
        "tirea_stream_retry": stream_retry,
        "tirea_truncate_to_budget": to_budget,
        "tirea_truncation": truncation,
    }
)
