"""What a tool is to the engine, and tools that answer from a log."""

from collections.abc import Awaitable, Callable, Iterable, Mapping

import anyio
import anyio.lowlevel
import msgspec

from refold.reducers.errors import MissingFact, WrongUse
from refold.reducers.events import Manifest, ToolReturned
from refold.reducers.vocabulary import Replay, ToolError, Unknown


class CallContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool may know of the call it serves.

    `key` is the idempotency key: equal for every attempt at this call, different for every other call.
    `epoch` is the fencing token of the engine's lease: it grows with each engine that has the run in its
    store, so what comes under an older one comes from an engine that was replaced. 0 where there is no lease,
    as in a unit test.
    """

    run: str
    call: str
    key: str
    epoch: int = 0


class Happened(msgspec.Struct, frozen=True):
    """The call had its effect. `output` is what it would have returned; None if that is lost."""

    output: object = None
    note: str = ""


class DidNot(msgspec.Struct, frozen=True):
    """The call had no effect so far.

    It is run again only where this is `final`. With that you promise that no earlier attempt can have an
    effect from now on, whatever of it is left: an engine that was suspended, a thread, a child process, a
    request on the network. The usual way to keep the promise is a system that remembers the newest `epoch` of
    a call and refuses older ones. Without it the call stays in doubt, and `note` is recorded for whoever
    resolves it.
    """

    note: str = ""
    final: bool = False


class CannotTell(msgspec.Struct, frozen=True):
    """The tool cannot tell. What the policy says of calls in doubt follows."""

    note: str = ""


Reconciled = Happened | DidNot | CannotTell
"""What a tool says of a call whose end is unknown. `note` says how it knows, and is recorded."""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool: what is offered of it, and the function that runs it.

    `run(arguments, context)` gets the arguments as JSON text, known to be a JSON object, and returns the
    output as text, or the result as it was recorded of an earlier call. It raises `BadArguments` if they do
    not fit the schema; any other exception is the tool's own failure and is told to the model. `manifest` is
    what is recorded of it with each run that is offered it. `redact` is applied to the output, and to the
    message of a failure, before anything is recorded.

    `reconcile(arguments, context)`, which a tool has if its replay class is `reconcilable` and only then,
    says what became of a call whose end is unknown; an output that it gives is text. It does nothing of what
    the call does, for it may be asked again. One that raises, or takes too long, does not know.
    """

    manifest: Manifest
    run: Callable[[str, CallContext], Awaitable[str | ToolReturned]]
    redact: Callable[[str], str] | None = None
    reconcile: Callable[[str, CallContext], Awaitable[Reconciled]] | None = None

    def __post_init__(self) -> None:
        """Raises `WrongUse` where the replay class promises a `reconcile` that is not there, or the
        reverse.
        """
        replay = self.manifest.replay
        if (replay is Replay.RECONCILABLE) != (self.reconcile is not None):
            has = "has no reconcile" if self.reconcile is None else f"is {replay} and has a reconcile"
            raise WrongUse(
                f"tool {self.name}: {has}: a tool is replay='reconcilable' together with a function reconcile=, or neither"
            )

    @property
    def name(self) -> str:
        """The name under which models call the tool."""
        return self.manifest.name


class BadArguments(Exception):
    """The model's arguments do not fit the tool's schema; the message says where."""


class RecordedTools:
    """The tools of a recorded run. Each call answers by its id, if its arguments are the recorded ones.

    `asked` has the arguments by call id, `results` the facts. Anything else raises `MissingFact`.
    """

    def __init__(
        self,
        run: str,
        manifest: Iterable[Manifest],
        asked: Mapping[str, str],
        results: Mapping[str, ToolReturned],
    ) -> None:
        self._run, self._asked, self._results = run, asked, results
        self.tools = tuple(self._tool(entry) for entry in manifest)

    def _tool(self, entry: Manifest) -> Tool:
        return Tool(
            manifest=entry,
            run=self._answer,
            reconcile=self._recall if entry.replay is Replay.RECONCILABLE else None,
        )

    async def _recall(self, arguments: str, context: CallContext) -> Reconciled:  # noqa: ARG002
        """Says nothing: what the tool said then stands in the log as `doubt_resolved`, and comes from
        there.
        """
        await anyio.sleep_forever()
        raise AssertionError("unreachable")

    async def _answer(self, arguments: str, context: CallContext) -> ToolReturned:
        await anyio.lowlevel.checkpoint()
        fact = self._results.get(context.call)
        if (
            fact is None
            or Unknown.RESULT in fact.unknown
            or (self._asked.get(context.call) or "{}") != arguments
        ):
            raise MissingFact(self._run, f"no recorded result of call {context.call} with these arguments")
        if fact.error in (ToolError.CANCELLED, ToolError.IN_DOUBT):
            await anyio.sleep_forever()  # it is cut off again, as it was then
        if fact.content is None:
            raise MissingFact(self._run, f"the content of the result of call {context.call} was erased")
        return fact
