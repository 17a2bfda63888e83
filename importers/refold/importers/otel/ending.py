"""What a run of spans says of itself as a whole, and how it ended."""

from collections.abc import Mapping

from refold.importers.message_shapes import Read
from refold.importers.otel import names as otel_names
from refold.importers.otel.forest import Tree
from refold.importers.otel.names import operation
from refold.importers.otel.spans import stamp
from refold.importers.stops import end_of


def times_of(tree: Tree) -> tuple[str, str] | None:
    """The first and the last time of a run's spans, the agent's too."""
    spans = [member.span for member in tree.members] + ([tree.agent] if tree.agent else [])
    times = [time for span in spans for time in (span.start, span.end) if time is not None]
    return (stamp(min(times)), stamp(max(times))) if times else None


def unsaid(tree: Tree) -> tuple[str, ...]:
    """What no chat of a run says, and what spans never say: whose messages there were."""
    chats = (member.span.attributes for member in tree.members if operation(member.span) == "chat")
    return ("user_messages", "tool_messages", *otel_names.TOKENS.unsaid(chats))


def ended(tree: Tree, answers: Mapping[int, Read | None]) -> tuple[str, str]:
    """How a run ended, and where that stands: the agent's status; without an agent, the last thing that happened.

    `answers` by the identities of their spans.
    """
    if tree.agent is not None:
        if tree.agent.end is None:
            return "open", "the agent's span has no end"
        return ("error" if tree.agent.failed else "finished"), "status of the agent's span"
    happened = [member.span for member in tree.members if operation(member.span) in {"chat", "tool"}]
    if not happened:
        return "unknown", "no agent's span, no chat, no tool"
    last = happened[-1]
    if operation(last) == "tool" or last.end is None:
        return "open", "no agent's span; the last span is a tool's or has no end"
    if last.failed:
        return "error", "no agent's span; the last chat failed"
    given = answers.get(id(last))
    if given and any(message.calls for message in given.messages):
        return "open", "no agent's span; the last answer asks for tools"
    # Not every exporter says why an answer stopped; the span of each was ended when it was there.
    return end_of(
        otel_names.stop(last.attributes) or "stop"
    ), "no agent's span; the last chat asks for no tool"
