"""mini-swe-agent trajectories (`.traj.json`): a message list, since 1.0 inside `{info, messages, trajectory_format}`.

Version 1 asks for one fenced shell command an answer; the observation comes back as a user's message that begins with
`<returncode>`. Version 2 writes the commands beside the answer (`extra.actions`), and may let the model call a function
`bash` instead; its last message has the role `exit`. Each command becomes a call of `bash`, what came back its result,
though most models were shown it as a user's message.

An answer without exactly one command gets a reminder, and no call; a command that submits gets no result, and the message
behind it is the submission. Raw answers of the provider (`extra.response`) have usage, cost and time.

Counted: messages by role as they stand, without `exit`; calls = commands; results = messages with a return code or a
timeout; errors = those whose code is not zero, and timeouts; tokens from the raw answers.
"""

from collections.abc import Iterator, Sequence

import msgspec

from refold.reducers.messages import Message, Usage
from refold.reducers.vocabulary import Role, StopReason
from refold.replay.importers.chat_parts import nano_usd, stop_of, usage_of, worded, words
from refold.replay.importers.documents import beginning, document
from refold.replay.importers.fields import JSON, at, number, rows, table, text, without
from refold.replay.importers.items import (
    Answered,
    Asked,
    Item,
    Remarked,
    Returned,
    RunBegan,
    RunEnded,
    Said,
    Unread,
)
from refold.replay.importers.mini_swe_agent.rows import (
    asked,
    failed,
    is_result,
    moment,
    output_of,
    role_of,
    tally,
)
from refold.replay.importers.protocol import Match
from refold.replay.importers.source import BadTranscript, Source

CUT_SHORT = (StopReason.MAX_TOKENS, StopReason.CONTENT_FILTER)
"""Stop reasons that say more of an answer than whether there is a command in it."""

_SAID = ("role", "tool_call_id", "tool_calls", "call_id", "type", "object")


class MiniSweAgent(msgspec.Struct, frozen=True):
    """The importer of `.traj.json` files."""

    name: str = "mini_swe_agent"

    def match(self, source: Source) -> Match | None:
        """Its own name in the document, or a bare message list whose answers are one fenced command."""
        found = beginning(source)
        if text(found, "trajectory_format").startswith("mini-swe-agent") or text(
            found, "info", "mini_version"
        ):
            return Match(98, "names its format mini-swe-agent")
        if isinstance(found, list):
            messages = rows(found)
            answered = [row for row in messages if text(row, "role") == "assistant"]
            if answered and any(text(row, "content").startswith("<returncode>") for row in messages):
                return Match(85, "a message list with return codes")
            return None
        if {"info", "messages"} <= table(found).keys() and "model_stats" in table(found, "info"):
            return Match(85, "messages, and info with model_stats")
        if {"agent", "model", "environment"} <= table(found, "info", "config").keys():
            return Match(80, "info with the configuration of an agent, a model and an environment")
        if any({"response", "actions"} & table(row, "extra").keys() for row in rows(found, "messages")):
            return Match(80, "messages whose answers carry extra.response or extra.actions")
        return None

    def items(self, source: Source) -> Iterator[Item]:
        """The one run of the file."""
        found = document(source, ("messages",), ())
        doc = found.value
        messages = rows(doc) if isinstance(doc, list) else rows(doc, "messages")
        if not messages:
            raise BadTranscript(source.name, "$.messages", "no messages")
        place = "$" if isinstance(doc, list) else "$.messages"
        begin = next(
            (n for n, row in enumerate(messages) if role_of(row) not in ("system", "user")), len(messages)
        )
        yield RunBegan(
            position=f"{place}[0:{begin}]",
            at=moment(messages[0]),
            key=text(doc, "instance_id") or "trajectory",
            messages=tuple(
                Message(role=Role(role_of(row)), text=words(at(row, "content"))) for row in messages[:begin]
            ),
            model=text(doc, "info", "config", "model", "model_name"),
            agent="mini-swe-agent",
            labels=_labels(doc),
            rest=without(doc, "messages", "info"),
        )
        yield from _conversation(messages, begin, place)
        if found.problem:
            yield Unread(position=f"byte {found.read}", code="cut", problem=f"the document {found.problem}")
        end, end_source = end_of(doc)
        yield RunEnded(
            position="$.info" if isinstance(doc, dict) else f"$[{len(messages) - 1}]",
            end=end,
            end_source=end_source,
            tally=tally(messages),
            rest=without(at(doc, "info")),
        )


MINI_SWE_AGENT = MiniSweAgent()

ENDS = {"Submitted": "finished", "TimeExceeded": "limit:time", "UserInterruption": "cancelled"}
"""Exit statuses that say how it ended. Any other is what went wrong: mostly the name of an exception's class."""


def end_of(doc: JSON) -> tuple[str, str]:
    """How a run ended, and where that stands. `LimitsExceeded` names no limit: it was steps if those were used up."""
    if "info" not in table(doc):
        return "unknown", "no info block"
    status = text(doc, "info", "exit_status")
    if not status:
        return "open", "info.exit_status missing or null"
    if status == "LimitsExceeded":
        limit = number(doc, "info", "config", "agent", "step_limit") or 0
        used = number(doc, "info", "model_stats", "api_calls") or 0
        return ("limit:steps" if 0 < limit <= used else "limit:cost"), f"info.exit_status={status}"
    return ENDS.get(status, "error"), f"info.exit_status={status}"


def _labels(doc: JSON) -> dict[str, str]:
    named = {"instance": text(doc, "instance_id"), "version": text(doc, "info", "mini_version")}
    return {name: value for name, value in named.items() if value}


def _conversation(messages: Sequence[JSON], begin: int, place: str) -> Iterator[Item]:
    waiting: list[Asked] = []
    for index in range(begin, len(messages)):
        row, position = messages[index], f"{place}[{index}]"
        if role_of(row) == "assistant":
            answer = _answered(row, index, position)
            waiting = list(answer.calls)
            yield answer
        elif role_of(row) == "exit":
            if waiting and text(row, "extra", "exit_status") == "Submitted":
                yield _returned(row, position, waiting)
            yield Remarked(position=position, at=moment(row), what="exit", rest=without(row, "role"))
        elif waiting and (is_result(row) or index == len(messages) - 1):
            # What a submitting command gave back has no code around it: it is the last message, as it is.
            yield _returned(row, position, waiting)
        else:
            yield Said(
                position=position,
                at=moment(row),
                text=words(at(row, "content")),
                role=Role.SYSTEM if role_of(row) == "system" else Role.USER,
                by="harness",
                rest=without(row, *worded(row), *_SAID),
            )


def _answered(row: JSON, index: int, position: str) -> Answered:
    raw = at(row, "extra", "response")
    # Version 1 kept the whole answer of the provider beside the text that it took out of it.
    choice = at(raw, "choices", 0)
    cost = at(row, "extra", "cost")
    usage = at(raw, "usage") if at(raw, "usage") is not None else at(row, "usage")
    return Answered(
        position=position,
        at=moment(row),
        text=output_of(row),
        reasoning=text(choice, "message", "reasoning") or text(choice, "message", "reasoning_content"),
        calls=asked(row, index),
        # `stop` is what a text with a command in it ends with: of the provider's words only a cut tells more.
        stop=stop if (stop := stop_of(text(choice, "finish_reason"))) in CUT_SHORT else None,
        stop_raw=text(choice, "finish_reason"),
        usage=usage_of(usage) if usage is not None else Usage(),
        quality="reported" if usage is not None else "",
        cost_nanousd=nano_usd(cost if cost is not None else at(usage, "cost")),
        model=text(raw, "model"),
        response_id=text(raw, "id"),
        rest=without(row, *worded(row), *_SAID, *_told(row)),
    )


def _told(row: JSON) -> tuple[str, ...]:
    """`extra`, where all that is in it stands in the item."""
    return ("extra",) if table(row, "extra").keys() <= {"actions", "cost", "timestamp"} else ()


def _returned(row: JSON, position: str, waiting: list[Asked]) -> Returned:
    named = text(row, "tool_call_id") or text(row, "call_id")
    call = next((call for call in waiting if call.id == named), waiting[0])
    waiting.remove(call)
    return Returned(
        position=position,
        at=moment(row),
        id=call.id,
        name=call.name,
        output=output_of(row),
        error=failed(row),
        rest=without(row, *worded(row), *_SAID),
    )
