"""What approvals do with tools that they do not name, and the calls that a gate lets run without knowing if they are sensitive."""

from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase

from refold.reducers.approvals import Approver, Gate, Human, Match, Rules
from refold.reducers.events import Manifest
from refold.reducers.guards.approvals import word_of
from refold.reducers.marks import fits, is_of
from refold.reducers.policy import Policy
from refold.reducers.refusals import Fault
from refold.reducers.vocabulary import Replay

_MOST = 20
_BECOMES = {
    "approve": "runs, and nobody is asked",
    "reject": "is refused",
    "terminate": "ends the run",
    "ask": "waits for a person",
}


def of_any_other(chain: Sequence[Approver]) -> str:
    """What becomes of a call to a tool that no approver of the chain names, in a sentence that says which one decides."""
    said = list[str]()
    for place, link in enumerate(chain):
        if "*" not in link.tools:
            continue
        where = f"(approvals.chain[{place}])"
        if isinstance(link, Match) and link.then not in (link.otherwise, "escalate"):
            said.append(f"{_BECOMES[link.then]} if its arguments match {link.rule} {where}")
        word = _of_no_name(link)
        if word != "escalate":
            return ", else ".join([*said, f"{_BECOMES[word]}{_unanswered(link)} {where}"])
    return ", else ".join([*said, "is refused: no approver decides about it"])


def _of_no_name(link: Approver) -> str:
    if isinstance(link, Rules):
        return next((rule.decision for rule in link.rules if rule.tool == "*"), "escalate")
    return link.otherwise if isinstance(link, Gate | Match) else word_of(link, "", "{}")


def _unanswered(link: Approver) -> str:
    if not isinstance(link, Human) or link.timeout is None or link.on_timeout == "escalate":
        return ""
    return f", and {_BECOMES[link.on_timeout]} if none answers in {link.timeout:g} s"


def gate_without_word(chain: Sequence[Approver], tool: Manifest, arguments: str) -> int | None:
    """The place in the chain of the gate that lets this call run unknown; None: there is none.

    A tool that says of itself that it only reads is known.
    """
    if tool.replay is Replay.READ_ONLY:
        return None
    for place, link in enumerate(chain):
        if not any(fnmatchcase(tool.name, glob) for glob in link.tools):
            continue
        asks = isinstance(link, Gate) and link.otherwise == "approve" and link.harmless is not None
        if asks and not fits(_marks(link, tool.name), tool.name, arguments):
            return place
        if word_of(link, tool.name, arguments) != "escalate":
            return None
    return None


def unsorted(policy: Policy, tools: Collection[Manifest]) -> Iterator[Fault]:
    """The tools of a run that a gate of the policy would let run unknown."""
    chain = policy.approvals.chain if policy.approvals else ()
    found: dict[int, list[str]] = {}
    for tool in tools:
        place = gate_without_word(chain, tool, "{}")
        # Of a tool of which commands are named, each call shows by its arguments which it is.
        marks = () if place is None else _marks(chain[place], tool.name)
        if place is not None and not any(is_of(mark, tool.name) for mark in marks):
            found.setdefault(place, []).append(tool.name)
    for place, names in found.items():
        yield f"approvals.chain[{place}]", not_known(names)


def not_known(names: Sequence[str]) -> str:
    """What is said of tools that a gate does not know, and what to do."""
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    listed = f"{', '.join(names[:_MOST])}{more}"
    return f"{listed} may run without a word in 'sensitive' or 'harmless': name each in one of them"


def _marks(link: Approver, name: str) -> tuple[str, ...]:
    """The marks by which the gate may know a tool of this name."""
    if not isinstance(link, Gate):
        return ()
    # Without case U+FB01 is `fi`, and the sign of Kelvin a `k`: what only looks harmless is not.
    alike = name.casefold().isascii() and not name.isascii()
    return (*(link.sensitive or ()), *(() if alike else link.harmless or ()))
