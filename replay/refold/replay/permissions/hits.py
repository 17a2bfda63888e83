"""Decisions of each permission rule over recorded runs, beside the recorded results of the calls."""

from collections import Counter

import msgspec

from refold.replay.permissions.calls import CallResult, Judged, JudgedCall, JudgedRun


class RuleHits(msgspec.Struct, kw_only=True):
    """What one rule decides.

    `calls` are evidence. `later` ones follow a refused call of their run, and only `decided_by` and `seen`
    count them, too. `runs` have such calls. `succeeded`, `failed` and `refused` is what became of them; of
    the others it is not recorded. `first` and `last` are instants of these calls, `sample` the address of the
    first. `decided_by`: calls that the rule matches and another rule decides, by that rule. `seen` are all
    calls of its tools.
    """

    calls: int = 0
    later: int = 0
    runs: int = 0
    succeeded: int = 0
    failed: int = 0
    refused: int = 0
    first: int | None = None
    last: int | None = None
    sample: str = ""
    decided_by: Counter[str] = msgspec.field(default_factory=Counter[str])
    seen: int = 0


class AskedGroup(msgspec.Struct, kw_only=True):
    """Calls that one rule asks a user about: the first words of their command, or the tool.

    `first` is the instant of the earliest, `sample` its address.
    """

    rule: str
    subject: str
    calls: int = 0
    runs: int = 0
    first: int | None = None
    sample: str = ""


class PermissionHits(msgspec.Struct, kw_only=True):
    """What rules decide over runs; `rules` by label.

    `calls` are all. `later` are those after a refused call of their run: not evidence, and in no number
    below. `refused_runs` have a refused call. `unruled` are calls without a rule, `unknown` has the calls
    that the rules cannot judge, by reason. `erased` calls have no arguments. `incomplete` has the runs whose
    source may have more calls, by reason; `unread` runs could not be read, by reason. `recorded` has calls by
    what the rules decide and by what became of them.
    """

    runs: int = 0
    calls: int = 0
    later: int = 0
    refused_runs: int = 0
    rules: dict[str, RuleHits] = {}
    asked: dict[tuple[str, str], AskedGroup] = {}
    unruled: int = 0
    unknown: Counter[str] = msgspec.field(default_factory=Counter[str])
    erased: int = 0
    incomplete: Counter[str] = msgspec.field(default_factory=Counter[str])
    unread: Counter[str] = msgspec.field(default_factory=Counter[str])
    recorded: Counter[tuple[str, CallResult]] = msgspec.field(default_factory=Counter[tuple[str, CallResult]])

    def add(self, run: JudgedRun) -> None:
        """Count the calls of a run by its first list of rules."""
        self.runs += 1
        self.incomplete.update(run.incomplete)
        (rules, *_) = run.lists
        tools = Counter(call.tool for call in run.calls)
        for label, rule in zip(rules.labels, rules.guard.rules, strict=True):
            if seen := sum(number for tool, number in tools.items() if rule.is_for(tool)):
                self._hits(label).seen += seen
        decided: set[str] = set()
        asked: set[tuple[str, str]] = set()
        for call in run.calls:
            self.calls += 1
            if not call.judged:
                self.erased += 1
                continue
            self._count(call, call.judged[0], decided, asked)
        self.refused_runs += any(call.judged and call.judged[0].outcome == "refuse" for call in run.calls)

    def _hits(self, label: str) -> RuleHits:
        return self.rules.setdefault(label, RuleHits())

    def _count(
        self, call: JudgedCall, judged: Judged, decided: set[str], asked: set[tuple[str, str]]
    ) -> None:
        for label in judged.matching:
            self._hits(label).decided_by[judged.rule] += 1
        if judged.is_later:
            self.later += 1
            if judged.rule and judged.outcome != "unknown":
                self._hits(judged.rule).later += 1
            return
        self.recorded[judged.outcome, call.result] += 1
        if judged.outcome == "unknown":
            self.unknown[judged.why] += 1
        elif not judged.rule:
            self.unruled += 1
        else:
            self._add_hit(call, judged, is_new=judged.rule not in decided)
            decided.add(judged.rule)
        if judged.outcome == "ask":
            key = judged.rule, subject_of(call, judged)
            group = self.asked.setdefault(key, AskedGroup(rule=key[0], subject=key[1]))
            group.calls += 1
            if group.first is None or call.at < group.first:
                group.first, group.sample = call.at, call.address
            group.runs += key not in asked
            asked.add(key)

    def _add_hit(self, call: JudgedCall, judged: Judged, *, is_new: bool) -> None:
        hits = self._hits(judged.rule)
        hits.calls += 1
        hits.runs += is_new
        hits.succeeded += call.result is CallResult.SUCCEEDED
        hits.failed += call.result is CallResult.FAILED
        hits.refused += call.result.is_refusal
        if hits.first is None or call.at < hits.first:
            hits.first, hits.sample = call.at, call.address
        hits.last = call.at if hits.last is None else max(hits.last, call.at)


def subject_of(call: JudgedCall, judged: Judged) -> str:
    """Return what a decision is about, for groups: the first words of its command, or the tool."""
    words = judged.command.split()[:2]
    return " ".join(words) if words else call.tool
