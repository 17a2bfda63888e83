"""mini-swe-agent trajectories (`.traj.json`): a message list, since 1.0 inside `{info, messages,
trajectory_format}`.

Version 1 asks for one fenced shell command an answer; the observation comes back as a user's message that
begins with `<returncode>`. Version 2 writes the commands beside the answer (`extra.actions`), and may let the
model call a function `bash` instead; its last message has the role `exit`. Each command becomes a call of
`bash`, what came back its result, though most models were shown it as a user's message.

An answer without exactly one command gets a reminder, and no call; version 2 keeps one that it could not use
beside the message that it sent instead: it cost what it cost, none of its calls ran, and no later prompt has
it; a command that submits gets no result, and the message behind it is the submission. Raw answers of the
provider (`extra.response`) have usage, cost and time.

Counted: messages by role as they stand, without `exit`; calls = commands; results = messages with a return
code or a timeout; errors = those whose code is not zero, and timeouts; tokens from the raw answers.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from refold.importers.content import calls_of, unwrapped, words
from refold.importers.documents import beginning, document
from refold.importers.fields import (
    JSON,
    Times,
    at,
    json_text,
    labels_of,
    left,
    number,
    rest,
    rows,
    table,
    take,
    take_cost,
    take_if,
    take_text,
    take_time,
    take_words,
    text,
)
from refold.importers.items import UNCOUNTED, Counted, Item, Place, RunBegan
from refold.importers.message_shapes import take_messages
from refold.importers.registry import FormatMatch
from refold.importers.session_rows import BEGINNING, Cut
from refold.importers.source import BadTranscript, Source
from refold.importers.tallies import add_counts
from refold.importers.usage import CHAT_TOKENS
from refold.reducers.messages import Message, MessageCall
from refold.reducers.source_marks import CALL_UNREAD
from refold.reducers.vocabulary import Refuser, Role, StopReason, ToolError

SHELL = "bash"
"""The tool of every command."""

_FENCE = re.compile(r"```(?:bash|mswea_bash_command)\s*\n(.*?)\n```", re.DOTALL)
"""Version 1's default pattern: what it ran is the one block of the answer."""

_CODE = re.compile(r"\s*(?:<exception>.*?</exception>\s*)?<returncode>\s*(-?\d+)\s*</returncode>", re.DOTALL)
_TIMED_OUT = re.compile(r"\s*The last command <command>.*</command> timed out", re.DOTALL)


def role_of(row: JSON) -> str:
    """`system`, `user`, `assistant`, `tool` or `exit`; the messages of the Responses API have none of their
    own.
    """
    if text(row, "object") == "response":
        return "assistant"
    if text(row, "type") == "function_call_output":
        return "tool"
    role = text(row, "role")
    return role if role in ("system", "assistant", "tool", "exit") else "user"


def is_known(row: JSON) -> bool:
    """Whether a message is of a role, or a kind, that is known."""
    return role_of(row) != "user" or text(row, "role") == "user"


def output_of(row: JSON) -> str:
    """What a message says."""
    if text(row, "object") == "response":
        return "\n".join(
            words(at(part, "content")) for part in rows(row, "output") if text(part, "type") == "message"
        )
    return words(at(row, "output") if text(row, "type") == "function_call_output" else at(row, "content"))


def take_output(row: JSON) -> str:
    """The same, taken out of the message where it is all of its text."""
    if text(row, "object") == "response":
        return output_of(row)
    return take_words(row, "output" if text(row, "type") == "function_call_output" else "content")


def take_asked(row: JSON, place: int) -> tuple[MessageCall, ...]:
    """The commands of an answer: those that version 2 recorded, taken out of it, else the one fenced block of
    the text.
    """
    recorded = at(row, "extra", "actions")
    if isinstance(recorded, list):
        ids = [call.id for call in calls_of(row)]
        take(row, "extra", "actions")
        return tuple(
            MessageCall(
                take_text(action, "tool_call_id") or (ids[n] if n < len(ids) else f"action-{place}-{n}"),
                SHELL,
                json_text(action),
            )
            for n, action in enumerate(recorded)
        )
    blocks = _FENCE.findall(output_of(row))
    if len(blocks) != 1:
        return ()
    return (MessageCall(f"action-{place}", SHELL, json_text({"command": blocks[0].strip()})),)


def code_of(row: JSON) -> int | None:
    """The return code of a result."""
    recorded = at(row, "extra", "returncode")
    if isinstance(recorded, int) and not isinstance(recorded, bool):
        return recorded
    found = _CODE.match(output_of(row))
    return int(found[1]) if found else None


def timed_out(row: JSON) -> bool:
    """Whether a command was killed by its timeout: version 1 says so in words, version 2 names the
    exception.
    """
    return text(row, "extra", "exception_type") == "TimeoutExpired" or bool(_TIMED_OUT.match(output_of(row)))


def is_result(row: JSON) -> bool:
    """Whether a message is what a command gave back."""
    return role_of(row) in ("user", "tool") and (
        role_of(row) == "tool" or code_of(row) is not None or timed_out(row)
    )


def is_rejected(row: JSON) -> bool:
    """Whether a message stands for an answer that the agent could not use, which lies beside it whole."""
    response = at(row, "extra", "response")
    return role_of(row) == "user" and bool(rows(response, "choices") or rows(response, "output"))


def merged(messages: Sequence[Message]) -> Message:
    """One answer of the pieces that a response has."""
    return Message(
        role=Role.ASSISTANT,
        text="\n".join(filter(None, (each.text for each in messages))),
        reasoning="\n".join(filter(None, (each.reasoning for each in messages))),
        calls=tuple(call for each in messages for call in each.calls),
    )


def rejection_of(call: MessageCall) -> ToolError | Refuser:
    """Why a call of a rejected answer did not run: another call of it was wrong, if nothing was wrong with
    this one.
    """
    if call.name != SHELL:
        return ToolError.UNKNOWN_TOOL
    command = at(unwrapped(call.arguments), "command")
    return Refuser.HARNESS if isinstance(command, str) else ToolError.BAD_ARGUMENTS


def counted(row: JSON) -> Counted:
    """As what a message that is no answer counts: by its role, with a code or a timeout as a result."""
    role, result = role_of(row), is_result(row)
    return Counted(
        user=int(role == "user"),
        tool=int(role == "tool"),
        results=int(result),
        errors=int(result and bool(failed_of(row))),
    )


def failed_of(row: JSON) -> ToolError | bool | None:
    """Whether a command failed, or how, by its timeout or its code; None: it has neither."""
    if timed_out(row):
        return ToolError.TIMEOUT
    return None if (code := code_of(row)) is None else code != 0


def take_moment(row: JSON) -> int | None:
    """When: version 2's own time, else when the provider says that it answered."""
    return take_time(row, *_clock_path(row))


def _clock_path(row: JSON) -> tuple[str, ...]:
    own = at(row, "extra", "timestamp") is not None
    return ("extra", "timestamp") if own else ("extra", "response", "created")


def usage_path(row: JSON) -> tuple[str, ...]:
    """Where the provider's count of the tokens of an answer stands."""
    return ("usage",) if at(row, "extra", "response", "usage") is None else ("extra", "response", "usage")


def left_of(row: JSON) -> str:
    """JSON text of what is left of a message beside its role, which its item says."""
    take_if(row, "role", role_of(row))
    take_if(row, "type", "function_call_output")
    take_if(row, "object", "response")
    return rest(row)


def times_of(messages: Sequence[JSON]) -> tuple[str, str] | None:
    """The first and the last time of a message list."""
    return Times(
        _written(seconds)
        for row in messages
        if isinstance(seconds := at(row, *_clock_path(row)), int | float)
    ).edges()


def _written(seconds: float) -> str | None:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    except (OverflowError, OSError, ValueError):
        return None


CUT_SHORT = (StopReason.MAX_TOKENS, StopReason.CONTENT_FILTER)
"""Stop reasons that say more of an answer than whether there is a command in it."""


class MiniSweAgent(msgspec.Struct, frozen=True):
    """The importer of `.traj.json` files."""

    name: str = "mini_swe_agent"

    def match(self, source: Source) -> FormatMatch | None:
        """Its own name in the document, or a bare message list whose answers are one fenced command."""
        found = beginning(source)
        if text(found, "trajectory_format").startswith("mini-swe-agent") or text(
            found, "info", "mini_version"
        ):
            return FormatMatch(98, "names its format mini-swe-agent")
        answered = any(text(row, "role") == "assistant" for row in rows(found))
        if answered and any(text(row, "content").startswith("<returncode>") for row in rows(found)):
            return FormatMatch(85, "a message list with return codes")
        if {"info", "messages"} <= table(found).keys() and "model_stats" in table(found, "info"):
            return FormatMatch(85, "messages, and info with model_stats")
        if {"agent", "model", "environment"} <= table(found, "info", "config").keys():
            return FormatMatch(80, "info with the configuration of an agent, a model and an environment")
        if any({"response", "actions"} & table(row, "extra").keys() for row in rows(found, "messages")):
            return FormatMatch(80, "messages whose answers carry extra.response or extra.actions")
        return None

    def items(self, source: Source) -> Iterator[Item]:
        """The one run of the file."""
        found = document(source, ("messages",), ())
        doc = found.value
        messages = rows(doc) if isinstance(doc, list) else rows(doc, "messages")
        if not messages:
            raise BadTranscript(source.name, "$.messages", "no messages")
        place = "$" if isinstance(doc, list) else "$.messages"
        rejected = sum(map(is_rejected, messages))
        begin = [*map(_is_answer, messages), True].index(True)
        times, counts = times_of(messages), add_counts(map(counted, messages[:begin]))
        given = ((Role(role_of(row)), take_words(row, "content")) for row in messages[:begin])
        labels = {"instance": text(doc, "instance_id"), "version": text(doc, "info", "mini_version")}
        yield RunBegan(
            position=f"{place}[0:{begin}]",
            at=take_moment(messages[0]),
            key=text(doc, "instance_id") or "trajectory",
            messages=tuple(Message(role=role, text=said) for role, said in given),
            model=text(doc, "info", "config", "model", "model_name"),
            agent="mini-swe-agent",
            labels=labels_of(labels),
            rest=rest(left(doc, "messages", "info")),
            counts=counts,
            unsaid=("cache_write_tokens",),
            cuts=rejected,
        )
        yield from _conversation(messages, begin, place)
        yield from found.cut()
        last = Place("$.info" if isinstance(doc, dict) else f"$[{len(messages) - 1}]")
        yield last.end(end_of(doc), times, rest=rest(at(doc, "info")))


def _is_answer(row: JSON) -> bool:
    """Whether a message is an answer or stands for one, or comes behind one."""
    return is_rejected(row) or role_of(row) not in ("system", "user")


MINI_SWE_AGENT = MiniSweAgent()

ENDS = {"Submitted": "finished", "TimeExceeded": "limit:time", "UserInterruption": "cancelled"}
"""Exit statuses that say how it ended. Any other is what went wrong: mostly the name of an exception's class.
"""


def end_of(doc: JSON) -> tuple[str, str]:
    """How a run ended, and where that stands.

    `LimitsExceeded` names no limit: it was steps if those were used up.
    """
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
    for index in range(begin):
        if unsaid := left_of(messages[index]):
            known = is_known(messages[index])
            yield Place(f"{position}[{index}]").remark("unmapped", rest=unsaid, known=known)
    for index in range(begin, len(messages)):
        row = messages[index]
        role, whole = role_of(row), rest(row) if role_of(row) == "exit" else ""
        counts = None if role == "assistant" else counted(row)
        place = Place(f"{position}[{index}]", take_moment(row), counts, index + 1)
        if is_rejected(row):
            waiting = []
            yield from _rejected(row, place)
        elif role == "assistant":
            beside = [part for part in rows(row, "content") if at(part, "type") != "text"]
            waiting = list(take_asked(row, index))
            yield _answered(row, place, waiting)
            yield from place.hosted_calls(beside)
        elif role == "exit":
            if waiting and text(row, "extra", "exit_status") == "Submitted":
                yield _returned(row, place, waiting)
            yield place.remark("exit", rest=whole)
        elif waiting and (is_result(row) or index == len(messages) - 1):
            # What a submitting command gave back has no code around it: it is the last message, as it is.
            yield _returned(row, place, waiting)
        else:
            yield from _said(row, place)


def _said(row: JSON, place: Place) -> Iterator[Item]:
    role = Role.SYSTEM if role_of(row) == "system" else Role.USER
    if not is_known(row):
        yield from place.unknown_calls(row)
    elif is_result(row):
        yield place.oddity(CALL_UNREAD, "what a command gave back, behind an answer in which none is read")
    yield place.message(take_words(row, "content"), "harness", role=role, rest=left_of(row))


def _answered(row: JSON, place: Place, calls: Sequence[MessageCall]) -> Item:
    # Version 1 kept the whole answer of the provider beside the text that it took out of it.
    raw = at(row, "extra", "response")
    choice, cost = at(raw, "choices", 0), take_cost(row, "extra", "cost")
    take_if(at(choice, "message"), "content", at(row, "content"))
    thought = take_text(choice, "message", "reasoning") or take_text(choice, "message", "reasoning_content")
    said = Message(role=Role.ASSISTANT, text=take_output(row), reasoning=thought, calls=tuple(calls))
    used = usage_path(row)
    answer = place.reply(
        said,
        cost=cost if cost is not None else take_cost(row, *used, "cost"),
        usage=CHAT_TOKENS.take(row, *used),
        stop=take_text(choice, "finish_reason"),
        model=take_text(raw, "model"),
        response=take_text(raw, "id"),
        rest=left_of(row),
    )
    # `stop` is what a text with a command in it ends with: of the provider's words only a cut tells more.
    return answer if answer.stop in CUT_SHORT else msgspec.structs.replace(answer, stop=None)


def _rejected(row: JSON, place: Place) -> Iterator[Item]:
    """An answer that the agent could not use, and what it told the model instead: the answer itself is never
    sent back.
    """
    cost = take_cost(row, "extra", "cost")
    model, id_ = take_text(row, "extra", "response", "model"), take_text(row, "extra", "response", "id")
    used = CHAT_TOKENS.take(row, *usage_path(row))
    read = take_messages(row, "extra", "response", role=Role.ASSISTANT)
    said = merged(read.messages)
    yield place.with_counts(None).reply(said, used, stop=read.stop, cost=cost, model=model, response=id_)
    for call in said.calls:
        result = Counted(results=1, errors=1)
        yield place.with_counts(result).result(call.id, "", name=call.name, failed=rejection_of(call))
    yield Cut(*place.with_counts(UNCOUNTED).common(), why="rejected", head=((BEGINNING, place.row - 1),))
    yield place.message(take_words(row, "content"), "harness", rest=left_of(row))


def _returned(row: JSON, place: Place, waiting: list[MessageCall]) -> Item:
    named = text(row, "tool_call_id") or text(row, "call_id")
    call = next((call for call in waiting if call.id == named), waiting[0])
    waiting.remove(call)
    take_if(row, "tool_call_id", call.id)
    take_if(row, "call_id", call.id)
    failed, output = failed_of(row), take_output(row)
    return place.result(call.id, output, name=call.name, failed=failed, rest=left_of(row))
