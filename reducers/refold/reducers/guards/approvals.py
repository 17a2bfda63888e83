"""Approvals during a run: the chain of approvers.

Source: the approval presets of inspect_agents (IA), by their published rule: a chain of approvers by globs;
the first decision other than `escalate` applies. Here a glob matches the whole name, and a call without a
decision is rejected.
"""

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import ClassVar

from msgspec.structs import replace

from refold.reducers.approvals import (
    OF_ITS_LOOP,
    Approve,
    Approver,
    Gate,
    Human,
    Match,
    Reject,
    Rules,
    fits,
)
from refold.reducers.events import (
    ApprovalAnswered,
    ApprovalRequested,
    Call,
    ClockRead,
    Event,
    ModelResponded,
    RunForked,
    RunStarted,
    SourceRecorded,
)
from refold.reducers.guards.protocol import Ask, Config, Judgement, Place, Refuse, Stop
from refold.reducers.permissions.conditions import ToolCall
from refold.reducers.permissions.paths import Folders
from refold.reducers.permissions.rule_checks import explain_unknown, find_grammar_problem, is_undecided
from refold.reducers.permissions.run_facts import RunFacts
from refold.reducers.run_records import take_calls, take_event
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Refusal, Value, nano

Said = tuple[tuple[int, str], ...]
"""The decisions of a chain on a call: (index of the link, decision), without those that escalate."""

UNKNOWN_APPROVAL = "approval_unknown"
"""The code of a decision on a call that the deciding link cannot judge."""

_ASK = "ask"


class Asked(Value, frozen=True):
    """The decisions on each call of the last response, by id, and the calls a user is asked about, with the
    deadline.

    `others`: the open question is another guard's; its answer does not count here. `unknown` are the calls
    that a link cannot judge, with the links (by index as text), and why. `tools`, `folders` and `run` are
    recorded only if a link needs them.
    """

    said: dict[str, Said] = {}
    calls: tuple[str, ...] = ()
    deadline: int | None = None
    others: bool = False
    unknown: dict[str, dict[str, str]] = {}
    tools: dict[str, str] = {}
    folders: Folders = Folders()
    run: RunFacts = RunFacts()


RUN_EVENTS: frozenset[type[Event]] = frozenset({RunStarted, RunForked, SourceRecorded})
"""Events that state the folders of a run, its permission mode or whether it is a subagent."""


def take_folders(folders: Folders, event: Event) -> Folders:
    """Return the folders of a run after an event; the same object if nothing changed."""
    match event:
        case RunStarted(labels=labels) | RunForked(labels=labels) if "cwd" in labels or "home" in labels:
            return Folders(labels.get("cwd", folders.cwd), labels.get("home", folders.home))
        case _:
            return folders


class Approval(Config, frozen=True, kw_only=True, tag="approvals"):
    """Refuses calls that the chain rejects, asks a user where it says `human`, ends the run where it
    terminates.

    `chain` is as in a policy's `approvals`. A call without a decision is rejected (`no_approval`). A refusal
    records the deciding `link`, counted from 0 (the chain's length if none did). A user's note stays in the
    answer's event: a refusal is a decision and holds no text of a user.
    """

    chain: tuple[Approver, ...] = ()

    kind: ClassVar[str] = "approvals"
    places: ClassVar[frozenset[Place]] = frozenset({Place.ON_APPROVAL})
    observes: ClassVar[frozenset[type[Event]]] = RUN_EVENTS | {
        ModelResponded,
        ApprovalAnswered,
        ApprovalRequested,
        ClockRead,
    }
    reads_content: ClassVar[bool] = True
    content_unread: ClassVar[frozenset[type[Event]]] = RUN_EVENTS
    guards_calls: ClassVar[bool] = True
    fresh: ClassVar[Asked] = Asked()
    texts: ClassVar[Mapping[str, str]] = {
        "refused:approval_said": "skipped: {say}",
        "refused:approval_unknown": (
            "skipped: the rule {rule} cannot judge this call ({why}). Write it as a plain command."
        ),
    }

    @property
    def blind(self) -> str:
        """Return why the chain cannot judge in this process; "" if it can."""
        return next(filter(None, (_find_blindness(link) for link in self.chain)), "")

    def observe(self, own: Asked, event: Event) -> Asked:
        """Apply the chain to new calls, and a user's answer, or its timeout, to open ones."""
        match event:
            case RunStarted() | RunForked() | SourceRecorded():
                return self._note_run(own, event)
            case ModelResponded(calls=calls, content=content) if content is not None and (calls or own.said):
                return self._judge_calls(own, zip(calls, content.arguments, strict=True))
            case ApprovalRequested(guard=guard, calls=asked, deadline=deadline):
                if guard != self.called:
                    return replace(own, calls=(), deadline=None, others=True)
                return replace(own, calls=asked, deadline=deadline, others=False)
            case ApprovalAnswered(at=at) | ClockRead(at=at) if (
                own.deadline is not None and at >= own.deadline
            ):
                # A late answer does not count, whether or not an engine read the clock at the deadline.
                return _apply_answers(
                    own, {call: self._on_timeout(own.said.get(call, ())) for call in own.calls}
                )
            case ApprovalAnswered(answers=answers):
                # A guard enabled after the question did not see it, but the answer counts for it.
                return own if own.others else _apply_answers(own, {one.call: one.decision for one in answers})
            case _:
                return own

    def _note_run(self, own: Asked, event: Event) -> Asked:
        if not any(isinstance(link, Match) and not link.is_plain for link in self.chain):
            return own
        folders, run = take_folders(own.folders, event), take_event(own.run, event)
        return own if folders is own.folders and run is own.run else replace(own, folders=folders, run=run)

    def _judge_calls(self, own: Asked, made: Iterable[tuple[Call, str]]) -> Asked:
        said, unknown, tools = dict[str, Said](), dict[str, dict[str, str]](), dict[str, str]()
        run = own.run
        names = any(isinstance(link, Match) and link.when is not None for link in self.chain)
        for call, arguments in made:
            if names:
                tools[call.id] = call.name
                run = take_calls(run, [call])
            said[call.id] = self._decide(own, call.name, arguments)
            if why := self._list_unknown(own, call.name, arguments, said[call.id]):
                unknown[call.id] = why
        return Asked(said, unknown=unknown, tools=tools, folders=own.folders, run=run)

    def _list_unknown(self, own: Asked, name: str, arguments: str, said: Said) -> dict[str, str]:
        """Return the links up to the first decision that cannot judge a call, and why."""
        call = ToolCall(name, arguments, own.folders, own.run)
        reached = enumerate(self.chain[: said[0][0] + 1 if said else None])
        return {str(place): why for place, link in reached if (why := explain_undecided(link, call))}

    def judge(self, own: Asked, state: RunState, place: Place) -> Iterable[Judgement]:  # noqa: ARG002
        """Decide the open calls that have not started: end the run, refuse, or ask a user.

        Incomplete calls and calls of unknown tools are ignored: they fail on their own.
        """
        heads = {
            call: next(iter(own.said.get(call, ())), (len(self.chain), "reject"))
            for call in _startable(state)
        }
        ended = any(word == "terminate" for _, word in heads.values())
        refused = "terminate" if ended else "reject"
        for call, (link, word) in heads.items():
            if word == refused:
                yield self._refuse(call, link, word, own.unknown.get(call, {}).get(str(link), ""))
        waiting = [(link, call) for call, (link, word) in heads.items() if word == _ASK]
        if ended:
            reason = "an approver ended the run at a call of this batch"
            yield Stop(code="approval_terminated", reason=reason, text="refused:terminated")
        elif waiting:
            yield self._ask(waiting)

    def _refuse(self, call: str, link: int, word: str, unknown: str) -> Refuse:
        code = "rejected" if link < len(self.chain) else "no_approval"
        code = "terminated" if word == "terminate" else code
        refusal = Refuse(
            code=code, call=call, why=Refusal.REJECTED, text="refused:rejected", measured={"link": link}
        )
        approver = self.chain[link] if link < len(self.chain) else None
        if not isinstance(approver, Match):
            return refusal
        if unknown:
            values: dict[str, str | int] = {"rule": approver.rule, "why": unknown}
            code = code if word == "terminate" else UNKNOWN_APPROVAL
            return replace(refusal, code=code, text="refused:approval_unknown", values=values)
        return (
            replace(refusal, text="refused:approval_said", values={"say": approver.say})
            if approver.say
            else refusal
        )

    def _decide(self, own: Asked, name: str, arguments: str) -> Said:
        links = enumerate(self.chain)
        words = (
            (place, word_of(link, name, arguments, own.folders, own.run))
            for place, link in links
            if any(fnmatchcase(name, glob) for glob in link.tools)
        )
        return tuple((place, word) for place, word in words if word != "escalate")

    def _ask(self, waiting: list[tuple[int, str]]) -> Ask:
        # One question at a time: a later link is asked after the first has answered.
        first = min(link for link, _ in waiting)
        approver = self.chain[first]
        timeout = approver.timeout if isinstance(approver, Human) else None
        return Ask(
            code="approval",
            calls=tuple(call for link, call in waiting if link == first),
            approver=f"chain[{first}]",
            timeout=None if timeout is None else nano(timeout),
        )

    def _on_timeout(self, said: Said) -> str:
        approver = self.chain[said[0][0]] if said else None
        return approver.on_timeout if isinstance(approver, Human) else "reject"


def _apply_answers(own: Asked, words: dict[str, str]) -> Asked:
    """Apply a user's answers; `escalate` leaves a call to the later links."""
    after = {call: _apply_answer(own.said.get(call, ()), word) for call, word in words.items()}
    return replace(own, said={**own.said, **after}, calls=(), deadline=None, others=False)


def _apply_answer(said: Said, word: str) -> Said:
    if word == "escalate":
        return said[1:]
    link = said[0][0] if said else 0
    return ((link, word),)


def _startable(state: RunState) -> Iterator[str]:
    tools = {tool.name for tool in state.setup.tools}
    for call in state.batch.calls if state.batch else ():
        if call.result is None and not call.dispatched and call.complete and call.name in tools:
            yield call.id


def explain_undecided(link: Approver, call: ToolCall) -> str:
    """Return why a link cannot judge a call; "" if it can, or is not for its tool."""
    if not isinstance(link, Match) or link.is_plain or not link.is_for(call.tool):
        return ""
    return explain_unknown(link, call) if is_undecided(link, call, permits=link.permits) else ""


def _find_blindness(link: Approver) -> str:
    if not isinstance(link, Match) or link.command is None:
        return ""
    return find_grammar_problem(link.grammar)


_NO_FOLDERS, _NO_FACTS = Folders(), RunFacts()


def word_of(
    approver: Approver, name: str, arguments: str, folders: Folders = _NO_FOLDERS, run: RunFacts = _NO_FACTS
) -> str:
    """Return the decision of one link on a call that its globs match."""
    match approver:
        case Approve():
            return "approve"
        case Reject():
            return "reject"
        case Gate(sensitive=marks, then=then, otherwise=otherwise):
            return then if fits(OF_ITS_LOOP if marks is None else marks, name, arguments) else otherwise
        case Rules(rules=rules):
            return next((rule.decision for rule in rules if fnmatchcase(name, rule.tool)), "escalate")
        case Match():
            return approver.word(approver.judge(ToolCall(name, arguments, folders, run)))
        case Human():
            return _ASK
