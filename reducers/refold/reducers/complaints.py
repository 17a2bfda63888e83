"""Checks of a policy: errors for what cannot work, warnings for what is probably a mistake.

Pure: they read the policy, and the messages with which a run begins.
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
    is_bounded,
    is_counted,
    measure_of,
    needs,
    refuses_unknown,
    threshold,
)
from refold.reducers.named_tools import find_impossible_names, find_unclassified_tools, find_unmatched_names
from refold.reducers.patterns import matches_empty, problem_of
from refold.reducers.policy import At, Policy, Tier, passes_of
from refold.reducers.vocabulary import Role

# Two or three messages are a call, its result and what came before: too few for a model to work with.
_MIN_MESSAGES = 6
_SCOPES = ("turn", "run", "lineage")


def refuse(policy: Policy) -> None:
    """Raise `PolicyError` for the first part of a policy, with names filled in, that cannot work."""
    for find in (
        _check_names,
        _check_scopes,
        _check_grace,
        _check_pressure,
        _check_overflow,
        _check_redact,
        _check_retry,
        faults_of,
    ):
        for path, problem in find(policy):
            raise PolicyError(path, problem)


def warnings(policy: Policy) -> tuple[Complaint, ...]:
    """List what works but is probably a mistake: limits and compaction steps never reached, or undone."""
    finders = (
        _find_unreachable_limits,
        _find_idle_steps,
        _find_undone_steps,
        _find_short_tails,
        _find_endless_keys,
        _find_unreachable_approvers,
        find_impossible_names,
    )
    return complaints(fault for find in finders for fault in find(policy))


def notes(policy: Policy) -> tuple[Complaint, ...]:
    """List what may be intended but should be known: no bound on runs, and limits not enforced where figures
    are missing.
    """
    return complaints(
        fault for find in (_find_missing_bounds, _find_ignored_figures) for fault in find(policy)
    )


def opening(fact: RunStarted) -> tuple[Complaint, ...]:
    """List the warnings of a run that is about to start.

    Raises `PolicyError` for a window smaller than what must stay in it: system prompt and task.
    """
    for path, problem in _find_small_budgets(fact):
        raise PolicyError(path, problem)
    of_tools = (
        *find_unmatched_names(fact.policy, fact.tools),
        *complaints(find_unclassified_tools(fact.policy, fact.tools)),
    )
    return (*warnings(fact.policy), *of_tools)


def _check_names(policy: Policy) -> Iterator[Fault]:
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
        yield from _check_group(group)


def _check_group(group: Sequence[tuple[str, str]]) -> Iterator[Fault]:
    for place, (path, name) in enumerate(group):
        if not name.isprintable():
            yield f"{path}.name", f"expected one line of printable text, got {shown(name)}"
        if name in [other for _, other in group[:place]]:
            yield f"{path}.name", f"the name {name!r} is used twice; set another name here"


def _check_scopes(policy: Policy) -> Iterator[Fault]:
    for place, limit in enumerate(policy.limits):
        of_window = isinstance(limit, MessageLimit) or measure_of(limit) == "estimate"
        if of_window and limit.scope != "run":
            yield f"limits[{place}].scope", "this limit counts the window in every scope; remove 'scope'"


def _check_grace(policy: Policy) -> Iterator[Fault]:
    limits = {limit.name: limit for limit in policy.limits}
    for place, name in enumerate(policy.grace.on if policy.grace else ()):
        path, limit = f"grace.on[{place}]", limits.get(name)
        if limit is None:
            yield path, f"unknown limit {shown(name)}{nearest(name, limits)}"
        elif isinstance(limit, TimeLimit) or is_counted(limit):
            yield (
                path,
                f"{name!r} limits time or money, and one more request would use more of it; remove it",
            )
        elif check_of(limit) != "preflight":
            yield (
                path,
                f"{name!r} is checked on responses, where no request can be granted; remove it or set 'check: preflight'",
            )


def _check_pressure(policy: Policy) -> Iterator[Fault]:
    pressure, limits = policy.pressure, {limit.name: limit for limit in policy.limits}
    if pressure is None:
        return
    counted = limits.get(pressure.of)
    if isinstance(counted, TimeLimit | CostLimit):
        yield ("pressure.of", f"{pressure.of!r} limits time or money; expected steps, messages or tokens")
    if counted is None and pressure.of != "step":
        yield "pressure.of", f"unknown limit {shown(pressure.of)}{nearest(pressure.of, limits)}"
    yield from _check_order(pressure.tiers, threshold(counted) if counted else None)


def _check_order(tiers: Sequence[Tier], limit: int | None) -> Iterator[Fault]:
    for place, (before, tier) in enumerate(pairwise(tiers), 1):
        # Without a limit, only tiers with the same kind of start can be compared.
        alike = (before.at.fraction is None) == (tier.at.fraction is None)
        if (limit or alike) and _start_of(tier.at, limit or 1 << 53) <= _start_of(
            before.at, limit or 1 << 53
        ):
            problem = f"begins no later than the tier {before.name!r} before it, which would never be sent; sort them"
            yield f"pressure.tiers[{place}].at", problem


def _start_of(at: At, limit: int) -> float:
    """Return the number, out of `limit`, at which a tier begins."""
    first = limit if at.fraction is None else at.fraction * limit
    return first if at.remaining is None else min(first, limit - at.remaining)


def _check_overflow(policy: Policy) -> Iterator[Fault]:
    if policy.overflow is None:
        return
    known, do = [step.name for step in policy.history], policy.overflow.do or ()
    for place, step in enumerate(do):
        if step in do[:place]:
            yield f"overflow.do[{place}]", f"{shown(step)} is listed twice; keep one"
        if isinstance(step, str) and step not in known:
            yield (
                f"overflow.do[{place}]",
                f"history has no compaction step {shown(step)}{nearest(step, known)}",
            )


# More or longer patterns would slow down every recorded text and make a policy hard to read.
_MAX_PATTERNS, _MAX_PATTERN_CHARS = 100, 1000
# A pattern that can match the empty string does so in one of these.
_PROBES = ("", "a 1")


def _check_redact(policy: Policy) -> Iterator[Fault]:
    if len(policy.redact) > _MAX_PATTERNS:
        yield "redact", f"expected {_MAX_PATTERNS} patterns at most, got {len(policy.redact)}"
    for place, pattern in enumerate(policy.redact):
        problem = f"longer than {_MAX_PATTERN_CHARS} characters" if len(pattern) > _MAX_PATTERN_CHARS else ""
        problem = problem or problem_of(pattern)
        if not problem and any(matches_empty(pattern, probe) for probe in _PROBES):
            problem = "it matches the empty string; write what to hide"
        if problem:
            yield f"redact[{place}]", f"{problem}; got {shown(pattern)}"


def _check_retry(policy: Policy) -> Iterator[Fault]:
    timed = any(isinstance(limit, TimeLimit) and limit.value is not None for limit in policy.limits)
    if policy.retry.attempts is None and policy.retry.window is None and not timed:
        yield "retry.attempts", "null has no upper bound: set a number, a 'window', or a time limit"


def _find_small_budgets(fact: RunStarted) -> Iterator[Fault]:
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
            yield (
                f"{path}.budget",
                f"{room} tokens cannot hold {what} ({weight} tokens), always kept; raise it",
            )


def _first(messages: Iterable[MessageHead], role: Role) -> list[MessageHead]:
    return [head for head in messages if head.role is role][:1]


def _find_unreachable_limits(policy: Policy) -> Iterator[Fault]:
    for place, limit in enumerate(policy.limits):
        for other, sooner in enumerate(policy.limits):
            if other != place and _ends_first(sooner, limit, earlier=other < place):
                yield f"limits[{place}]", f"never reached: limits[{other}] ends the run first"
                break


def _ends_first(sooner: Limit, limit: Limit, *, earlier: bool) -> bool:
    """Return whether `sooner` trips and is checked whenever `limit` trips, but earlier.

    Both must count the same, `sooner` in a scope at least as wide.
    """
    low, high = threshold(sooner), threshold(limit)
    if low is None or high is None or check_of(sooner) != check_of(limit):
        return False
    if _strip_limit(sooner) != _strip_limit(limit) or _SCOPES.index(sooner.scope) < _SCOPES.index(
        limit.scope
    ):
        return False
    return low < high or (
        low == high and sooner.op in {">=", limit.op} and (earlier or sooner.op != limit.op)
    )


def _strip_limit(limit: Limit) -> Limit:
    """Return the limit with defaults for all fields in which two that count the same may differ."""
    return msgspec.structs.replace(limit, name="", value=None, op=">=", scope="run", check="preflight")


def _find_idle_steps(policy: Policy) -> Iterator[Fault]:
    """Find steps after one that always leaves a window in which they have nothing to do."""
    for place, step in enumerate(policy.history):
        for other, window in enumerate(policy.history[:place]):
            if isinstance(window, Tail) and _is_always(window.when) and _leaves_idle(window, step):
                by = (policy.overflow.do or ()) if policy.overflow else ()
                suffix = "; only an overflow runs it" if step.name in by else ""
                yield f"history[{place}]", f"never reached: history[{other}] leaves it nothing to do{suffix}"
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
    upper = last + 2  # with the system prompt and the task
    if isinstance(step, Summarise | Digest) and step.keep_last >= upper:
        return True
    return step.when.messages is not None and step.when.messages >= upper


def _find_undone_steps(policy: Policy) -> Iterator[Fault]:
    """Find a step that replaces many messages by one, and a later step that drops that one immediately."""
    for place, step in enumerate(policy.history):
        for other, window in enumerate(policy.history[place + 1 :], place + 1):
            if isinstance(step, Summarise | Digest) and isinstance(window, Tail) and _drops(window, step):
                yield (
                    f"history[{other}]",
                    f"history[{place}] and this undo each other: this drops the message that replaces older ones",
                )


def _drops(window: Tail, step: Summarise | Digest) -> bool:
    return _is_always(window.when) and window.systems == "first" and max(1, window.last) <= step.keep_last


def _find_short_tails(policy: Policy) -> Iterator[Fault]:
    for path, step in passes_of(policy):
        if isinstance(step, Tail) and step.last < _MIN_MESSAGES:
            yield (
                f"{path}.last",
                f"{step.last} messages are very few: with fewer than {_MIN_MESSAGES}, a model loses the context",
            )


def _is_always(when: When) -> bool:
    given = (when.messages, when.tokens, when.model or None, when.after_step, when.turn_start or None)
    return when.always and all(condition is None for condition in given)


def _find_unreachable_approvers(policy: Policy) -> Iterator[Fault]:
    """Find approvers after one that decides every call."""
    chain = policy.approvals.chain if policy.approvals else ()
    for place, approver in enumerate(chain):
        decides = isinstance(approver, Approve | Reject) and "*" in approver.tools
        if decides and place + 1 < len(chain):
            yield f"approvals.chain[{place + 1}]", f"never reached: chain[{place}] decides about every call"
            return


def _find_missing_bounds(policy: Policy) -> Iterator[Fault]:
    if not is_bounded(policy.limits):
        yield "limits", "no limit of steps or time"


def _find_ignored_figures(policy: Policy) -> Iterator[Fault]:
    for place, limit in enumerate(policy.limits):
        if limit.value is not None and needs(limit) and not refuses_unknown(limit):
            what = "cost" if isinstance(limit, CostLimit) else "tokens"
            yield (
                f"limits[{place}]",
                f"a response without known {what} counts as zero, so the limit may be exceeded",
            )


def _find_endless_keys(policy: Policy) -> Iterator[Fault]:
    """Find keys that repeat until a limit ends the run, without a limit, and keys without their limit."""
    limited = any(limit.value is not None for limit in policy.limits)
    timed = any(isinstance(limit, TimeLimit) for limit in policy.limits)
    if not limited and policy.empty is not None and policy.empty.again is None:
        yield "empty.again", "null retries without an upper bound, and no limit ends the run"
    if not limited and policy.end_of_turn == "continue":
        yield "end_of_turn", "'continue' has no upper bound, and no limit ends the run"
    if policy.near is not None and policy.near.fraction is not None and not timed:
        yield "near.fraction", "never reached: the policy has no time limit"
    for failure in policy.retry.by_class:
        if failure not in policy.retry.classes:
            yield (
                f"retry.by_class.{failure}",
                "never used: 'classes' does not list it, so it is not retried",
            )
