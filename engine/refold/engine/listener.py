"""What a tool's thread says after its call was cut off, on its way into the log."""

from collections.abc import Callable
from functools import partial

from refold.engine.background import inlet
from refold.engine.clock import Stopwatch
from refold.engine.outcomes import LateMaker
from refold.engine.tools.threads import Late
from refold.reducers import composition
from refold.reducers.effects import RunTool
from refold.reducers.events import LateResult, ToolReturned
from refold.reducers.folds import late_result
from refold.reducers.state import RunState
from refold.reducers.vocabulary import ToolError


def listener(
    call: RunTool,
    stopwatch: Stopwatch,
    worded: Callable[[object, BaseException | None], str],
    late: Callable[[LateMaker], None],
) -> Late:
    """Hears the thread of a call out and hands over the annotation, in this event loop's thread.

    `worded` says in text what was returned or raised, redacted.
    """
    enter = inlet()

    def listen(result: object, error: BaseException | None) -> None:
        failed = None if error is None else ToolError.RAISED
        enter(partial(late, _came(call, worded(result, error), failed, stopwatch())))

    return listen


def _came(call: RunTool, text: str, error: ToolError | None, duration: int) -> LateMaker:
    def make(state: RunState, at: int, salt: bytes) -> LateResult:
        fact = ToolReturned(at=max(at, state.at), call=call.call, error=error, duration=duration)
        return late_result(composition.returned(state, fact, text, call.name, "", salt))

    return make
