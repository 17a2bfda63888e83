"""A run as Markdown, for an incident ticket.

Text from a log is never parsed as markup: it is code, in fences longer than any in the text, and invisible or
control characters are escaped. Long texts are shortened, with a reference to the full text.
"""

import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

from refold.reducers import events as ev
from refold.reducers.errors import Damaged, Inconclusive
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.limits import Limit, LimitUnit, name_of
from refold.reducers.messages import Message, Usage
from refold.reducers.policy import Policy
from refold.reducers.vocabulary import NANO
from refold.replay import figures, known
from refold.replay.audit import Audit, Auditor
from refold.replay.figures import by
from refold.replay.kinds.arguments import format_call, sole_argument
from refold.replay.kinds.sentences import SHOWN
from refold.replay.kinds.table import kind_for, remark, sentence
from refold.replay.reader import Follower, Step, events, follow, stored_events
from refold.replay.summary import RunSummary, Summing
from refold.store.protocol import Store

_SAID = {LimitUnit.NANOSECONDS: "s", LimitUnit.NANO_USD: "USD"}


class Checks(Follower[Iterator[tuple[str, str]]]):
    """Collects the check results for the header. `auditor` must follow the same log.

    `code` formats a text as inline code.
    """

    def __init__(self, auditor: Auditor, code: Callable[[str], str]) -> None:
        self._auditor, self._code = auditor, code
        self._hash = ""
        self._policy: Policy | None = None
        self._amended = 0
        self._source: ev.SourceRecorded | None = None

    def take(self, step: Step) -> None:
        """Look at one event. Raises as `Step.event`."""
        event = step.event
        self._hash = step.stored.hash.hex()
        policy = event.policy if isinstance(event, ev.RunStarted | ev.RunForked | ev.PolicyAmended) else None
        if policy is not None:
            self._policy, self._amended = policy, self._amended + (self._policy is not None)
        if isinstance(event, ev.SourceRecorded):
            self._source = self._source or event

    def result(self) -> Iterator[tuple[str, str]]:
        """Return the lines, each with its name."""
        if self._source is not None:
            where = f"{self._code(self._source.format)}, SHA-256 {self._code(self._source.source)}"
            yield (
                "Imported",
                f"from a transcript ({where}): its decisions were derived at import, not recorded then",
            )
        if self._policy is not None:
            amended = f", the last of {self._amended + 1}" if self._amended else ""
            yield (
                "Policy",
                f"{_limits(self._policy, self._code)}; SHA-256 {self._code(self._auditor.policy)}{amended}",
            )
        if self._hash:
            yield (
                "Log head",
                f"{self._code(self._hash)}: compare it with `refold verify` or with a signed checkpoint",
            )
        yield "Audit", self._verdict(self._auditor.result())

    def _verdict(self, found: Audit) -> str:
        if self._auditor.problem is not None:
            return f"incomplete: {self._code(str(self._auditor.problem))}"
        if found.differences:
            first = found.findings[0]
            return f"**differs** in {found.differences}, first at event {first.seq}: {self._code(first.kind)} is {first.difference}"
        if found.unjudged:
            blind = self._code("; ".join(found.blind)) if found.blind else "payloads erased"
            return f"agrees, but {found.unjudged} facts are inconclusive: {blind}"
        return f"agrees: {found.decisions} decisions derived again from {found.facts} facts, rules version {found.rules}"


def _limits(policy: Policy, code: Callable[[str], str]) -> str:
    said = [_limit(limit, code) for limit in policy.limits if limit.value is not None]
    guards = f", {len(policy.guards)} guards" if policy.guards else ""
    return (f"limits {', '.join(said)}" if said else "no limits") + guards


def _limit(limit: Limit, code: Callable[[str], str]) -> str:
    unit = limit.unit
    return f"{code(name_of(limit))} {limit.op} {limit.value:g} {_SAID.get(unit, str(unit))}"


MOST_CHARS = 2000
"""Maximum characters of one text."""

MOST_DECISIVE = 40
"""Maximum decisive events listed at the top: half of them the first ones, half the last ones."""

Harmless = Callable[[str], str]
"""Sanitizes text: invisible and control characters are escaped, except line ends."""

_TICKS = re.compile("`+")


async def markdown(
    store: Store, run: str, upto: int | None, harmless: Harmless, registry: Registry = BUILTIN
) -> tuple[RunSummary, AsyncIterator[str]]:
    """Return a run's summary up to event `upto` (None: the last), and its ticket in pieces that end lines.

    The audit uses the guards of `registry`. A damaged log is shown up to the damage. Raises `UnknownRun`,
    `NewerLog`, and `Damaged` if no event can be read.
    """
    ticket, auditor = Ticket(harmless), Auditor(run, registry)
    decisive, checks = DecisiveEvents(ticket), Checks(auditor, ticket.code)
    summing = Summing(run, decisive, checks)
    await follow(stored_events(store, run, upto), summing, auditor, registry=registry)
    about = summing.result()
    if isinstance(summing.problem, Inconclusive):
        raise summing.problem
    if about.damaged and not about.events:
        raise Damaged(about.damaged)
    header = [*ticket.header(about, checks.result()), *decisive.result()]
    return about, _write_ticket(store, about, ticket, header)


async def _write_ticket(
    store: Store, about: RunSummary, ticket: "Ticket", header: Sequence[str]
) -> AsyncIterator[str]:
    for line in header:
        yield line
    async for stored, event in events(store, about.run, about.events):
        for line in ticket.event(stored.seq, stored.at, event):
            yield line
    if about.damaged:
        yield f"\n## Damage\n\n{ticket.code(about.damaged)}\n"


class DecisiveEvents(Follower[Iterator[str]]):
    """Collects decisive events: stops, refusals, failures, compaction, and the source's own decisions."""

    def __init__(self, ticket: "Ticket") -> None:
        self._ticket = ticket
        self._first: list[str] = []
        self._last: deque[str] = deque(maxlen=MOST_DECISIVE // 2)
        self._more = 0
        self._odd: dict[str, tuple[int, int]] = {}  # count, and last event

    def take(self, step: Step) -> None:
        """Look at one event. Raises as `Step.event`."""
        seq, event = step.stored.seq, step.event
        said = self._describe(event)
        if not said or (isinstance(event, ev.Diagnosed) and self._is_repeated(seq, event.code)):
            return
        line = f"- event {seq}: {said}\n"
        if len(self._first) < MOST_DECISIVE // 2:
            self._first.append(line)
        else:
            self._more += len(self._last) == self._last.maxlen
            self._last.append(line)

    def result(self) -> Iterator[str]:
        """Return the section, line by line."""
        yield "\n## Decisive events\n\n"
        yield from self._first or ["None: no guard tripped, and nothing was refused, pruned or retried.\n"]
        if self._more:
            yield f"- … {self._more} more …\n"
        yield from self._last
        for odd, (count, last) in self._odd.items():
            if count > 1:
                yield f"- {count - 1} more of {self._ticket.code(odd)}, the last at event {last}\n"

    def _is_repeated(self, seq: int, odd: str) -> bool:
        """Return whether this was found before.

        A source may repeat one problem hundreds of times, which would hide everything else.
        """
        if odd not in self._odd and len(self._odd) >= MOST_DECISIVE:
            return False
        count = self._odd.get(odd, (0, 0))[0] + 1
        self._odd[odd] = (count, seq)
        return count > 1

    def _describe(self, event: ev.Event) -> str:
        code = self._ticket.code
        if kind_for(event).weight(event) != "decisive":
            return ""
        match event:
            case ev.StateChanged():
                return f"ended {event.target} by {code(event.code)}: {code(event.reason)}"
            case ev.SourceRecorded():
                return f"the source recorded {code(event.what)} at {code(event.position)}"
            case _:
                return code(sentence(event) if isinstance(event, ev.Diagnosed) else remark(event))


class Ticket:
    """Formats the lines of a run's ticket, event by event."""

    def __init__(self, harmless: Harmless) -> None:
        self._harmless = harmless
        self._names: dict[str, str] = {}

    def header(self, about: RunSummary, checks: Iterable[tuple[str, str]] = ()) -> Iterator[str]:
        """Return the header: the run, its status, and the results of `checks`."""
        yield f"# Run {self.code(about.run)}\n\n"
        ended = f"{about.agent_state}" + (f", {self.code(about.code)}" if about.code else "")
        fork = f"{self.code(about.forked_from)} at event {about.forked_at}" if about.forked_from else ""
        labels = (self.code(f"{name}={value}") for name, value in sorted(about.labels.items()))
        rows = [
            ("Ended", self._code_if_any(about.source_says)),
            ("Derived state" if about.source_says else "State", ended),
            ("Why", self._code_if_any(about.reason)),
            ("Model", self._code_if_any(about.model)),
            *((name.capitalize(), self.code(text)) for name, text in about.environment.pairs()),
            ("Events", str(about.events)),
            ("Turns", str(about.steps)),
            ("Tokens", _tokens(about.usage, uncounted=about.uncounted)),
            ("Cost", _cost(about) if about.steps else ""),
            ("Errors", figures.unmarked(about.unmarked)),
            ("Fork of", fork),
            ("Labels", ", ".join(labels)),
            ("Damaged", self._code_if_any(about.damaged)),
            *checks,
        ]
        for name, value in rows:
            if value:
                yield f"- {name}: {value}\n"

    def event(self, seq: int, at: int, event: ev.Event) -> Iterator[str]:
        """Return the lines of one event."""
        match event:
            case ev.RunStarted(content=opening):
                yield "\n## Opening\n"
                yield from self._write_opening(opening)
            case ev.ModelRequested():
                yield _request(seq, at, event)
            case ev.ModelResponded():
                yield from self._write_response(seq, event)
            case ev.ModelFailed():
                yield from self._write_failure(seq, event)
            case ev.ToolReturned():
                yield from self._write_result(seq, event)
            case ev.CallRefused():
                yield f"\nCall {self.code(event.call)} was refused ({event.why}) by {self.code(by(event.cause, event.name))}.\n"
            case ev.InputReceived():
                yield from self._write_input(seq, event)
            case ev.StateChanged() if event.target.terminal:
                yield f"\n## {event.target}\n\nEvent {seq}, {_clock(at)}: {self.code(event.reason)}\n"
            case _:
                if said := remark(event):
                    yield f"\n- event {seq}: {self.code(said)}\n"

    def code(self, text: str) -> str:
        """Format text of the log as inline code."""
        said = " ".join(self._harmless(text).split()) or " "
        said = said if len(said) <= MOST_CHARS else said[:MOST_CHARS] + "…"
        ticks = "`" * (max((len(run) for run in _TICKS.findall(said)), default=0) + 1)
        pad = " " if said.startswith("`") or said.endswith("`") else ""
        return f"{ticks}{pad}{said}{pad}{ticks}"

    def _code_if_any(self, text: str | None) -> str:
        return self.code(text) if text else ""

    def _write_opening(self, opening: ev.Opening | None) -> Iterator[str]:
        if opening is None:
            yield "\n*Erased.*\n"
            return
        messages = opening.messages
        shown = messages if len(messages) <= 6 else (*messages[:3], *messages[-3:])
        for place, message in enumerate(shown):
            if len(messages) > 6 and place == 3:
                yield f"\n… {len(messages) - 6} messages …\n"
            yield f"\n{message.role.capitalize()}:\n"
            yield from self._fence(_whole(message), 1)

    def _write_response(self, seq: int, event: ev.ModelResponded) -> Iterator[str]:
        self._names = {call.id: call.name for call in event.calls}
        yield f"\nThe model responded ({known.stopped(event)}; tokens: {_tokens(event.usage)}; event {seq}):\n"
        said = event.content
        if said is None or said.text or not event.calls:
            yield from self._fence(said.text if said else None, seq)
        for place, call in enumerate(event.calls):
            given = _argument(said, place)
            yield f"\nIt called {self.code(format_call(call.name, given, SHOWN))} as {self.code(call.id)}:\n"
            yield from self._fence(None if given is None else sole_argument(given), seq)

    def _write_failure(self, seq: int, event: ev.ModelFailed) -> Iterator[str]:
        status = f" (HTTP {event.status})" if event.status else ""
        yield f"\nThe request failed: {event.failure}{status}.\n"
        yield from self._fence(event.content.message if event.content else None, seq)

    def _write_result(self, seq: int, event: ev.ToolReturned) -> Iterator[str]:
        name = self._names.get(event.call)
        call = f"{self.code(event.call)} {self.code(name)}" if name else self.code(event.call)
        yield f"\nCall {call} {_ending(event)}:\n"
        yield from self._fence(event.content.output if event.content else None, seq)

    def _write_input(self, seq: int, event: ev.InputReceived) -> Iterator[str]:
        yield f"\n{self.code(event.by)} said:\n"
        yield from self._fence(event.content.text if event.content else None, seq)

    def _fence(self, text: str | None, seq: int) -> Iterator[str]:
        if text is None:
            yield "\n*Erased.*\n"
            return
        said = self._harmless(text[:MOST_CHARS])
        fence = "`" * max(3, max((len(run) for run in _TICKS.findall(said)), default=0) + 1)
        yield f"\n{fence}text\n{said}\n{fence}\n"
        if len(text) > MOST_CHARS:
            yield f"\n… {len(text) - MOST_CHARS} more characters in event {seq}.\n"


def _request(seq: int, at: int, event: ev.ModelRequested) -> str:
    again = f", attempt {event.attempt}" if event.attempt > 1 else ""
    when = f"{_clock(at)}, " if at else ""
    return f"\n## Turn {event.step}{again}\n\nEvent {seq}, {when}about {event.input_tokens} tokens.\n"


def _ending(event: ev.ToolReturned) -> str:
    if event.refused_by:
        return f"was refused by its harness ({event.refused_by})"
    ending = f"failed ({event.error})" if event.error else "returned"
    if known.failed(event) is not None:
        return ending
    unknown = "status not recorded" if known.recorded(event) else "result not recorded"
    return f"{ending} ({unknown})"


def _whole(message: Message) -> str:
    calls = "".join(f"\n[calls {format_call(call.name, call.arguments, SHOWN)}]" for call in message.calls)
    return message.text + calls


def _argument(said: ev.Answer | None, place: int) -> str | None:
    return said.arguments[place] if said and place < len(said.arguments) else None


def _cost(about: RunSummary) -> str:
    if about.cost_nanousd is None:
        return "not known"
    return f"{about.cost_nanousd / NANO:.6f} USD" + (" at least" if about.unpriced else "")


def _tokens(usage: Usage, *, uncounted: int = 0) -> str:
    if not known.counted(usage):
        return "not recorded"
    counts = f"{known.sent(usage) or '-'} in, {known.got(usage) or '-'} out"
    return counts + (" at least" if uncounted else "")


def _clock(at: int) -> str:
    if not at:
        return "at an unknown time"  # from a transcript without times
    return figures.clock(at)
