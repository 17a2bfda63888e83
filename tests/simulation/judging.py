"""What must hold of a world when nothing goes on in it any more."""

from collections.abc import Iterator, Mapping, Sequence

from refold.reducers import codec
from refold.reducers.effects import idempotency_key
from refold.reducers.events import DoubtResolved, Event, ToolReturned
from refold.reducers.meters import child_run_id
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Doubt, Replay, ToolError
from refold.replay import audit, verify
from refold.store.protocol import Stored
from simulation.world import Execution, World

_ONCE = (Replay.AT_MOST_ONCE, Replay.RECONCILABLE)


class Judge:
    """Reads every log of a world, and says what is wrong with it.

    `doubts` counts the calls that were in doubt.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.doubts = self.events = 0
        self._logs: dict[str, list[Stored]] = {}

    async def judge(self) -> None:
        """Hold every promise against the logs."""
        await self.world.learn()
        for run in self.world.logs:
            await self._read(run)
        for violation in (*self._lost(), *self._repeated(), *self._unfinished()):
            self.world.wrong(violation)

    async def _read(self, run: str) -> None:
        store = self.world.store
        self._logs[run] = [stored async for chunk in store.read(run) for stored in chunk]
        self.events += len(self._logs[run])
        self.doubts += sum(map(_doubtful, self.world.logs[run]))
        verified, audited = await verify(store, run), await audit(store, run)
        if not verified.whole:
            self.world.wrong(f"run {run} does not verify: {verified.problem}")
        if not audited.clean:
            self.world.wrong(f"run {run} does not audit clean: {audited.damaged or audited.findings[:1]}")

    def _lost(self) -> Iterator[str]:
        for run, heads in self.world.kept.items():
            hashes = {stored.seq: stored.hash for stored in self._logs.get(run, ())}
            for seq, head in heads.items():
                if hashes.get(seq) != head:
                    yield f"run {run} event {seq}: an append of it returned, and the log has another, or none"
        for run, committed in self.world.logs.items():
            bodies = [stored.body for stored in self._logs[run]]
            if bodies != [codec.encode(event).body for event in committed]:
                yield f"run {run}: its log is not what was committed"
        for (run, seq), event in self.world.reported.items():
            log = self.world.logs.get(run, [])
            if seq > len(log) or log[seq - 1] != event:
                yield f"run {run} event {seq}: reported as recorded, and the log has another, or none"

    def _repeated(self) -> Iterator[str]:
        keys: dict[str, tuple[str, str]] = {}
        for call, executions in self.world.executions.items():
            for execution in executions:
                if execution.key != idempotency_key(*call) or keys.setdefault(execution.key, call) != call:
                    yield f"call {call}: run under the key {execution.key}, which is not its own"
            replay, tool = executions[0].replay, executions[0].tool
            if replay in _ONCE and len(executions) > 1 + self._denied(*call):
                yield f"call {call}: {tool} was run {len(executions)} times, and nobody said that it had not been"
            # A person may say of a call that it did not happen while somebody who stands still is about to do
            # it.
            if replay in _ONCE and _acted(executions) > 1 + self._denied(*call, by_people=True):
                yield f"call {call}: {tool} acted {_acted(executions)} times"

    def _denied(self, run: str, call: str, *, by_people: bool = False) -> int:
        """How often the log says that the call, in doubt, did not happen: it may be run so often again."""
        return sum(
            isinstance(event, DoubtResolved)
            and event.call == call
            and event.doubt is Doubt.DID_NOT
            and not (by_people and event.reconciled)
            for event in self.world.logs.get(run, ())
        )

    def _unfinished(self) -> Iterator[str]:
        for run, state in self.world.states.items():
            if not settled(state, self.world.states):
                yield f"run {run}: neither ended nor waiting: it is {state.agent_state} at event {state.seq}"


def settled(state: RunState, states: Mapping[str, RunState]) -> bool:
    """Whether a run has ended, or waits for a person: in its own name, or in that of a child that does."""
    return state.ended or state.asked_at is not None or bool(waiting_below(state, states))


def waiting_below(state: RunState, states: Mapping[str, RunState]) -> list[str]:
    """The children of open calls that wait for a person, in their own name or in that of their children."""
    calls = state.batch.calls if state.batch and not state.ended else ()
    below = [
        child_run_id(state.setup.run, call.id) for call in calls if call.dispatched and call.result is None
    ]
    found = ((run, states.get(run)) for run in below)
    return [run for run, child in found if child is not None and not child.ended and settled(child, states)]


def _doubtful(event: Event) -> bool:
    told = isinstance(event, ToolReturned) and event.error is ToolError.IN_DOUBT
    return told or isinstance(event, DoubtResolved)


def _acted(executions: Sequence[Execution]) -> int:
    return sum(execution.acted for execution in executions)
