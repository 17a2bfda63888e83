"""`run_forked` made of what the new run is to be, and of how the prefix stands."""

import msgspec

from refold.reducers.composition import offered, told
from refold.reducers.doubts import asks_anew, left_open, underway
from refold.reducers.errors import WrongUse
from refold.reducers.events import Input, RunForked
from refold.reducers.secrets import PLAIN, Redactor
from refold.reducers.state import RunState
from refold.reducers.text import label


def forked(state: RunState, fact: RunForked, text: str, salt: bytes, redactor: Redactor = PLAIN) -> RunForked:
    """`run_forked` at this state of the parent, with the message that joins it, if `text` is one.

    Calls under way that cannot simply be run again are in doubt, but for those that `results` names. A request under
    way is made anew where the fork changes what it asks. Raises `WrongUse` for a result of a call that is not under
    way, and for a message where calls are.
    """
    redactor = redactor.under((fact.policy or state.policy).redact)
    tools = None if fact.tools is None else tuple(offered(tool, redactor) for tool in fact.tools)
    fact = msgspec.structs.replace(
        fact,
        tools=None if tools == state.setup.tools else tools,
        labels={redactor.text(key): redactor.text(value) for key, value in fact.labels.items()},
        by=label(redactor.text(fact.by)),
    )
    _refuse_results(state, fact.results)
    _refuse_refusals(state)
    if text and state.batch is not None:
        calls = ", ".join(call.id for call in state.batch.calls if call.result is None)
        raise WrongUse(
            f"run {state.setup.run}: calls {calls} have no result at event {state.seq}, and a message cannot come before "
            "it: fork where they have, or give their results"
        )
    fact = msgspec.structs.replace(
        fact,
        in_doubt=left_open(state, fact),
        downtime=max(0, fact.at - state.at),
        again=asks_anew(state, fact, text=bool(text)),
    )
    if not text:
        return fact
    return told(fact, Input(text=redactor.text(text)), salt, state.policy)


def _refuse_refusals(state: RunState) -> None:
    # What the model was told of it stands in the result, which the fork would never get.
    refused = (
        [call.id for call in state.batch.calls if call.refused and not call.result] if state.batch else []
    )
    if refused:
        raise WrongUse(
            f"run {state.setup.run}: the source's own harness refused {', '.join(refused)}, and its words come after event "
            f"{state.seq}: fork behind them"
        )


def _refuse_results(state: RunState, results: tuple[str, ...]) -> None:
    begun = [call.id for call in underway(state)]
    for call in results:
        if call not in begun:
            said = f"under way there: {', '.join(begun)}" if begun else "no call is under way there"
            raise WrongUse(
                f"run {state.setup.run}: call {call!r} waits for no result at event {state.seq}; {said}"
            )
