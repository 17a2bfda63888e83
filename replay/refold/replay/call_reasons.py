"""Why calls ran, were refused or waited: the deciding rule, the permission mode, and what the record says.

The decisions of rules are derived again: the log has a refusal with its rule, but not which rule permitted a
call. For an imported run no rule decided; what its source records about a refusal or an approval is reported,
and otherwise that the source does not record it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from refold.reducers import events as ev
from refold.reducers.approvals import Match
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.guards.approvals import Approval, Asked
from refold.reducers.guards.arguments import Arguments
from refold.reducers.guards.permissions import Permissions, Permitted
from refold.reducers.permissions.run_facts import RunFacts
from refold.reducers.run_records import take_calls, take_event
from refold.reducers.state import NEW, RunState, Watch
from refold.reducers.vocabulary import Refuser, ToolError
from refold.replay import known
from refold.replay.kinds.arguments import ERASED, elide, main_argument
from refold.replay.reader import events, fold_event
from refold.store.protocol import Store

_SHOWN = 160
_REFUSERS: Mapping[Refuser, str] = {
    Refuser.USER: "the user refused it",
    Refuser.RULE: "a permission rule or mode refused it; the source does not record which rule",
    Refuser.HOOK: "a hook refused it",
    Refuser.CLASSIFIER: "a classifier refused it",
    Refuser.HARNESS: "it was refused; the source does not record by whom",
}
_STOPPED = "the user rejected or stopped it; the source does not record which"
NOT_ASKED = "the source does not record whether an operator was asked"


class RuleReason(msgspec.Struct, frozen=True, kw_only=True):
    """The decision of a guard on a call.

    `effect` is what it decided: `refuse`, `permit`, `unknown`, ... `rule` is the deciding rule in its
    author's words with its file and line, "" if no rule applies; `place` is where it is in the policy, `say`
    the reason that its author gives. `command` is the command that it is about, `why` what makes it unknown.
    """

    guard: str
    effect: str
    rule: str = ""
    place: str = ""
    say: str = ""
    command: str = ""
    why: str = ""


class CallReason(msgspec.Struct, frozen=True, kw_only=True):
    """A call of the response at event `asked`, and why it ran or did not.

    `argument` is its main argument, None if erased. `outcome` is `ok`, an error, `refused` or `open`; event
    `at` recorded it (0: none did). `text` is what the model got in place of a result. `rules` are the
    decisions of the guards on it. `mode` is the permission mode then, "" if not recorded, since event
    `mode_since` (0: from the beginning). `operator` is who was asked, and what the record says
    of it.
    """

    call: str
    tool: str
    argument: str | None
    asked: int
    outcome: str = "open"
    at: int = 0
    text: str = ""
    rules: tuple[RuleReason, ...] = ()
    mode: str = ""
    mode_since: int = 0
    operator: tuple[str, ...] = ()
    imported: bool = False


class _Found(msgspec.Struct):
    """What is known of a call so far."""

    call: ev.Call
    argument: str | None
    asked: int
    outcome: str = "open"
    at: int = 0
    text: str = ""
    rules: tuple[RuleReason, ...] = ()
    operator: list[str] = []
    sources: list[tuple[str, int]] = []


async def read_call_reasons(
    store: Store, run: str, calls: Collection[str], registry: Registry = BUILTIN
) -> tuple[CallReason, ...]:
    """Return why these calls of one response ran or did not, in order. Raises as `events`."""
    reader, state = _Reader(calls), NEW
    async for stored, event in events(store, run):
        state = fold_event(state, stored, event, registry)
        reader.take(stored.seq, event, state)
        if reader.over:
            break
    return reader.result()


class _Reader:
    """Follows a run up to the outcome of the calls."""

    def __init__(self, calls: Collection[str]) -> None:
        self._wanted, self._found = calls, dict[str, _Found]()
        self._facts, self._since = RunFacts(), 0
        self._responded = self.over = False
        self._mode: tuple[str, int] = "", 0

    def take(self, seq: int, event: ev.Event, state: RunState) -> None:
        """Take an event, with the state after it."""
        if isinstance(event, ev.ModelResponded):
            self._begin(seq, event)
        if self.over:
            return
        if not self._found:
            self._note_mode(seq, event)
            return
        match event:
            case ev.ModelResponded():
                self._judge(state)
            case ev.ApprovalAnswered():
                self._judge(state)
                self._note_answers(seq, event)
            case ev.ApprovalRequested(calls=calls, guard=guard):
                for found in self._among(calls):
                    found.operator.append(f"asked at e{seq}, by the guard {guard}")
            case ev.CallRefused(call=call) | ev.ToolReturned(call=call):
                for found in self._among([call]):
                    self._note_outcome(seq, found, event)
            case ev.SourceRecorded(what=what) if what.partition(":")[0] == "approval":
                self._note_source(seq, event)
            case _:
                pass

    def _begin(self, seq: int, event: ev.ModelResponded) -> None:
        if self._found:
            self.over = True
            return
        texts = event.content.arguments if event.content else [None] * len(event.calls)
        for call, arguments in zip(event.calls, texts, strict=True):
            if call.id in self._wanted:
                argument = None if arguments is None else elide(main_argument(arguments), _SHOWN)
                self._found[call.id] = _Found(call=call, argument=argument, asked=seq)

    def _note_mode(self, seq: int, event: ev.Event) -> None:
        self._facts = take_event(before := self._facts, event)
        if isinstance(event, ev.ModelResponded):
            self._facts = take_calls(self._facts, event.calls)
        self._responded = self._responded or isinstance(event, ev.ModelResponded)
        if self._facts.mode != before.mode:
            self._mode = self._facts.mode or "", seq if self._responded else 0

    def _among(self, calls: Sequence[str]) -> list[_Found]:
        return [self._found[call] for call in calls if call in self._found]

    def _note_answers(self, seq: int, event: ev.ApprovalAnswered) -> None:
        for answer in event.answers:
            for found in self._among([answer.call]):
                found.operator.append(f"{event.by} answered at e{seq}: {answer.decision}")

    def _judge(self, state: RunState) -> None:
        for found in self._found.values():
            found.rules = tuple(list_rules(state.guards, found.call.id))

    def _note_outcome(self, seq: int, found: _Found, event: ev.CallRefused | ev.ToolReturned) -> None:
        if isinstance(event, ev.CallRefused):
            found.outcome, found.at = known.REFUSED, seq
            found.text = "\n".join(event.content.texts) if event.content else ERASED
            return
        found.outcome, found.at = known.outcome(event), seq
        if event.refused_by is not None:
            found.text = event.content.output if event.content else ERASED
            found.operator.append(_REFUSERS[event.refused_by])

    def _note_source(self, seq: int, event: ev.SourceRecorded) -> None:
        """Note an approval or rejection in the source: of the call that it names, or of open ones."""
        text = event.content.text if event.content else ""
        calls = self._found.values()
        named = [found for found in calls if found.call.provider_id and found.call.provider_id in text]
        for found in named or [found for found in calls if found.outcome == "open"]:
            found.sources.append((event.what, seq))

    def _describe_operator(self, found: _Found) -> tuple[str, ...]:
        """Return who was asked, and what the source records about it."""
        told = list(found.operator)
        for what, seq in found.sources:
            stopped = what == "approval:rejected" and found.outcome == ToolError.CANCELLED
            told.append(f"{_STOPPED} (e{seq})" if stopped else f"the source records {what!r} at e{seq}")
        return tuple(told or ([NOT_ASKED] if self._facts.format else []))

    def result(self) -> tuple[CallReason, ...]:
        """Return the reasons so far."""
        mode, since = self._mode
        imported = bool(self._facts.format)
        return tuple(
            CallReason(
                call=each.call.id,
                tool=each.call.name,
                argument=each.argument,
                asked=each.asked,
                outcome=each.outcome,
                at=each.at,
                text=each.text,
                rules=each.rules,
                mode=mode,
                mode_since=since,
                operator=self._describe_operator(each),
                imported=imported,
            )
            for each in self._found.values()
        )


def list_rules(guards: Sequence[Watch], call: str) -> Iterator[RuleReason]:
    """Yield the decisions of the guards on a call."""
    for watch in guards:
        guard = watch.guard
        if not isinstance(guard, Permissions | Arguments | Approval):
            continue
        if watch.blind:
            yield RuleReason(guard=watch.name, effect="unknown", why=watch.blind)
        elif isinstance(guard, Permissions):
            yield from _of_permissions(watch.name, guard, watch.own, call)
        elif isinstance(guard, Arguments):
            yield from _of_arguments(watch.name, guard, watch.own, call)
        else:
            yield from _of_chain(watch.name, guard, watch.own, call)


def _of_permissions(name: str, guard: Permissions, own: Permitted, call: str) -> Iterator[RuleReason]:
    decision = own.decisions.get(call)
    if decision is None:
        return
    if decision.rule is None:
        yield RuleReason(guard=name, effect=decision.effect, why=decision.why, place="else")
        return
    rule = guard.rules[decision.rule]
    yield RuleReason(
        guard=name,
        effect=decision.effect,
        rule=rule.label,
        place=f"rules[{decision.rule}]",
        say=rule.say,
        command=elide(decision.command, _SHOWN),
        why=decision.why,
    )


def _of_arguments(name: str, guard: Arguments, own: Asked, call: str) -> Iterator[RuleReason]:
    said = own.said.get(call, ())
    why = own.unknown.get(call, {}).get("0", "")
    if why or (said and said[0][1] != "approve"):
        rule = guard.as_approver.rule
        yield RuleReason(
            guard=name, effect="unknown" if why else guard.then, rule=rule, say=guard.say, why=why
        )


def _of_chain(name: str, guard: Approval, own: Asked, call: str) -> Iterator[RuleReason]:
    if call not in own.said:
        return
    said = own.said[call]
    link, word = said[0] if said else (len(guard.chain), "reject")
    why = own.unknown.get(call, {})
    for place, problem in why.items():
        if int(place) != link:
            yield RuleReason(guard=name, effect="unknown", place=f"chain[{place}]", why=problem)
    if link >= len(guard.chain):
        yield RuleReason(guard=name, effect=word, why="no link of the chain decides about it")
        return
    approver = guard.chain[link]
    rule, say = str(type(approver).__struct_config__.tag), ""
    if isinstance(approver, Match):
        rule, say = approver.rule, approver.say
    problem = why.get(str(link), "")
    yield RuleReason(guard=name, effect=word, rule=rule, place=f"chain[{link}]", say=say, why=problem)
