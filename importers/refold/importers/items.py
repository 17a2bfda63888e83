"""Format-independent items that importers yield from a transcript, in source order.

An importer reads one format and yields items. `Derivation` turns them into facts, run by run, and derives the
decisions. So importers do not depend on the state machine, and the state machine does not depend on formats.

Items keep the order of the source: `RunBegan`, then the events of the run, then `RunEnded`. Each item has a
`position` in the source and a time (`at`, integer nanoseconds since the Unix epoch, None if not recorded).
Positions are meant for an investigator: `line 12`, `lines 12-15` for line-based files; `$.messages[3]` for a
JSON document; `samples/1_epoch_1.json $.events[7]` inside an archive. Together they cover the source.
"""

from collections.abc import Iterator
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from refold.importers.content import TOOLS, find_call_mark, stop_of
from refold.importers.fields import JSON, json_text
from refold.reducers.events import Manifest
from refold.reducers.failures import classify
from refold.reducers.messages import Message, MessageCall, Usage
from refold.reducers.source_marks import CALL_UNREAD, HOSTED, SUBAGENT_ROWS
from refold.reducers.vocabulary import FailureClass, Refuser, Role, StopReason, ToolError

Quality = Literal["reported", "partial", "estimated", ""]
"""Quality of the source's usage: the provider's own numbers, a lower bound, an estimate, or not recorded."""

Tokens = tuple[int | None, int | None, int | None, int | None]
"""Input, cache read, cache write, and output tokens; None if not recorded."""


class Counted(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Counts of an item: messages by role, calls, results, failed calls, and the tokens of a request.

    `beside`: messages to the model in rows that the rule of their format does not count.
    """

    user: int = 0
    assistant: int = 0
    tool: int = 0
    calls: int = 0
    results: int = 0
    errors: int = 0
    beside: int = 0
    usage: Usage | None = None


UNCOUNTED = Counted()


NO_ROW = -1
"""Row number of an item whose row is unknown."""


class Item(msgspec.Struct, frozen=True, gc=False):
    """Base of all items. `rest` is JSON text of the source fields that have no field in the item.

    `counts` is set only if the rule of the format counts the item differently from its type. `row` is the
    number of the item's row in the source (the first, if it has several); a `Cut` selects items by it.
    """

    position: str
    at: int | None = None
    rest: str = ""
    counts: Counted | None = None
    row: int = NO_ROW


class RunBegan(Item, frozen=True, kw_only=True):
    """The start of a run. `key` identifies it within the source (a session id, a sample, a task).

    `messages` are the model's initial messages, in order: system prompt, earlier messages, and the task if it
    is already known. Later messages are `Said`. Results among them have `call`, the id of a call among them.
    `unsaid`: names of `RunCounts` fields that this source does not record. `parent` and `call` are set for a
    subagent: the key of an earlier run, and the provider's id of the call that started this one. A run with
    `parent` is not counted as a separate run. `cuts` is the maximum number of `Cut` and `Forked` items that
    may follow, None if unknown: messages are kept in memory for them.
    """

    key: str
    parent: str = ""
    call: str = ""
    messages: tuple[Message, ...] = ()
    model: str = ""
    agent: str = ""
    tools: tuple[Manifest, ...] = ()
    settings: dict[str, str] = {}
    labels: dict[str, str] = {}
    unsaid: tuple[str, ...] = ()
    cuts: int | None = 0


class Said(Item, frozen=True, kw_only=True):
    """A message in the conversation that is neither a response nor a result, usually from a user.

    `by`: `user`, or another author (`harness`, `hook`, …).
    """

    text: str
    role: Role = Role.USER
    by: str = "user"


class Prompted(Item, frozen=True, kw_only=True):
    """The exact messages of the next request, including the system prompt, if the source records them."""

    messages: tuple[Message, ...]
    why: str = "prompt"


class Answered(Item, frozen=True, kw_only=True):
    """A response of the model: one item per provider response, even if it has several rows in the source.

    `duration` is in nanoseconds; `cost_nanousd` is None if not recorded. If `stop` is None (not recorded), it
    is derived from whether there are calls.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[MessageCall, ...] = ()
    stop: StopReason | None = None
    stop_raw: str = ""
    usage: Usage = Usage()
    quality: Quality = ""
    cost_nanousd: int | None = None
    model: str = ""
    response_id: str = ""
    duration: int = 0


class Returned(Item, frozen=True, kw_only=True):
    """The result of a call. An empty `id` (none in the source) means the next call without a result.

    `output` is what the model received. `marked`: the source records whether the call failed in a separate
    field, not only in the text for the model; only then is `error` set. `refused_by`: the harness refused the
    call, so it did not run and has no `error`. `began` is the key of the run that the call started, as named
    in that run's own file; "" for none.
    """

    id: str
    output: str
    name: str = ""
    marked: bool = False
    error: ToolError | None = None
    refused_by: Refuser | None = None
    duration: int = 0
    began: str = ""


class RequestFailed(Item, frozen=True, kw_only=True):
    """A failed request to the model. Later items show whether the source retried it."""

    failure: FailureClass
    message: str = ""
    partial_text: str = ""
    status: int | None = None


class Cancelled(Item, frozen=True, kw_only=True):
    """A user interrupted the run. It ends the run only if nothing follows."""

    by: str = "user"
    reason: str = ""


class Remarked(Item, frozen=True, kw_only=True):
    """A source record that is not a fact in a log. It is kept as an annotation beside the log.

    `what` is one word, or a word and a kind: `compaction`, `trim`, `limit:steps`, `guardrail`, `hook`,
    `approval`, `retry`, `subagent`, `unmapped`, …; `rest` has the complete record. `rows`: the number of
    source rows it covers. `known`: the format is known to have such rows.
    """

    what: str
    rows: int = 1
    known: bool = True


UNKNOWN_PART = "unknown_part"
"""Code for parts of a message that are unknown in its format and could not be read."""


class Unread(Item, frozen=True, kw_only=True):
    """Something that could not be read or trusted, and why. `code` is a stable identifier.

    `rest` has the source text, as far as it may be kept. `read`: everything was read, but something in it is
    suspicious.
    """

    code: str
    problem: str
    read: bool = False


class RunEnded(Item, frozen=True, kw_only=True):
    """The end of a run in the source.

    `end` is `finished`, `limit:KIND`, `cancelled`, `guardrail`, `error`, `open` (the record stops in the
    middle) or `unknown`. `end_source` describes in a few words where the end is recorded. `counts` are totals
    that the source itself lists at its end; they replace the counts of the items. `times` are the first and
    last timestamp, as written in the source. `used` are the source's token totals for the run; they replace
    the sums over its responses. `requests` and `asked` are the number of requests and of calls according to
    the source. They are only compared with the log, not displayed.
    """

    end: str
    end_source: str
    times: tuple[str, str] | None = None
    used: Tokens | None = None
    requests: int | None = None
    asked: int | None = None


def message_of(item: Said | Answered | Returned) -> Message:
    """Return the message that an item adds to the conversation. Calls and results have the provider's ids."""
    match item:
        case Answered(text=text, reasoning=reasoning, calls=calls):
            return Message(role=Role.ASSISTANT, text=text, reasoning=reasoning, calls=calls)
        case Returned(output=output, id=call, name=name):
            return Message(role=Role.TOOL, text=output, call=call, name=name)
        case Said(text=text, role=role):
            return Message(role=role, text=text)


class Place(msgspec.Struct, frozen=True, gc=False):
    """A position and a time in a source, with methods that create items.

    Each method takes data without a field in the item as `rest` (JSON text) or as `value` (encoded here).
    `counts` is as in `Item`.
    """

    position: str
    at: int | None = None
    counts: Counted | None = None
    row: int = NO_ROW

    def with_counts(self, counts: Counted | None) -> "Place":
        """Return the place with counts for its items."""
        return Place(self.position, self.at, counts, self.row)

    def common(self, rest: str = "") -> tuple[str, int | None, str, Counted | None, int]:
        """Return the leading fields that all items share."""
        return self.position, self.at, rest, self.counts, self.row

    def message(self, text: str, by: str = "user", *, role: Role = Role.USER, rest: str = "") -> Said:
        """Return a message by a user, or by a harness that adds messages."""
        return Said(*self.common(rest), text=text, role=role, by=by)

    def reply(
        self,
        message: Message,
        usage: Usage | None = None,
        *,
        stop: str = "",
        quality: Quality = "reported",
        cost: int | None = None,
        model: str = "",
        response: str = "",
        duration: int = 0,
        rest: str = "",
    ) -> Answered:
        """Return a response of the model; `stop` is the provider's word for the stop reason.

        Usage None: the source has none.
        """
        return Answered(
            *self.common(rest),
            text=message.text,
            reasoning=message.reasoning,
            calls=message.calls,
            stop=stop_of(stop),
            stop_raw=stop,
            usage=usage or Usage(),
            quality=quality if usage is not None else "",
            cost_nanousd=cost,
            model=model,
            response_id=response,
            duration=duration,
        )

    def result(
        self,
        call: str | None,
        output: str,
        *,
        name: str | None = "",
        failed: ToolError | Refuser | bool | None = None,
        duration: int = 0,
        began: str = "",
        rest: str = "",
    ) -> Returned:
        """Return the result of a call. `failed` is the error, or whether there was one; None if not recorded.

        The text for the model does not count as a record. Pass a `Refuser` for a call that its harness
        refused, and that did not run.
        """
        tool, id_ = name or "", call or ""
        error = ToolError.RAISED if failed is True else failed if isinstance(failed, ToolError) else None
        return Returned(
            *self.common(rest),
            id=id_,
            output=output,
            name=tool,
            marked=failed is not None,
            error=error,
            refused_by=failed if isinstance(failed, Refuser) else None,
            duration=duration,
            began=began,
        )

    def failure(
        self,
        message: str,
        failure: FailureClass | None = None,
        *,
        partial: str = "",
        status: int | None = None,
        rest: str = "",
    ) -> RequestFailed:
        """Return a failed request. Without `failure`, the class follows from status and message."""
        failure = failure or classify(status, message)
        return RequestFailed(
            *self.common(rest), failure=failure, message=message, partial_text=partial, status=status
        )

    def cancellation(self, reason: str = "", *, by: str = "user", rest: str = "") -> Cancelled:
        """Return the interruption of the run by a user."""
        return Cancelled(*self.common(rest), by=by, reason=reason)

    def prompt(self, messages: tuple[Message, ...], why: str = "prompt", rest: str = "") -> Prompted:
        """Return the prompt of the next response, as recorded by the source."""
        return Prompted(*self.common(rest), messages=messages, why=why)

    def remark(
        self, what: str, value: JSON | UnsetType = UNSET, *, rest: str = "", rows: int = 1, known: bool = True
    ) -> Remarked:
        """Return a record that is not an event of the run."""
        rest = rest if value is UNSET else json_text(value)
        return Remarked(*self.common(rest), what=what, rows=rows, known=known)

    def hosted_calls(self, content: JSON) -> Iterator[Item]:
        """Yield a remark if the content of a response, beside its calls, may hold a provider-hosted call."""
        if kind := find_call_mark(content):
            yield Place(self.position, self.at).remark(HOSTED, {"kind": kind})

    def unknown_calls(self, row: JSON) -> Iterator["Unread"]:
        """Yield a warning if a row of an unknown kind may hold a call."""
        if kind := find_call_mark(row):
            yield self.oddity(CALL_UNREAD, f"unknown kind, and may hold a call ({kind[:40]})")

    def subagent_calls(self, shown: JSON) -> Iterator["Unread"]:
        """Yield a warning if data displayed beside a result holds calls of a subagent."""
        if kind := find_call_mark(shown, TOOLS):
            problem = (
                f"calls of a subagent are recorded only beside a result ({kind[:40]}), and are not imported"
            )
            yield self.oddity(SUBAGENT_ROWS, problem)

    def problem(self, code: str, problem: str, value: JSON | UnsetType = UNSET, *, rest: str = "") -> Unread:
        """Return a report of something that could not be read."""
        rest = rest if value is UNSET else json_text(value)
        return Unread(self.position, self.at, rest, code=code, problem=problem)

    def oddity(self, code: str, problem: str) -> Unread:
        """Return a report of something that was read but is suspicious."""
        return Unread(self.position, self.at, code=code, problem=problem, read=True)

    def end(
        self,
        end: tuple[str, str],
        times: tuple[str, str] | None = None,
        used: Tokens | None = None,
        *,
        requests: int | None = None,
        asked: int | None = None,
        rest: str = "",
    ) -> RunEnded:
        """Return the end of the run; `end` is the kind of end and where it is recorded."""
        how, end_source = end
        return RunEnded(
            *self.common(rest),
            end=how,
            end_source=end_source,
            times=times,
            used=used,
            requests=requests,
            asked=asked,
        )
