"""What came too late, as an annotation: made like the fact that it would have been."""

from msgspec.structs import replace

from refold.reducers.composing import returned
from refold.reducers.events import Late, LateResult, Output, ToolReturned, kind_of
from refold.reducers.state import RunState


def returned_late(state: RunState, fact: ToolReturned, output: str, tool: str, salt: bytes) -> LateResult:
    """`late_result` of a call: its output after the policy's cap, as `tool_returned` would hold it."""
    capped = returned(state, replace(fact, at=max(fact.at, state.at)), output, tool, "", salt)
    assert isinstance(capped.content, Output)
    return LateResult(
        at=capped.at,
        of=kind_of(fact),
        call=fact.call,
        error=fact.error,
        output_bytes=capped.output_bytes,
        duration=fact.duration,
        content=Late(text=capped.content.output),
    )
