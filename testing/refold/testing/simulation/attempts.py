"""Executions of users' tools, in tasks of their own, which faults can stop anywhere.

A killed process runs no `finally` and no `except`. So its tools are not cancelled but frozen where they
are. The coroutine of a tool is driven by hand: each time that it waits, a planned fault may happen.
"""

from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import copy_context
from types import coroutine
from typing import Any, TypeVar, cast

import msgspec
import trio

from refold.engine import CallContext, Reconciled, Tool
from refold.reducers.errors import WrongUse
from refold.reducers.events import ToolReturned
from refold.reducers.vocabulary import Replay
from refold.testing.simulation.faults import Kind, Point
from refold.testing.simulation.process import Process, current, part
from refold.testing.simulation.snapshots import compare_states
from refold.testing.simulation.violations import ViolationKind
from refold.testing.simulation.world import Execution

GRACE = 30.0
"""Virtual seconds that a cancelled tool may take for its cleanup."""

_TURNS = 300  # waits of a cancelled tool in one instant: more than any cleanup needs
_RERUN = (Replay.IDEMPOTENT, Replay.READ_ONLY)

Output = str | ToolReturned
Result = TypeVar("Result")


class NeedsAsyncio(WrongUse):
    """A tool uses asyncio, but simulations run on trio. `tool` is its name."""

    def __init__(self, tool: str) -> None:
        super().__init__(tool)
        self.tool = tool

    def __str__(self) -> str:
        return (
            f"tool {self.tool}: uses asyncio, but simulations run on trio: expected anyio, as in `await anyio.sleep(1)`; "
            "replace asyncio by anyio in the tool, or pass it a client that is written with anyio"
        )


class Attempt:
    """One piece of a tool's work in a task of its own: an execution, or a reconciliation."""

    def __init__(self, process: Process, tool: str, work: Coroutine[Any, Any, object]) -> None:
        self.process, self.tool = process, tool
        self.over = trio.Event()
        self.returned = False
        self._work = work
        self._value: object = None
        self._error: BaseException | None = None
        self._scope = trio.CancelScope()
        self._task: trio.lowlevel.Task | None = None
        self._hangs = self._ignores = self._abandoned = False
        self._turns = 0
        self._instant = 0.0

    async def complete(self) -> object:
        """Do the work, and return or raise its outcome. A cancellation is passed on to the work."""
        world = self.process.world
        self.process.dependents.append(self)
        world.working.add(self)
        world.activity.append(self)
        context = copy_context()
        context.run(part.set, self)
        trio.lowlevel.spawn_system_task(self._run, context=context)
        try:
            await self.over.wait()
        except trio.Cancelled:
            if not self.process.dead:
                await self._cancel()
            if not self.returned:
                raise
        if self._error is not None:
            raise self._error
        return self._value

    def freeze(self) -> None:
        """Stop wherever it is, because its process is dead."""
        if not self.over.is_set():
            self.process.world.working.discard(self)
            self.process.world.order.freeze(self)

    async def clean_up(self) -> None:
        """End the work after the schedule. Work that ignores its cancellation is abandoned."""
        order = self.process.world.order
        if not self._ignores and not self.over.is_set():
            self._turns = 0
            self._scope.cancel()
            order.thaw(self)
            await self._wait(GRACE)
        if not self.over.is_set():
            self._abandoned = True
            order.thaw(self)
            await self._wait(0)
        if not self.over.is_set():
            assert self._task is not None
            trio.lowlevel.reschedule(self._task)  # it waits in a shielded scope
            await self.over.wait()

    async def _wait(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self.over.wait()

    async def _cancel(self) -> None:
        """Cancel the work, and wait for its end. Report a violation if it does not end in time."""
        world = self.process.world
        self._scope.cancel()
        if self._hangs:
            world.order.thaw(self)
        since = trio.current_time()
        with trio.CancelScope(shield=True):
            while not self.over.is_set() and not self.process.dead:
                with trio.move_on_after(GRACE):
                    await self.over.wait()
                    continue
                if self.process.resumed_at > since:  # it was suspended meanwhile, and could not end
                    since = trio.current_time()
                elif not self.process.dead:
                    break
        if not self.over.is_set() and not self.process.dead:
            world.violate(
                ViolationKind.IGNORED_CANCELLATION,
                f"tool {self.tool}: still works {GRACE:g} s after its call was cancelled",
            )
            self._ignores = True
            self.freeze()

    async def _run(self) -> None:
        world, self._task = self.process.world, trio.lowlevel.current_task()
        try:
            with self._scope:
                self._value = await self._drive()
                self.returned = True
        except trio.Cancelled:
            raise
        except BaseException as error:
            self._error = error
        finally:
            world.activity.append(self)
            world.working.discard(self)
            self.over.set()

    @coroutine
    def _drive(self) -> Generator[Any, Any, object]:
        """Drive the coroutine, and let the planned fault happen each time that it waits."""
        resume: Callable[[Any], Any] = self._work.send
        value: Any = None
        while True:
            try:
                wanted = resume(value)
            except StopIteration as end:
                return cast("object", end.value)
            except RuntimeError as error:
                if "no running event loop" in str(error):
                    self._refuse()
                raise
            if wanted is None or hasattr(wanted, "_asyncio_future_blocking"):
                self._refuse()
                raise NeedsAsyncio(self.tool)
            self._pause()
            try:
                resume, value = self._work.send, (yield wanted)
            except BaseException as error:
                resume, value = self._work.throw, error
            if self._abandoned:
                _keep_for_ever(self._work)
                raise AssertionError("abandoned: it ignores its cancellation")

    def _pause(self) -> None:
        """Let a fault happen while the tool waits."""
        process = self.process
        if self._scope.cancel_called:
            now = trio.current_time()
            self._turns = self._turns + 1 if now == self._instant else 0
            self._instant = now
            if self._turns > _TURNS:
                process.world.order.freeze(self)
        if self._scope.cancel_called or process.world.closed or process.dead:
            return
        kind = process.strike(Point.AWAIT)
        if kind is Kind.HANG:
            self._hangs = True
            process.limit_hang()
            process.world.order.freeze(self)
        else:
            process.disturb(kind)

    def _refuse(self) -> None:
        self.process.world.refuse(NeedsAsyncio(self.tool))
        self.process.kill()


def _keep_for_ever(work: object) -> None:
    """Prevent that a coroutine is ever collected: that would cancel it again, which it ignores."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(work))


def wrap_tool(tool: Tool, describe: Callable[[], str]) -> Tool:
    """Return the tool with faults at its begin, at each of its waits, and at its end.

    Args:
        tool: the user's tool.
        describe: returns a text that changes with the outside world.
    """
    replay = tool.manifest.replay

    async def run(arguments: str, context: CallContext) -> Output:
        process = current.get()
        await process.through(Point.BEGIN, trio.lowlevel.checkpoint, _broken)
        output = await execute(process, arguments, context)
        quiet = not process.world.working and not process.world.underway  # else a change has other causes
        if quiet and replay in _RERUN and process.strike(Point.RERUN) is Kind.TWICE:
            await rerun(process, arguments, context)
        await process.through(Point.ACT, trio.lowlevel.checkpoint, _broken)
        return output

    async def execute(
        process: Process, arguments: str, context: CallContext, *, again: bool = False
    ) -> Output:
        execution = Execution(process.number, tool.name, replay, context.key, again=again)
        process.world.begin((context.run, context.call), execution)
        process.world.note(
            lambda: f"p{process.number} runs {tool.name} {context.run}/{context.call} {arguments}"
        )
        work = cast("Coroutine[Any, Any, object]", tool.run(arguments, context))
        output = cast("Output", await Attempt(process, tool.name, work).complete())
        execution.returned = True
        return output

    async def rerun(process: Process, arguments: str, context: CallContext) -> None:
        world = process.world
        before, mark = describe(), len(world.activity)
        try:
            await execute(process, arguments, context, again=True)
        except Exception as error:
            line = f"p{process.number} {tool.name} {context.call} raised {error!r}"
            world.note(lambda: line)
        own = {each for each in world.activity[mark:] if isinstance(each, Attempt)}
        after = describe()
        if len(own) != 1 or None in world.activity[mark:] or world.underway or before == after:
            return
        kind, word = (
            (ViolationKind.NOT_READ_ONLY, "read-only")
            if replay is Replay.READ_ONLY
            else (ViolationKind.NOT_IDEMPOTENT, "idempotent")
        )
        world.violate(
            kind,
            f"tool {tool.name} is declared {word}, but a second execution of call {context.call} with the same key "
            f"changed the world: {compare_states(before, after)}",
        )

    async def reconcile(arguments: str, context: CallContext) -> Reconciled:
        process = current.get()
        await process.through(Point.RECONCILE, trio.lowlevel.checkpoint, _broken)
        assert tool.reconcile is not None
        work = cast("Coroutine[Any, Any, object]", tool.reconcile(arguments, context))
        found = cast("Reconciled", await Attempt(process, tool.name, work).complete())
        process.world.note(
            lambda: f"p{process.number} reconciles {tool.name} {context.run}/{context.call}: {found}"
        )
        return found

    return msgspec.structs.replace(
        tool,
        run=cast("Callable[[str, CallContext], Awaitable[Output]]", run),
        reconcile=None if tool.reconcile is None else reconcile,
    )


def _broken(kind: Kind) -> Exception:
    return RuntimeError(f"as planned ({kind})")
