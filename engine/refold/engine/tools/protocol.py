"""The tool interface, and tools that return recorded results."""

from collections.abc import Awaitable, Callable, Iterable, Mapping

import anyio
import anyio.lowlevel
import msgspec

from refold.reducers.errors import MissingFact, WrongUse
from refold.reducers.events import Manifest, ToolReturned
from refold.reducers.vocabulary import Replay, ToolError, Unknown


class CallContext(msgspec.Struct, frozen=True, kw_only=True):
    """The context of a call, for its tool.

    `key` is the idempotency key: equal for every attempt at this call, different for every other call.
    `epoch` is the fencing token of the engine's lease. It grows with each engine that leases the run, so a
    request with an older one comes from a replaced engine. It is 0 without a lease, as in a unit test.
    """

    run: str
    call: str
    key: str
    epoch: int = 0


class Happened(msgspec.Struct, frozen=True):
    """The call had its effect. `output` is its result; None if the result is lost."""

    output: object = None
    note: str = ""


class DidNot(msgspec.Struct, frozen=True):
    """The call had no effect so far.

    It runs again only if this is `final`: the promise that no earlier attempt can have an effect from now on,
    whether a suspended engine, a thread, a child process or a request on the network. Usually the target
    system remembers the newest `epoch` of a call and refuses older ones. Without `final`, the call's outcome
    stays unknown, and `note` is recorded for the operator.
    """

    note: str = ""
    final: bool = False


class CannotTell(msgspec.Struct, frozen=True):
    """The outcome stays unknown. The policy's rule for calls in doubt applies."""

    note: str = ""


Reconciled = Happened | DidNot | CannotTell
"""The result of `reconcile` for a call whose outcome is unknown. `note` is the evidence; it is recorded."""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool: its manifest, and the function that runs it.

    `run(arguments, context)` gets the arguments as JSON text, checked to be a JSON object, and returns the
    output as text, or a recorded result. It raises `BadArguments` if the arguments do not fit the schema; any
    other exception is a failure of the tool and is reported to the model. `manifest` is recorded in each run
    that offers the tool. `redact` is applied to the output and to error messages before anything is recorded.

    Tools with the replay class `reconcilable`, and only those, have `reconcile(arguments, context)`, which
    returns the outcome of a call whose outcome is unknown; its output is text. It must have no effects,
    because it may be called again. An exception or a timeout means `CannotTell`.
    """

    manifest: Manifest
    run: Callable[[str, CallContext], Awaitable[str | ToolReturned]]
    redact: Callable[[str], str] | None = None
    reconcile: Callable[[str, CallContext], Awaitable[Reconciled]] | None = None

    def __post_init__(self) -> None:
        """Raise `WrongUse` if a reconcilable tool has no `reconcile`, or another tool has one."""
        replay = self.manifest.replay
        if (replay is Replay.RECONCILABLE) != (self.reconcile is not None):
            has = "has no reconcile" if self.reconcile is None else f"is {replay} and has a reconcile"
            raise WrongUse(
                f"tool {self.name}: {has}: give both replay='reconcilable' and reconcile=, or neither"
            )

    @property
    def name(self) -> str:
        """The name by which models call the tool."""
        return self.manifest.name


class BadArguments(Exception):
    """The model's arguments do not fit the tool's schema; the message names the place."""


class RecordedTools:
    """The tools of a recorded run. Calls return recorded results, by call id and equal arguments.

    `asked` has the arguments by call id, `results` the facts. Any other call raises `MissingFact`.
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
        """Wait forever: the recorded outcome is read from the log's `doubt_resolved`."""
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
            await anyio.sleep_forever()  # it is interrupted again, as recorded
        if fact.content is None:
            raise MissingFact(self._run, f"the payload of the result of call {context.call} was erased")
        return fact
