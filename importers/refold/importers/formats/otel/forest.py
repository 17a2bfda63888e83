"""Which span belongs to which run: a run is an agent's span with what happened under it.

The nearest agent above owns a span. The AI SDK's older spans name no parent: there an outer span owns the
inner one of its kind that lies within its time. A chat that belongs to no agent in a file that has agents is
a helper's (a title, a line of progress): it is kept in the run that began last before it, and is no part of
that run's conversation.
"""

from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from refold.importers.fields import text
from refold.importers.formats.otel.names import is_outer, operation
from refold.importers.formats.otel.spans import Span

_NEAR = 100  # outer spans that may be under way at once


class Member(msgspec.Struct, frozen=True, gc=False):
    """A span of a run. `helper`: no agent's, only near it."""

    span: Span
    helper: bool = False


class Tree(msgspec.Struct, frozen=True, gc=False):
    """One run: its agent's span, None where none was recorded, and its members by their start."""

    key: str
    agent: Span | None
    members: tuple[Member, ...]


def trees(spans: Sequence[Span]) -> tuple[Tree, ...]:
    """The runs that these spans are of, by their start. Every span is in exactly one."""
    agents = sorted((span for span in spans if operation(span) == "agent"), key=_start)
    if not agents:
        return _without_agents(spans)
    by_id = {span.id: span for span in spans if span.id}
    owned: dict[int, list[Member]] = {id(agent): [] for agent in agents}
    for span in spans:
        owner, sure = _owner(span, by_id, agents)
        if id(span) not in owned:
            owned[id(owner)].append(Member(span, helper=not sure))
        elif owner is not span:
            owned[id(owner)].append(Member(span))
    keys = _keys([agent.id or agent.position for agent in agents])
    return tuple(
        Tree(key, agent, tuple(sorted(owned[id(agent)], key=lambda member: _start(member.span))))
        for key, agent in zip(keys, agents, strict=True)
    )


def _owner(span: Span, by_id: dict[str, Span], agents: Sequence[Span]) -> tuple[Span, bool]:
    """The agent that a span belongs to, and whether that is sure. An agent under no other belongs to itself."""
    above, seen = by_id.get(span.parent), {id(span)}
    while above is not None and id(above) not in seen:
        if operation(above) == "agent":
            return above, True
        seen.add(id(above))
        above = by_id.get(above.parent)
    if operation(span) == "agent":
        return span, True
    begun = bisect_right(agents, _start(span), key=_start)
    around = next(
        (agent for agent in reversed(agents[max(0, begun - _NEAR) : begun]) if is_outer(agent, span)), None
    )
    if around is not None:
        return around, True  # the one that began last is the tightest
    # Its parent is not in the file, as after a cut: the trace still says whose it is.
    near = [
        agent for agent in agents if span.parent and span.parent not in by_id and agent.trace == span.trace
    ]
    before = bisect_right(near or agents, _start(span), key=_start)
    return (near or agents)[max(0, before - 1)], bool(near)


def _without_agents(spans: Sequence[Span]) -> tuple[Tree, ...]:
    """No agent was recorded, or its span was lost: one run a conversation, a trace where none is named."""
    groups: dict[str, list[Span]] = {}
    names: dict[str, str] = {}
    for span in spans:
        if conversation := text(span.attributes, "gen_ai.conversation.id"):
            names.setdefault(span.trace, conversation)
    for span in spans:
        own = text(span.attributes, "gen_ai.conversation.id") or names.get(span.trace, span.trace)
        groups.setdefault(own, []).append(span)
    kept = {key: group for key, group in groups.items() if any(operation(span) for span in group)}
    spare = [span for key, group in groups.items() if key not in kept for span in group]
    if not kept:
        return ()
    head = next(iter(kept))
    kept[head] = kept[head] + spare
    return tuple(
        Tree(key or "spans", None, tuple(Member(span) for span in sorted(group, key=_start)))
        for key, group in sorted(kept.items(), key=lambda pair: min(map(_start, pair[1])))
    )


def _keys(wanted: Sequence[str]) -> list[str]:
    made: list[str] = []
    for key in wanted:
        made.append(key if key not in made else f"{key}#{len(made) + 1}")
    return made


def _start(span: Span) -> int:
    return span.start if span.start is not None else span.end or 0
