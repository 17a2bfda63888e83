"""Tools that answer from a log: what a call returned then is returned again now; nothing is run."""

from collections.abc import Iterable, Mapping

import anyio
import anyio.lowlevel

from refold.engine.tools.protocol import CallContext, Reconciled, Tool
from refold.reducers.errors import MissingFact
from refold.reducers.events import Manifest, ToolReturned
from refold.reducers.vocabulary import Replay, ToolError, Unknown


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
        """Says nothing: what the tool said then stands in the log as `doubt_resolved`, and comes from there."""
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
