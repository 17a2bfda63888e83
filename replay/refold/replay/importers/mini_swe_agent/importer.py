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

from refold.reducers.messages import Message, MessageCall
from refold.reducers.vocabulary import Role, StopReason
from refold.replay.importers.content import worded, words
from refold.replay.importers.documents import beginning, document
from refold.replay.importers.fields import JSON, at, nano_usd, number, rows, table, text, without
from refold.replay.importers.items import Item, Place, RunBegan, together
from refold.replay.importers.mini_swe_agent.rows import (
    asked,
    counted,
    failed,
    is_result,
    moment,
    output_of,
    role_of,
    times_of,
    usage,
)
from refold.replay.importers.protocol import Match
from refold.replay.importers.source import BadTranscript, Source
from refold.replay.importers.usages import CHAT_TOKENS

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
        answers = (n for n, row in enumerate(messages) if role_of(row) not in ("system", "user"))
        begin = next(answers, len(messages))
        given = ((Role(role_of(row)), words(at(row, "content"))) for row in messages[:begin])
        labels = {"instance": text(doc, "instance_id"), "version": text(doc, "info", "mini_version")}
        yield RunBegan(
            position=f"{place}[0:{begin}]",
            at=moment(messages[0]),
            key=text(doc, "instance_id") or "trajectory",
            messages=tuple(Message(role=role, text=said) for role, said in given),
            model=text(doc, "info", "config", "model", "model_name"),
            agent="mini-swe-agent",
            labels={name: label for name, label in labels.items() if label},
            rest=without(doc, "messages", "info"),
            counts=together(map(counted, messages[:begin])),
            unsaid=("cache_write_tokens",),
        )
        yield from _conversation(messages, begin, place)
        yield from found.cut()
        last = Place("$.info" if isinstance(doc, dict) else f"$[{len(messages) - 1}]")
        yield last.ended(end_of(doc), times_of(messages), rest=without(at(doc, "info")))


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


def _conversation(messages: Sequence[JSON], begin: int, position: str) -> Iterator[Item]:
    waiting: list[MessageCall] = []
    for index in range(begin, len(messages)):
        row, role = messages[index], role_of(messages[index])
        place = Place(f"{position}[{index}]", moment(row), counted(row))
        rest = without(row, *worded(row), *_SAID)
        if role == "assistant":
            waiting = list(asked(row, index))
            yield _answered(row, place, waiting)
            yield from place.hosted([part for part in rows(row, "content") if at(part, "type") != "text"])
        elif role == "exit":
            if waiting and text(row, "extra", "exit_status") == "Submitted":
                yield _returned(row, place, waiting, rest)
            yield place.remarked("exit", rest=without(row, "role"))
        elif waiting and (is_result(row) or index == len(messages) - 1):
            # What a submitting command gave back has no code around it: it is the last message, as it is.
            yield _returned(row, place, waiting, rest)
        else:
            spoken = Role.SYSTEM if role == "system" else Role.USER
            yield place.said(words(at(row, "content")), "harness", role=spoken, rest=rest)


def _answered(row: JSON, place: Place, calls: Sequence[MessageCall]) -> Item:
    raw, used = at(row, "extra", "response"), usage(row)
    # Version 1 kept the whole answer of the provider beside the text that it took out of it.
    choice, cost = at(raw, "choices", 0), at(row, "extra", "cost")
    thought = text(choice, "message", "reasoning") or text(choice, "message", "reasoning_content")
    said = Message(role=Role.ASSISTANT, text=output_of(row), reasoning=thought, calls=tuple(calls))
    # All that is in `extra` may stand in the item.
    told = ("extra",) if table(row, "extra").keys() <= {"actions", "cost", "timestamp"} else ()
    answer = place.counting(counted(row, len(calls))).answered(
        said,
        CHAT_TOKENS.of(used),
        stop=text(choice, "finish_reason"),
        cost=nano_usd(cost if cost is not None else at(used, "cost")),
        model=text(raw, "model"),
        response=text(raw, "id"),
        rest=without(row, *worded(row), *_SAID, *told),
    )
    # `stop` is what a text with a command in it ends with: of the provider's words only a cut tells more.
    return answer if answer.stop in CUT_SHORT else msgspec.structs.replace(answer, stop=None)


def _returned(row: JSON, place: Place, waiting: list[MessageCall], rest: str) -> Item:
    named = text(row, "tool_call_id") or text(row, "call_id")
    call = next((call for call in waiting if call.id == named), waiting[0])
    waiting.remove(call)
    return place.returned(call.id, output_of(row), name=call.name, error=failed(row), rest=rest)
