"""The pure core against msgspec alone: decode, fold, audit an event, and what a step costs by itself."""

from collections.abc import Iterable, Sequence

import msgspec

from bench.appends import batches
from bench.timing import Case
from bench.workload import RUN, Group, answered, step, stored, then
from refold.reducers import Event, Fact, RunState, advance, codec, fold, next_effects
from refold.reducers.codec import CONTENTS, Encoded
from refold.reducers.events import KINDS
from refold.replay.audit import Audit, Auditor
from refold.replay.reader import follow_all
from refold.store.chain import GENESIS, extend
from refold.store.protocol import Head, Stored

_BODIES = {kind: msgspec.json.Decoder(event) for kind, event in KINDS.items()}
_CONTENTS = {kind: msgspec.json.Decoder(content) for kind, content in CONTENTS.items()}


def bare(log: Sequence[Encoded]) -> list[object]:
    """The anchor: bodies and contents decoded to the same types by msgspec, and nothing else."""
    made: list[object] = []
    for event in log:
        made.append(_BODIES[event.kind].decode(event.body))
        if event.content is not None:
            made.append(_CONTENTS[event.kind].decode(event.content))
    return made


def bare_bodies(log: Sequence[Encoded]) -> list[object]:
    """The lower anchor: bodies only."""
    return [_BODIES[event.kind].decode(event.body) for event in log]


def decoded(log: Sequence[Encoded]) -> list[Event]:
    """Every event whole, as an audit reads it."""
    return [codec.decode(event.kind, event.body, event.content) for event in log]


def decoded_bodies(log: Sequence[Encoded]) -> list[Event]:
    """Every event without what was said, as folding reads it."""
    return [codec.decode(event.kind, event.body) for event in log]


def audited(log: Iterable[Stored]) -> Audit:
    """Read the facts and derive every decision again, as `refold audit` does. Asserts that nothing
    differs.
    """
    auditor = Auditor(RUN)
    follow_all(log, auditor)
    audit = auditor.result()
    assert audit.clean, audit.findings
    return audit


def core_cases(groups: Sequence[Group]) -> dict[str, Case]:
    """What is timed for one log, the anchors first."""
    log = stored(groups)
    events = decoded(log)
    rows = extend(RUN, Head(seq=0, hash=GENESIS), [each for batch in batches(groups) for each in batch])
    return {
        "bare": lambda: bare(log),
        "bare bodies": lambda: bare_bodies(log),
        "decode": lambda: decoded(log),
        "decode bodies": lambda: decoded_bodies(log),
        "fold": lambda: fold(events),
        "audit": lambda: audited(rows),
    }


STEPS_TIMED = 100


def step_cases(state: RunState, number: int) -> dict[str, Case]:
    """The next steps after `number` of them: decided from facts that are there, and composed as well."""
    facts = following(state, number)
    return {"decide": lambda: _decided(state, facts), "compose and decide": lambda: _composed(state, number)}


def following(state: RunState, number: int) -> list[Fact]:
    """The facts of the next steps."""
    facts: list[Fact] = []
    for ahead in range(number, number + STEPS_TIMED):
        state, groups = step(state, ahead)
        facts += [group[0] for group in groups if isinstance(group[0], Fact)]
    return facts


def _decided(state: RunState, facts: Sequence[Fact]) -> RunState:
    for fact in facts:
        state, _ = advance(state, fact)
        next_effects(state)
    return state


def _composed(state: RunState, number: int) -> RunState:
    for ahead in range(number, number + STEPS_TIMED):
        fact: Fact | None = answered(state, ahead)
        while fact is not None:
            state, _ = advance(state, fact)
            next_effects(state)
            fact = then(state, ahead)
    return state
