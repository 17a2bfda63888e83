"""Source data that a record lacks, and where the other policy would have needed it.

Unknown quantities are bounded in `bounds`. This module handles unknowns without a bound:

- Data that is in no fact could be anything. Only limits on growing totals are known to trip no later with it.
- The wait before a retry is not recorded: an import has the failure and what came next.
- A missing result may have any length and any status. Rules that read results are judged up to there.
- A call known only by its result may be any call. Rules that read calls are judged up to there.
- A gate may not know whether a tool is sensitive.
- A pattern may be invalid if the log that contains the policy was edited.
- refold rejects arguments that are not a JSON object (for example, truncated ones) before any rule runs.
  Another agent may have run the call with arguments that are not recorded.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from refold.reducers import events as ev
from refold.reducers.approvals import ApprovalRule, Approve, Approver, Gate, Human, Reject, Rules
from refold.reducers.guards.protocol import reading_of
from refold.reducers.limits import TimeLimit, measure_of, name_of
from refold.reducers.patterns import list_search_texts, occurs, rule
from refold.reducers.policy import Policy, text_of
from refold.reducers.source_marks import (
    CALL_UNREAD,
    HOSTED,
    INFERRED,
    LEFT_BRANCH,
    SUBAGENT_ROWS,
    UNCALLED,
    UNNAMED,
)
from refold.reducers.vocabulary import ToolError, Unknown
from refold.replay import known
from refold.replay.source_words import describe_loss, is_lost
from refold.replay.whatif.pair import RunPair
from refold.replay.whatif.uncertainty import Effect, Uncertainty
from refold.replay.whatif.upper_bounds import UNCOUNTED, UNTIMED, counts, without_known_limits
from refold.replay.whatif.verdict import Verdict

_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "web_search_call": "web_search",
        "file_search_call": "file_search",
        "image_generation_call": "image_generation",
        "code_interpreter_call": "code_interpreter",
    }
)
"""Types of items that only the provider runs, and the tool that each one calls.

For other types it is unknown who ran them.
"""


def find_objection(event: ev.SourceRecorded, one: Policy, other: Policy) -> str | None:
    """Return why a hosted call leaves the other policy's verdict open; "" if it does not, None if unknown.

    A policy cannot refuse what the provider ran. If the policies differ only in rules over arguments, the
    call is irrelevant if no rule is about its tool or no pattern matches its recorded arguments.
    """
    item = _item(event)
    name = _NAMES.get(str(item.get("type")))
    # Texts of guards are sent to the model and do not affect what a provider ran.
    if name is None or replace(other, guards=one.guards, texts=one.texts) != one:
        return None
    changed = [
        each for each in (*one.guards, *other.guards) if (each in one.guards) != (each in other.guards)
    ]
    if any(each["guard"] != "arguments" for each in changed):
        return None
    given = msgspec.json.encode(item.get("action") or {}).decode()
    for each in changed:
        objection = _objection_by(each, name, str(item["type"]), given)
        if objection != "":
            return objection
    return ""


def _objection_by(config: Mapping[str, Any], name: str, kind: str, given: str) -> str | None:
    """Do `find_objection` for one rule over arguments."""
    if not any(fnmatchcase(called, config.get("tool", "*")) for called in (name, kind)):
        return ""
    unless, field = config.get("unless"), config.get("field")
    texts = list_search_texts(given, field)
    if not texts and not field:
        return None
    if occurs(config["matches"], texts, unless) is False:
        return ""
    found = rule(config["matches"], unless)
    return f"the provider ran {name}, which matches the rule {found}: no policy could have refused it"


def _item(event: ev.SourceRecorded) -> Mapping[str, Any]:
    try:
        row: Any = msgspec.json.decode(event.content.text if event.content else "{}")
    except (msgspec.DecodeError, RecursionError):
        return {}
    item: Any = cast("dict[str, Any]", row).get("payload", row) if isinstance(row, dict) else None
    return cast("Mapping[str, Any]", item) if isinstance(item, dict) else {}


_PAUSES = "retries: the record does not have the wait before the next attempt"
_UNASKED = "the record has no model request to compare"
_UNASKABLE = "the record does not say which tool was called here, or with which arguments"
_BESIDE = {
    UNCALLED: "the record has results without their calls",
    HOSTED: "the source has calls that are in no fact: the provider ran them, or it is unknown who did",
}
_IN_PLACE = frozenset(
    {
        "no_place",
        "result_without_call",
        "too_many_calls",
        "unknown_part",
        CALL_UNREAD,
        LEFT_BRANCH,
        SUBAGENT_ROWS,
    }
)
"""Diagnosis codes placed where data is missing.

For other codes, such as a line that is not JSON, the position is unknown.
"""


class Losses:
    """Follows two runs and records which data the source lacks.

    `more`: whether data is missing after the divergence.
    """

    def __init__(self, near: RunPair, doubt: Callable[[Uncertainty], None]) -> None:
        self._near, self._doubt = near, doubt
        self._lost = ""  # describes the first data that is in no fact
        self._remarks: list[ev.SourceRecorded] = []  # not processed yet
        self._behind = self.more = self._failed = self._inferred = False

    @property
    def _imported(self) -> bool:
        return bool(self._near.recorded.state.setup.unknown)

    def observe(self, event: ev.Event) -> None:
        """Note what the import lost of the source, at its position if known, else for the whole run."""
        if isinstance(event, ev.Diagnosed):
            self._inferred = self._inferred or event.code == INFERRED
            if is_lost(event):
                self._add_loss(describe_loss(event.code), in_place=event.code in _IN_PLACE)
        elif isinstance(event, ev.SourceRecorded) and event.what in _BESIDE:
            self._remarks.append(event)  # the policies are unknown before the first fact

    def _add_loss(self, gone: str, *, in_place: bool) -> None:
        if gone and in_place and self._behind:
            self.more = True
        else:
            self._lost = self._lost or gone

    def _judge_remarks(self) -> None:
        """Process remarks about calls that no fact has; some are irrelevant to the other policy."""
        one, other = self._near.recorded.state, self._near.derived.state
        for event in self._remarks:
            why = find_objection(event, one.policy, other.policy) if event.what == HOSTED else None
            self._add_loss(_BESIDE[event.what] if why is None else why, in_place=True)
        self._remarks.clear()

    def judge(self, seq: int, fact: ev.Fact, *, diverged: bool) -> None:
        """Evaluate after both runs took a fact; `diverged`: they had diverged before it."""
        self._judge_remarks()
        if isinstance(fact, ev.ModelResponded) and not diverged:
            self._judge_calls(seq, fact)
        if isinstance(fact, ev.ToolReturned):
            self._judge_result(seq, fact)
        # Between two responses, a log may not keep the order of its source.
        self._behind = self._behind or (diverged and isinstance(fact, ev.ModelResponded | ev.ModelFailed))
        if self._lost and self._near.differs:
            self._report(seq, self._lost, "stops" if self._adds_up() else "rests")
        if self._imported:
            self._judge_pauses(seq, fact, diverged=diverged)

    def _judge_result(self, seq: int, fact: ev.ToolReturned) -> None:
        if self._near.reached and self._reads_result_of(fact):
            self._report(seq, f"the record has no result of call {fact.call}", "rests")

    def _judge_pauses(self, seq: int, fact: ev.Fact, *, diverged: bool) -> None:
        """Report that an import lacks the waits between attempts."""
        failed = isinstance(fact, ev.ModelFailed)
        if failed and self._near.reached and self._retries_at_once():
            self._report(seq, _PAUSES, "asks")
        if self._failed and self._near.found is not None and not diverged and self._has_credit():
            self._report(seq, _PAUSES, "rests")
        self._failed = self._failed or failed

    def finish(self) -> None:
        """Handle the end of the record for runs that have not diverged."""
        near = self._near
        self._judge_remarks()
        if near.found is not None:
            return
        if self._imported and near.differs:
            missing = [self._lost] if self._lost else []
            missing += [] if near.recorded.state.spent.steps else [_UNASKED]
            for why in missing:
                self._report(near.fact, why, "rests")
        self._judge_uncounted()

    def _judge_uncounted(self) -> None:
        """Report agreement that rests on data that was never counted."""
        state = self._near.recorded.state
        if state.lineage.first_response is None:
            return
        kinds = (Unknown.USAGE, Unknown.TIME)
        policy = without_known_limits(self._near.derived.state.policy, kinds, state.policy.limits)
        if not known.counted(state.spent.usage) and counts(policy, Unknown.USAGE):
            self._doubt(Uncertainty(1, UNCOUNTED, "stops"))
        if state.at == state.lineage.at and counts(policy, Unknown.TIME):
            self._doubt(Uncertainty(1, UNTIMED, "stops"))

    def _report(self, seq: int, why: str, effect: Effect) -> None:
        found = self._near.found
        self._doubt(
            Uncertainty(min(seq, found.fact) if found else seq, why, effect, self._near.derived.state)
        )

    def _judge_calls(self, seq: int, fact: ev.ModelResponded) -> None:
        """Report a call known only by its result if the other policy reads calls."""
        if not (self._inferred and any(call.name == UNNAMED for call in fact.calls)):
            return
        one, other = self._near.recorded.state.policy, self._near.derived.state.policy
        watched = any(reading_of(guard).calls for guard in self._observers(ev.ModelResponded))
        if watched or one.approvals != other.approvals:
            self._report(seq, _UNASKABLE, self._rule_of_any_call(seq))

    def _rule_of_any_call(self, seq: int) -> Effect:
        """Return the effect of a call that is known only by its result.

        If approvals that treat every call alike caused a divergence here, it came here or earlier.
        """
        found, policy = self._near.found, self._near.derived.state.policy
        chain = policy.approvals.chain if policy.approvals else ()
        if found is None or found.fact != seq or policy.guards or not _treats_alike(chain):
            return "rests"
        return "stops" if found.verdict is Verdict.STOPS else "asks"

    def _reads_result_of(self, fact: ev.ToolReturned) -> bool:
        """Return whether the other policy reads a status or output length that is unknown."""
        if Unknown.RESULT not in fact.unknown:
            return False
        one, other = self._near.recorded.state.policy, self._near.derived.state.policy
        watched = any(self._observers(ev.ToolReturned))
        weighed = any(measure_of(limit) == "estimate" for limit in other.limits)
        return watched or weighed or _result_rules(one) != _result_rules(other)

    def _observers(self, kind: type[ev.Fact]) -> Iterator[Any]:
        """Yield the other policy's guards that observe facts of this kind."""
        guards = (watch.guard for watch in self._near.derived.state.guards)
        return (guard for guard in guards if guard is not None and kind in guard.observes)

    def _adds_up(self) -> bool:
        """Return whether the policies differ only in limits, and the other's count growing totals only."""
        one, other = self._near.recorded.state.policy, self._near.derived.state.policy
        same = replace(other, limits=one.limits, call_timeout=one.call_timeout) == one
        plain = not (one.grace or one.near or one.pressure or one.fallback)
        return same and plain and all(limit in one.limits or limit.monotone for limit in other.limits)

    def _retries_at_once(self) -> bool:
        """Return whether the other policy retries at once, under other retry rules.

        The delay of the recorded retry is unknown.
        """
        one, other = self._near.recorded.state, self._near.derived.state
        at_once = other.backoff is not None and other.backoff.until == other.at
        return at_once and one.policy.retry != other.policy.retry

    def _has_credit(self) -> bool:
        """Return whether the other run ended by a time limit that excludes unrecorded retry waits."""
        state = self._near.derived.state
        hit = state.limit
        return hit is not None and any(
            isinstance(limit, TimeLimit) and limit.credit.retry != "none" and name_of(limit) == hit.name
            for limit in state.policy.limits
        )


def _treats_alike(chain: Sequence[Approver]) -> bool:
    """Return whether the first deciding link treats every call alike, whatever its tool and arguments."""
    for link in chain:
        match link:
            case Approve() | Reject() | Human():
                return "*" in link.tools
            case Rules(rules=(ApprovalRule(tool="*", decision=word), *_)) if word != "escalate":
                return "*" in link.tools
            case Gate(sensitive=marks, then=word) if word != "escalate" and "*" in (marks or ()):
                return "*" in link.tools
            case _:
                return False
    return True


def _result_rules(policy: Policy) -> tuple[object, ...]:
    """Return a policy's rules on results, other than guards and limits."""
    words = tuple(text_of(policy, error) for error in ToolError)
    return policy.history, policy.overflow, policy.tool_output, policy.redact, policy.estimator, words
