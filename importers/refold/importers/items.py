"""What an importer says of a transcript, in its order: small values that no format shines through.

An importer reads one format and yields these. `deriving` makes facts of them, one run after the other, and
derives the decisions; so no importer knows how the machine moves, and the machine knows no format.

The order is the source's own, within and between runs: `RunBegan`, then what happened, then `RunEnded`. Each
item says where it stood (`position`), and when (`at`, integer nanoseconds since the Unix epoch, None where
the source says nothing). Positions are what an investigator opens: `line 12`, `lines 12-15` of lines;
`$.messages[3]` of a JSON document; `samples/1_epoch_1.json $.events[7]` inside an archive. Together they
cover the source.
"""

from collections.abc import Iterator
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from refold.importers.content import TOOLS, calling, stop_of
from refold.importers.fields import JSON, json_text
from refold.reducers.events import Manifest
from refold.reducers.failures import classify
from refold.reducers.messages import Message, MessageCall, Usage
from refold.reducers.source_marks import CALL_UNREAD, HOSTED, SUBAGENT_ROWS
from refold.reducers.vocabulary import FailureClass, Refuser, Role, StopReason, ToolError

Quality = Literal["reported", "partial", "estimated", ""]
"""How good the source's usage is: the provider's own numbers, a lower bound, a guess, or nothing said."""

Tokens = tuple[int | None, int | None, int | None, int | None]
"""Input, read from the cache, written to it, output; None where the source does not say."""


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
"""Where nothing names the row in which an item stood."""


class Item(msgspec.Struct, frozen=True, gc=False):
    """Base of all items. `rest` is JSON text of the fields that the item has no place for.

    `counts` only where the rule of its format counts it as something else than what it is. `row` is the
    number of the row in which it stood, the first of several: by it a `Cut` names what stays.
    """

    position: str
    at: int | None = None
    rest: str = ""
    counts: Counted | None = None
    row: int = NO_ROW


class RunBegan(Item, frozen=True, kw_only=True):
    """A run begins. `key` names it within the source (a session id, a sample, a task; unique there).

    `messages` are what the model was given to begin with, in order: system prompt, earlier messages, and the
    task where it is known already; what comes later is `Said`. Results in them have `call`, naming a call in
    them. `unsaid`: what is counted of a run (names of `RunCounts`) and of which this source says nothing.
    `parent` is the key of the run, told before this one, of which the call with the provider's id `call`
    began it: then it is no run of the source's own, and is not counted as one. `cuts` is how many `Cut` and
    `Forked` come at most, None if nobody knows: what was said is held for them.
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
    """A message that joined the conversation and is no answer of the model and no result: a person's, mostly.

    `by`: `user`, or who else put it there (`harness`, `hook`, …).
    """

    text: str
    role: Role = Role.USER
    by: str = "user"


class Prompted(Item, frozen=True, kw_only=True):
    """The exact messages of the next request, system prompt included, where the source has them."""

    messages: tuple[Message, ...]
    why: str = "prompt"


class Answered(Item, frozen=True, kw_only=True):
    """The model answered: one item a response of the provider, however many rows it has in the source.

    `duration` in nanoseconds; `cost_nanousd` None where the source says nothing. `stop` None: the source says
    nothing; then it follows from whether there are calls.
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
    """A call ended. An `id` of "" (the source has none) means the next call without a result.

    `output` is what the model was shown. `marked`: the source says whether the call failed, by more than
    words that it shows the model; else nobody knows. `error` only where it says so. `refused_by`: the call
    did not run, because its own harness refused it; then it has no `error`. `began` is the key of the run
    that the call began, as the file that has that run names it, "" for none.
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
    """A request to the model failed; whether the source tried again shows in what follows."""

    failure: FailureClass
    message: str = ""
    partial_text: str = ""
    status: int | None = None


class Cancelled(Item, frozen=True, kw_only=True):
    """A person stopped what was going on. It ends the run only if nothing follows."""

    by: str = "user"
    reason: str = ""


class Remarked(Item, frozen=True, kw_only=True):
    """Something that the source recorded and that is no fact of ours: kept, and shown beside the log.

    `what` is one word, or a word and a kind: `compaction`, `trim`, `limit:steps`, `guardrail`, `hook`,
    `approval`, `retry`, `subagent`, `unmapped`, …; `rest` has it whole. `rows`: how many rows of the source
    it stands for; `known`: they are such as this format is known to have.
    """

    what: str
    rows: int = 1
    known: bool = True


UNKNOWN_PART = "unknown_part"
"""The code of what could not be read of a message: parts that are none of its format."""


class Unread(Item, frozen=True, kw_only=True):
    """Something that could not be read, or not be trusted: a line, and why. `code` is a stable word.

    `rest` has what stood there, as far as it may be kept. `read`: all that stands there was read, and
    something of it is odd.
    """

    code: str
    problem: str
    read: bool = False


class RunEnded(Item, frozen=True, kw_only=True):
    """No more of this run in the source. `end` is `finished`, `limit:KIND`, `cancelled`, `guardrail`,
    `error`, `open` (the record stops in the middle) or `unknown`; `end_source` says in a few words where that
    stands.

    `counts` are what the source itself lists at its end, and hold instead of what the items before it count.
    `times` are the first and the last in its rows, in the source's own words. `used`: the tokens of the whole
    run as the source itself sums them up, which hold instead of those of its answers. `requests` and `asked`:
    how many requests, and calls, the run itself has by its source, for its log to be held against; nobody is
    told them.
    """

    end: str
    end_source: str
    times: tuple[str, str] | None = None
    used: Tokens | None = None
    requests: int | None = None
    asked: int | None = None


def message_of(item: Said | Answered | Returned) -> Message:
    """What joins the conversation with an item, its calls and results by the provider's own ids."""
    match item:
        case Answered(text=text, reasoning=reasoning, calls=calls):
            return Message(role=Role.ASSISTANT, text=text, reasoning=reasoning, calls=calls)
        case Returned(output=output, id=call, name=name):
            return Message(role=Role.TOOL, text=output, call=call, name=name)
        case Said(text=text, role=role):
            return Message(role=role, text=text)


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where something stands in a source, and when it was. Its methods make the items.

    Each takes what has no field in the item: `rest`, JSON text, or `value`, which is encoded. `counts` as in
    `Item`.
    """

    position: str
    at: int | None = None
    counts: Counted | None = None
    row: int = NO_ROW

    def with_counts(self, counts: Counted | None) -> "Place":
        """Return the place with what its items count."""
        return Place(self.position, self.at, counts, self.row)

    def common(self, rest: str = "") -> tuple[str, int | None, str, Counted | None, int]:
        """What every item begins with."""
        return self.position, self.at, rest, self.counts, self.row

    def message(self, text: str, by: str = "user", *, role: Role = Role.USER, rest: str = "") -> Said:
        """Return a message of a user, or of a harness that puts words in."""
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
        """The model answered this; `stop` is the provider's word for why it stopped.

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
        """A call ended. `failed`: whether it failed, or how, by what the source says beside its words; None:
        it does not say.

        A `Refuser` for a call that did not run, because its own harness refused it.
        """
        named, called = name or "", call or ""
        error = ToolError.RAISED if failed is True else failed if isinstance(failed, ToolError) else None
        return Returned(
            *self.common(rest),
            id=called,
            output=output,
            name=named,
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
        """A request failed; of which class its words say, where nothing better does."""
        failure = failure or classify(status, message)
        return RequestFailed(
            *self.common(rest), failure=failure, message=message, partial_text=partial, status=status
        )

    def cancellation(self, reason: str = "", *, by: str = "user", rest: str = "") -> Cancelled:
        """Return the interruption of the run by a person."""
        return Cancelled(*self.common(rest), by=by, reason=reason)

    def prompt(self, messages: tuple[Message, ...], why: str = "prompt", rest: str = "") -> Prompted:
        """Return the prompt of the next answer, where the source records it."""
        return Prompted(*self.common(rest), messages=messages, why=why)

    def remark(
        self, what: str, value: JSON | UnsetType = UNSET, *, rest: str = "", rows: int = 1, known: bool = True
    ) -> Remarked:
        """Return a record that is no event of the run."""
        rest = rest if value is UNSET else json_text(value)
        return Remarked(*self.common(rest), what=what, rows=rows, known=known)

    def hosted_calls(self, content: JSON) -> Iterator[Item]:
        """An answer there holds this beside what was read of it; nothing, unless it may be a call."""
        if kind := calling(content):
            yield Place(self.position, self.at).remark(HOSTED, {"kind": kind})

    def unknown_calls(self, row: JSON) -> Iterator["Unread"]:
        """Something of an unknown kind stands there; nothing, unless it may hold a call."""
        if kind := calling(row):
            yield self.oddity(CALL_UNREAD, f"of a kind that is not known, and may hold a call ({kind[:40]})")

    def subagent_calls(self, shown: JSON) -> Iterator["Unread"]:
        """What a harness shows beside a result; nothing, unless a subagent's calls stand in it."""
        if kind := calling(shown, TOOLS):
            problem = f"calls of a subagent, in what is shown beside a result ({kind[:40]}): in no run here"
            yield self.oddity(SUBAGENT_ROWS, problem)

    def problem(self, code: str, problem: str, value: JSON | UnsetType = UNSET, *, rest: str = "") -> Unread:
        """Return the report of something that could not be read."""
        rest = rest if value is UNSET else json_text(value)
        return Unread(self.position, self.at, rest, code=code, problem=problem)

    def oddity(self, code: str, problem: str) -> Unread:
        """Return the report of something that was read and is suspicious."""
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
        """The run ends; `end` is the word for how, and what says so."""
        how, says = end
        return RunEnded(
            *self.common(rest),
            end=how,
            end_source=says,
            times=times,
            used=used,
            requests=requests,
            asked=asked,
        )
