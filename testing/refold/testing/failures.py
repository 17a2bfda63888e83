"""The message of a test whose agent does not behave as recorded."""

from collections.abc import Sequence

import msgspec

from refold.testing.differences import Difference

_WIDTH = 10


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about the first difference between a recording and today's agent.

    `place` is the event's address (`refund@e4`), `turn` its turn, `events` the number of recorded events,
    `equal` the number of events before it, all equal. `recorded` and `actual` describe the two events;
    `reason` is the rule behind the actual decision. `differences` come with the event; `causes` are earlier
    ones that explain it, such as a changed policy. `hint` is a matcher that would ignore the difference.
    `requests` are the hosts that refused requests were for.
    """

    what: str
    test: str = ""
    recording: str = ""
    place: str = ""
    turn: int = 0
    events: int = 0
    equal: int = 0
    recorded: str = ""
    actual: str = ""
    reason: str = ""
    differences: Sequence[Difference] = ()
    causes: Sequence[Difference] = ()
    changed_code: Sequence[str] = ()
    hint: str = ""
    requests: Sequence[str] = ()
    shown_by: str = "refold show {place} --store {recording}"
    more: str = ""
    accept: str = ""

    def show(self, place: str) -> str:
        """Return the command that shows an event or a run."""
        return self.shown_by.format(place=place, recording=self.recording)


class BehaviourChanged(AssertionError):
    """Today's agent does not behave as recorded. `evidence` has the first difference."""

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self.evidence = evidence

    def __str__(self) -> str:
        return render_evidence(self.evidence)


def render_evidence(found: Evidence) -> str:
    """Return the message: what differs first, why, and what to do, one labelled line for each."""
    lines = [found.what, ""]
    lines += _line("test", found.test)
    lines += _line("recording", found.recording)
    lines += _line("equal", _equal(found))
    lines += _line("differs", _where(found))
    lines += _line("recorded", found.recorded)
    lines += _line("actual", found.actual)
    lines += _line("reason", found.reason)
    for each in found.differences:
        lines += _render_difference("change", each)
    for each in found.causes:
        lines += _render_difference("cause", each)
    if found.changed_code:
        lines += _line("code", f"edited since the recording: {', '.join(found.changed_code)}")
    lines += _line("requests", _requests(found.requests))
    lines += _line("ignore", found.hint)
    lines += _line("more", found.more)
    lines += _line("accept", found.accept)
    return "\n".join(map(_escape, lines))


def _escape(line: str) -> str:
    """Escape what is not printable: a recording may hold sequences that control a terminal."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)


def _line(label: str, text: str) -> list[str]:
    return [f"  {label:<{_WIDTH}}{text}"] if text else []


def _more(text: str) -> str:
    return f"  {'':<{_WIDTH}}{text}"


def _equal(found: Evidence) -> str:
    if not found.events:
        return ""
    return (
        f"the first {found.equal} of {found.events} events"
        if found.equal
        else f"none of {found.events} events"
    )


def _where(found: Evidence) -> str:
    if not found.place:
        return ""
    return f"{found.place}, in turn {found.turn}" if found.turn else found.place


def _requests(refused: Sequence[str]) -> str:
    if not refused:
        return "0 live requests were attempted"
    hosts = ", ".join(sorted(set(refused)))
    return f"{len(refused)} live requests were attempted and refused: {hosts}"


def _render_difference(label: str, found: Difference) -> list[str]:
    where = f": {found.where}" if found.where else ""
    lines = _line(label, f"{found.what}{where}")
    if found.diff:
        return [*lines, *(_more(f"  {line}") for line in found.diff)]
    if found.recorded:
        lines.append(_more(f"  - {_flat(found.recorded)}"))
    if found.actual:
        lines.append(_more(f"  + {_flat(found.actual)}"))
    return lines


def _flat(text: str) -> str:
    return text if "\n" not in text else repr(text)
