"""Policies that cannot work, which are refused, and such as can but surely not as meant, of which people are
warned.

Pure: what a policy says by itself, and what it says of the messages with which a run begins.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import msgspec

from refold.reducers.approvals import Approve, Reject
from refold.reducers.errors import Complaint, Fault, PolicyError, complaints, faults_of, nearest, shown
from refold.reducers.estimate import ESTIMATORS
from refold.reducers.events import MessageHead, RunStarted
from refold.reducers.history import Pass, Tail, TokenTail
from refold.reducers.history.strategy import When
from refold.reducers.history.windows import Compact, Digest, Summarise
from refold.reducers.limits import (
    CostLimit,
    Limit,
    MessageLimit,
    TimeLimit,
    check_of,
    insists,
    is_bounded,
    is_counted,
    measure_of,
    needs,
    threshold,
)
from refold.reducers.named_tools import strangers, unfit, unsorted
from refold.reducers.patterns import matches_empty, problem_of
from refold.reducers.policy import At, Policy, Tier, passes_of
from refold.reducers.vocabulary import Role

# Of a shorter window no model makes sense: a call, its result and what was said before are two or three.
_SHORT = 6
_SCOPES = ("turn", "run", "lineage")


def refuse(policy: Policy) -> None:
    """Raise `PolicyError` for the first thing in a policy, its names filled in, that cannot work."""
    for find in (_names, _limits, _grace, _pressure, _overflow, _redact, _retry, faults_of):
        for path, problem in find(policy):
            raise PolicyError(path, problem)


def warnings(policy: Policy) -> tuple[Complaint, ...]:
    """What in a policy works, but surely not as meant: limits and passes that are never reached, or
    undone.
    """
    finders = (_unreached, _idle, _undone, _short, _endless, _unasked, unfit)
    return complaints(fault for find in finders for fault in find(policy))


def notes(policy: Policy) -> tuple[Complaint, ...]:
    """What may well be meant so, and is to be known: what bounds no run, and limits that are not kept where
    nobody knows what was used.
    """
    return complaints(fault for find in (_unbounded, _ignored) for fault in find(policy))


def opening(fact: RunStarted) -> tuple[Complaint, ...]:
    """The warnings of a run that is about to start.

    Raises `PolicyError` for a window that is smaller than what must stay in it: system prompt and task.
    """
    for path, problem in _too_small(fact):
        raise PolicyError(path, problem)
    of_tools = (*strangers(fact.policy, fact.tools), *complaints(unsorted(fact.policy, fact.tools)))
    return (*warnings(fact.policy), *of_tools)


def _names(policy: Policy) -> Iterator[Fault]:
    tiers = policy.pressure.tiers if policy.pressure else ()
    own = [("premature_end", policy.premature_end), ("approvals", policy.approvals)]
    named = (
        [(f"limits[{place}]", limit.name) for place, limit in enumerate(policy.limits)],
        [(path, step.name) for path, step in passes_of(policy)],
        [
            *((key, key) for key, value in own if value is not None),
            *((f"guards[{place}]", str(config["name"])) for place, config in enumerate(policy.guards)),
        ],
        [(f"pressure.tiers[{place}]", tier.name) for place, tier in enumerate(tiers)],
    )
    for group in named:
        yield from _misnamed(group)


def _misnamed(group: Sequence[tuple[str, str]]) -> Iterator[Fault]:
    for place, (path, name) in enumerate(group):
        if not name.isprintable():
            yield f"{path}.name", f"expected one line of printable text, got {shown(name)}"
        if name in [other for _, other in group[:place]]:
            yield f"{path}.name", f"{name!r} is taken by another one; give this one a name"


def _limits(policy: Policy) -> Iterator[Fault]:
    for place, limit in enumerate(policy.limits):
        of_window = isinstance(limit, MessageLimit) or measure_of(limit) == "estimate"
        if of_window and limit.scope != "run":
            yield f"limits[{place}].scope", "it counts the window, whatever the scope; leave it out"


def _grace(policy: Policy) -> Iterator[Fault]:
    limits = {limit.name: limit for limit in policy.limits}
    for place, name in enumerate(policy.grace.on if policy.grace else ()):
        path, limit = f"grace.on[{place}]", limits.get(name)
        if limit is None:
            yield path, f"there is no limit {shown(name)}{nearest(name, limits)}"
        elif isinstance(limit, TimeLimit) or is_counted(limit):
            yield (
                path,
                f"{name!r} limits time or money, and one more request would take more of it; take it out",
            )
        elif check_of(limit) != "preflight":
            yield (
                path,
                f"{name!r} is looked at on responses, and grants nothing there: take it out, or give it 'preflight'",
            )


def _pressure(policy: Policy) -> Iterator[Fault]:
    pressure, limits = policy.pressure, {limit.name: limit for limit in policy.limits}
    if pressure is None:
        return
    counted = limits.get(pressure.of)
    if isinstance(counted, TimeLimit | CostLimit):
        yield ("pressure.of", f"{pressure.of!r} limits time or money; expected steps, messages or tokens")
    if counted is None and pressure.of != "step":
        yield "pressure.of", f"there is no limit {shown(pressure.of)}{nearest(pressure.of, limits)}"
    yield from _unordered(pressure.tiers, threshold(counted) if counted else None)


def _unordered(tiers: Sequence[Tier], most: int | None) -> Iterator[Fault]:
    for place, (before, tier) in enumerate(pairwise(tiers), 1):
        # Of tiers that begin by different ways the order is known only where the limit is.
        alike = (before.at.fraction is None) == (tier.at.fraction is None)
        if (most or alike) and _begins(tier.at, most or 1 << 53) <= _begins(before.at, most or 1 << 53):
            said = (
                f"begins no later than {before.name!r} before it, which would not be shown; put them in order"
            )
            yield f"pressure.tiers[{place}].at", said


def _begins(at: At, most: int) -> float:
    """The number, out of `most`, at which a tier begins."""
    first = most if at.fraction is None else at.fraction * most
    return first if at.remaining is None else min(first, most - at.remaining)


def _overflow(policy: Policy) -> Iterator[Fault]:
    if policy.overflow is None:
        return
    known, do = [step.name for step in policy.history], policy.overflow.do or ()
    for place, step in enumerate(do):
        if step in do[:place]:
            yield f"overflow.do[{place}]", f"{shown(step)} stands there already; keep one"
        if isinstance(step, str) and step not in known:
            yield f"overflow.do[{place}]", f"history has no pass {shown(step)}{nearest(step, known)}"


# More of either would make each text that is recorded slow, and a policy hard to read.
_MOST_PATTERNS, _LONGEST_PATTERN = 100, 1000
# An expression that matches nothing at all does so in one of these.
_PROBES = ("", "a 1")


def _redact(policy: Policy) -> Iterator[Fault]:
    if len(policy.redact) > _MOST_PATTERNS:
        yield "redact", f"expected {_MOST_PATTERNS} patterns at most, got {len(policy.redact)}"
    for place, pattern in enumerate(policy.redact):
        problem = f"longer than {_LONGEST_PATTERN} characters" if len(pattern) > _LONGEST_PATTERN else ""
        problem = problem or problem_of(pattern)
        if not problem and any(matches_empty(pattern, probe) for probe in _PROBES):
            problem = "it matches where there is nothing; say what is to be hidden"
        if problem:
            yield f"redact[{place}]", f"{problem}; got {shown(pattern)}"


def _retry(policy: Policy) -> Iterator[Fault]:
    timed = any(isinstance(limit, TimeLimit) and limit.value is not None for limit in policy.limits)
    if policy.retry.attempts is None and policy.retry.window is None and not timed:
        yield "retry.attempts", "null would be for ever: give a number, a 'window', or a time limit"


def _too_small(fact: RunStarted) -> Iterator[Fault]:
    for path, step in passes_of(fact.policy):
        if not isinstance(step, TokenTail | Compact):
            continue
        systems = isinstance(step, Compact) or step.count_system
        stay = _first(fact.messages, Role.USER) if fact.task is None else [fact.messages[fact.task]]
        stay += _first(fact.messages, Role.SYSTEM) if systems else []
        room = step.budget if isinstance(step.budget, int) else step.budget.context - step.budget.minus_output
        weight = ESTIMATORS[fact.policy.estimator].weigh_all([(head.role, head.size) for head in stay])
        if weight > room:
            what = "the task and the system prompt" if systems else "the task"
            yield f"{path}.budget", f"{room} tokens cannot hold {what}, which always stay: {weight}; raise it"


def _first(messages: Iterable[MessageHead], role: Role) -> list[MessageHead]:
    return [head for head in messages if head.role is role][:1]


def _unreached(policy: Policy) -> Iterator[Fault]:
    for place, limit in enumerate(policy.limits):
        for other, sooner in enumerate(policy.limits):
            if other != place and _ends_first(sooner, limit, earlier=other < place):
                yield f"limits[{place}]", f"never reached: limits[{other}] ends the run before it"
                break


def _ends_first(sooner: Limit, limit: Limit, *, earlier: bool) -> bool:
    """Whether `sooner` trips whenever `limit` does, and is looked at before it: they count alike, in as wide
    a scope.
    """
    low, high = threshold(sooner), threshold(limit)
    if low is None or high is None or check_of(sooner) != check_of(limit):
        return False
    if _but(sooner) != _but(limit) or _SCOPES.index(sooner.scope) < _SCOPES.index(limit.scope):
        return False
    return low < high or (
        low == high and sooner.op in {">=", limit.op} and (earlier or sooner.op != limit.op)
    )


def _but(limit: Limit) -> Limit:
    """The limit without what may differ between two that count alike."""
    return msgspec.structs.replace(limit, name="", value=None, op=">=", scope="run", check="preflight")


def _idle(policy: Policy) -> Iterator[Fault]:
    """Passes behind one that always leaves a window in which they have nothing to do."""
    for place, step in enumerate(policy.history):
        for other, window in enumerate(policy.history[:place]):
            if isinstance(window, Tail) and _always(window.when) and _leaves_idle(window, step):
                by = (policy.overflow.do or ()) if policy.overflow else ()
                only = "; only an overflow runs it" if step.name in by else ""
                yield f"history[{place}]", f"never reached: history[{other}] leaves it nothing to do{only}"
                break


def _leaves_idle(window: Tail, step: Pass) -> bool:
    last = max(1, window.last)
    if isinstance(step, Tail) and max(1, step.last) >= last:
        return True
    if (
        window.systems == "all"
        or window.salvage
        or window.pair_cut == "extend"
        or getattr(step, "cap", 0) is None
    ):
        return False
    most = last + 2  # with the system prompt and the task
    if isinstance(step, Summarise | Digest) and step.keep_last >= most:
        return True
    return step.when.messages is not None and step.when.messages >= most


def _undone(policy: Policy) -> Iterator[Fault]:
    """A pass that writes one message for many, and one behind it that drops that message at once."""
    for place, step in enumerate(policy.history):
        for other, window in enumerate(policy.history[place + 1 :], place + 1):
            if isinstance(step, Summarise | Digest) and isinstance(window, Tail) and _drops(window, step):
                yield (
                    f"history[{other}]",
                    f"history[{place}] and this undo each other: what stands for older messages is dropped at once",
                )


def _drops(window: Tail, step: Summarise | Digest) -> bool:
    return _always(window.when) and window.systems == "first" and max(1, window.last) <= step.keep_last


def _short(policy: Policy) -> Iterator[Fault]:
    for path, step in passes_of(policy):
        if isinstance(step, Tail) and step.last < _SHORT:
            yield (
                f"{path}.last",
                f"{step.last} messages are very few: below {_SHORT} a model loses its thread",
            )


def _always(when: When) -> bool:
    given = (when.messages, when.tokens, when.model or None, when.after_step, when.turn_start or None)
    return when.always and all(condition is None for condition in given)


def _unasked(policy: Policy) -> Iterator[Fault]:
    """Approvers behind one that decides every call."""
    chain = policy.approvals.chain if policy.approvals else ()
    for place, approver in enumerate(chain):
        decides = isinstance(approver, Approve | Reject) and "*" in approver.tools
        if decides and place + 1 < len(chain):
            yield f"approvals.chain[{place + 1}]", f"never reached: chain[{place}] decides about every call"
            return


def _unbounded(policy: Policy) -> Iterator[Fault]:
    if not is_bounded(policy.limits):
        yield "limits", "no limit of steps or time"


def _ignored(policy: Policy) -> Iterator[Fault]:
    for place, limit in enumerate(policy.limits):
        if limit.value is not None and needs(limit) and not insists(limit):
            what = "cost" if isinstance(limit, CostLimit) else "tokens"
            yield (
                f"limits[{place}]",
                f"an answer whose {what} nobody knows counts as nothing: then it is not kept",
            )


def _endless(policy: Policy) -> Iterator[Fault]:
    """What goes on until a limit ends it, and none does; and what waits for a limit that is not there."""
    limited = any(limit.value is not None for limit in policy.limits)
    timed = any(isinstance(limit, TimeLimit) for limit in policy.limits)
    if not limited and policy.empty is not None and policy.empty.again is None:
        yield "empty.again", "null asks without end, and no limit ends the run"
    if not limited and policy.end_of_turn == "continue":
        yield "end_of_turn", "'continue' asks without end, and no limit ends the run"
    if policy.near is not None and policy.near.fraction is not None and not timed:
        yield "near.fraction", "never reached: there is no time limit"
    for failure in policy.retry.by_class:
        if failure not in policy.retry.classes:
            yield (
                f"retry.by_class.{failure}",
                "never used: 'classes' does not have it, so it is not retried",
            )
