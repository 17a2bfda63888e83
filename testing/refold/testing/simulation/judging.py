"""The checks that every world must pass after its last engine has ended."""

from collections.abc import Iterator, Mapping, Sequence

from refold.reducers import codec
from refold.reducers.effects import idempotency_key
from refold.reducers.events import DoubtResolved, Event, ToolReturned
from refold.reducers.meters import child_run_id
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Doubt, Replay, ToolError
from refold.replay import Audit, audit, verify
from refold.store.protocol import Stored
from refold.testing.simulation.violations import Violation, ViolationKind
from refold.testing.simulation.world import Execution, World

_ONCE = (Replay.AT_MOST_ONCE, Replay.RECONCILABLE)


class Judge:
    """Checks the logs of a world, and adds violations to it.

    `doubts` counts the calls whose outcome was unknown, `events` the events of all logs.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.doubts = self.events = 0
        self.logs: dict[str, list[Stored]] = {}

    async def judge(self) -> None:
        """Run all checks."""
        await self.world.read_logs()
        for run in self.world.logs:
            await self._read(run)
        for violation in (*self._lost(), *self._repeated(), *self._unfinished()):
            self.world.violate(violation.kind, violation.text)

    async def _read(self, run: str) -> None:
        store = self.world.store
        self.logs[run] = [stored async for chunk in store.read(run) for stored in chunk]
        self.events += len(self.logs[run])
        self.doubts += sum(map(_is_doubtful, self.world.logs[run]))
        registry = self.world.registry
        verified, audited = await verify(store, run, registry), await audit(store, run, registry)
        if not verified.whole:
            self.world.violate(ViolationKind.DAMAGED_LOG, f"run {run} does not verify: {verified.problem}")
        if not audited.clean:
            self.world.violate(ViolationKind.AUDIT, f"run {run} does not audit clean: {_describe(audited)}")

    def _lost(self) -> Iterator[Violation]:
        lost = ViolationKind.LOST_EVENT
        for run, heads in self.world.acknowledged_heads.items():
            hashes = {stored.seq: stored.hash for stored in self.logs.get(run, ())}
            for seq, head in heads.items():
                if hashes.get(seq) != head:
                    yield Violation(
                        lost,
                        f"run {run} event {seq}: its append returned, but the log has another event or none",
                    )
        for run, committed in self.world.logs.items():
            bodies = [stored.body for stored in self.logs[run]]
            if bodies != [codec.encode(event).body for event in committed]:
                yield Violation(lost, f"run {run}: its log is not what was committed")
        for (run, seq), event in self.world.reported.items():
            log = self.world.logs.get(run, [])
            if seq > len(log) or log[seq - 1] != event:
                yield Violation(
                    lost,
                    f"run {run} event {seq}: reported as recorded, but the log has another event or none",
                )

    def _repeated(self) -> Iterator[Violation]:
        keys: dict[str, tuple[str, str]] = {}
        for call, executions in self.world.executions.items():
            where = f"run {call[0]} call {call[1]}"
            for execution in executions:
                if execution.key != idempotency_key(*call) or keys.setdefault(execution.key, call) != call:
                    yield Violation(
                        ViolationKind.FOREIGN_KEY,
                        f"{where}: run under the key {execution.key} of another call",
                    )
            replay, tool = executions[0].replay, executions[0].tool
            if replay not in _ONCE:
                continue
            if len(executions) > 1 + self._denials(*call):
                yield Violation(
                    ViolationKind.REPEATED_CALL,
                    f"{where}: {tool} ran {len(executions)} times, and no record states that it had not happened",
                )
            # An operator may report that a call did not happen while a suspended process is about to do it.
            if _count_acts(executions) > 1 + self._denials(*call, by_operators=True):
                yield Violation(
                    ViolationKind.REPEATED_EFFECT, f"{where}: {tool} acted {_count_acts(executions)} times"
                )

    def _denials(self, run: str, call: str, *, by_operators: bool = False) -> int:
        """Count the records that the call did not happen: each allows one more execution."""
        return sum(
            isinstance(event, DoubtResolved)
            and event.call == call
            and event.doubt is Doubt.DID_NOT
            and not (by_operators and event.reconciled)
            for event in self.world.logs.get(run, ())
        )

    def _unfinished(self) -> Iterator[Violation]:
        for run, state in self.world.states.items():
            if not is_settled(state, self.world.states) and not self.world.endless:
                yield Violation(
                    ViolationKind.ENDLESS_RUN,
                    f"run {run}: neither ended nor waiting: it is {state.agent_state} at event {state.seq}",
                )


def is_settled(state: RunState, states: Mapping[str, RunState]) -> bool:
    """Return whether a run has ended or waits for an operator, itself or through a child run."""
    return state.ended or state.asked_at is not None or bool(waiting_children(state, states))


def waiting_children(state: RunState, states: Mapping[str, RunState]) -> list[str]:
    """Return the child runs of open calls that wait for an operator, themselves or through children."""
    calls = state.batch.calls if state.batch and not state.ended else ()
    below = [
        child_run_id(state.setup.run, call.id) for call in calls if call.dispatched and call.result is None
    ]
    found = ((run, states.get(run)) for run in below)
    return [
        run for run, child in found if child is not None and not child.ended and is_settled(child, states)
    ]


def _describe(audited: Audit) -> str:
    if audited.findings:
        found = audited.findings[0]
        return f"event {found.seq}: {found.kind} is {found.difference.replace('_', ' ')}"
    return str(audited.damaged or f"guards that could not be asked: {audited.blind}")


def _is_doubtful(event: Event) -> bool:
    return isinstance(event, DoubtResolved) or (
        isinstance(event, ToolReturned) and event.error is ToolError.IN_DOUBT
    )


def _count_acts(executions: Sequence[Execution]) -> int:
    return sum(execution.acted for execution in executions)
