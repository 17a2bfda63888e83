"""What is counted in a run of spans, and how it ended."""

from refold.replay.importers.items import Tally
from refold.replay.importers.otel import names as otel_names
from refold.replay.importers.otel.forest import Tree
from refold.replay.importers.otel.names import operation
from refold.replay.importers.otel.spans import stamp
from refold.replay.importers.tallies import summed, tally_of


def tallied(tree: Tree) -> Tally:
    """Counts over every span of the run, the helpers' too: they cost tokens as well."""
    spans = [member.span for member in tree.members]
    chats = [span for span in spans if operation(span) == "chat"]
    tools = [span for span in spans if operation(span) == "tool"]
    every = [*spans, tree.agent] if tree.agent else spans
    used = list(map(otel_names.counted, chats))
    names = otel_names.TOKENS
    read, written = summed(used, *names.cache_read), summed(used, *names.cache_write)
    return tally_of(
        None,
        len(chats),
        None,
        tool_calls=len(tools),
        tool_results=sum(span.end is not None for span in tools),
        tool_errors=sum(span.failed for span in tools),
        tokens=(summed(used, *names.input), read, written, summed(used, *names.output)),
        times=(stamp(time) for span in every for time in (span.start, span.end) if time is not None),
    )


def ended(tree: Tree) -> tuple[str, str]:
    """How a run ended, and where that stands: the agent's status; without an agent, the last thing that happened."""
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
    given = otel_names.answer(last)
    if given and any(message.calls for message in given.messages):
        return "open", "no agent's span; the last answer asks for tools"
    return "finished", "no agent's span; the last chat asks for no tool"
