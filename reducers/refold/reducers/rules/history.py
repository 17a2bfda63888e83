"""The check that runs the policy's compaction steps and turns their plans into decisions."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import asdict, replace

from refold.reducers import events as ev
from refold.reducers.estimate import ESTIMATORS, LONGEST
from refold.reducers.evolution import encode_value
from refold.reducers.history import Covering, Pass, Plan, Scene, Shortening, plan_step
from refold.reducers.history.windows import ObservedWindow, Summarise
from refold.reducers.machine import Trigger
from refold.reducers.messages import Gap, Size
from refold.reducers.meters import call_deadline
from refold.reducers.policy import Policy, text_of
from refold.reducers.rules.flow import (
    Flow,
    Values,
    is_settled,
    make_injection,
    make_move,
    render_message,
    switched_by,
)
from refold.reducers.rules.requests import next_model
from refold.reducers.state import RunState
from refold.reducers.text import render_around
from refold.reducers.vocabulary import Cause, Role
from refold.reducers.window import (
    MessageRef,
    Window,
    quoted_refs,
    refs,
    refs_within,
    subtract,
    tokens_without,
)


@switched_by(lambda policy: policy if policy.history or policy.overflow else None)
def history(policy: Policy, flow: Flow) -> bool:
    """P7: run the policy's compaction steps in order, after the one whose summary just arrived."""
    resumed = flow.state.pruned_by
    if resumed in [step.name for step in _forced_passes(flow.state)]:
        make_room(flow)
    # Steps that an overflow ran are skipped: otherwise a failed summary would be requested without end.
    forced = [step.name for step in _forced_passes(flow.state)]
    passes = tuple([step for step in policy.history if step.name not in forced])
    if not is_settled(flow.state):
        _run_passes(flow, _passes_after(passes, resumed))
    return True


def _observed_passes(policy: Policy) -> tuple[Pass, ...] | None:
    return tuple([step for step in policy.history if isinstance(step, ObservedWindow)]) or None


@switched_by(_observed_passes)
def observed_history(passes: tuple[Pass, ...], flow: Flow) -> bool:
    """Before another attempt in an imported run: remove only what its own harness dropped meanwhile."""
    if flow.state.observed is not None:
        _run_passes(flow, passes)
    return True


def _passes_after(passes: tuple[Pass, ...], resumed: str) -> tuple[Pass, ...]:
    names = [step.name for step in passes]
    return passes[names.index(resumed) + 1 :] if resumed in names else passes


def make_room(flow: Flow) -> None:
    """F2, R2: after an overflow, run the compaction steps that the policy names, whatever their `when`."""
    _run_passes(flow, _passes_after(tuple(_forced_passes(flow.state)), flow.state.pruned_by), forced=True)
    if not is_settled(flow.state) and not flow.state.eased:
        sentence = "the context was too long, and nothing more can leave the history"
        flow.say(make_move(flow.state, Trigger.FAIL, "context_overflow", sentence))


def _run_passes(flow: Flow, passes: tuple[Pass, ...], *, forced: bool = False) -> None:
    scene, at = scene_of(flow.state, forced=forced), flow.state.seq
    for step in passes:
        if flow.state.seq != at:
            scene, at = scene_of(flow.state, forced=forced), flow.state.seq
        plan = plan_step(scene, step)
        if plan is not None:
            _carry_out(flow, step, plan, scene)
            if is_settled(flow.state):
                return


def _forced_passes(state: RunState) -> Iterator[Pass]:
    knob = state.policy.overflow
    if not state.overflowed or knob is None:
        return
    named = {step.name: step for step in state.policy.history}
    for entry in knob.do or ():
        if not isinstance(entry, str):
            yield entry
        elif entry in named:
            yield named[entry]


def scene_of(state: RunState, *, forced: bool) -> Scene:
    """Return the input of a compaction step; `forced`: it runs because of an overflow."""
    setup = state.setup
    return Scene(
        window=state.window,
        step=state.spent.steps + 1,
        model=next_model(state) or setup.model,
        context=setup.context,
        tools=setup.tools_tokens,
        turn_start=state.spent.steps == state.turn.spent.steps,
        forced=forced,
        upto=0 if state.observed is None else state.observed.upto,
        kept=None if state.observed is None else state.observed.kept,
        single=state.failure is not None and state.failure.event.single,
        texts=state.policy.texts,
    )


def _carry_out(flow: Flow, step: Pass, plan: Plan, scene: Scene) -> None:
    for shorter in plan.shorter:
        flow.say(_make_trimming(flow.state, step, shorter, forced=scene.forced))
    if plan.summary is not None:
        flow.say(_make_summary_request(flow.state, step.name, plan.summary))
        return
    before = flow.state.window
    if plan.gap is not None:
        flow.say(_make_marker(flow.state, step, plan.gap))
    if plan.drop is not None:
        marked = scene if plan.gap is None else replace(scene, window=flow.state.window)
        over, reason = not step.fits(marked, plan.drop), _reason(step, forced=scene.forced)
        flow.say(_make_pruning(step.name, reason, before, flow.state.window, plan.drop, over=over))


def _make_summary_request(state: RunState, name: str, wanted: Covering) -> ev.SummaryRequested:
    content, size = render_message(state, Role.SYSTEM, "summarise", {})
    deadline = call_deadline(state)
    return ev.SummaryRequested(
        **asdict(wanted), name=name, deadline=deadline, instructions=size, content=content
    )


def _reason(step: Pass, *, forced: bool) -> str:
    return "overflow" if forced else step.reason


def _make_pruning(
    name: str, reason: str, before: Window, marked: Window, gone: Sequence[MessageRef], *, over: bool
) -> ev.HistoryPruned:
    # `marked` includes the message that stands for the removed ones, `before` does not.
    return ev.HistoryPruned(
        name=name,
        reason=reason,
        before=before.count,
        after=marked.count - len(gone),
        tokens_before=before.tokens,
        tokens_after=tokens_without(marked, gone),
        kept=subtract(marked.ranges, [ref.number for ref in gone]),
        over_budget=over,
    )


def _make_marker(state: RunState, step: Pass, gap: Gap) -> ev.MessageInjected:
    values: Values = {"count": gap.covers, "tokens": gap.tokens}
    if not gap.sources:
        return replace(make_injection(state, step.marks, Cause.HISTORY, step.name, values), gap=gap)
    # A digest quotes the model's text: only the text around it is rendered here.
    values |= {"per_message": gap.per_message, "total": gap.total}
    sources = [(ref.role, ref.size) for ref in quoted_refs(state.window, gap.sources)]
    sizes = [size for _, size in sources]
    lines = sum(len(role) + 3 + min(size.chars or 9, gap.per_message) for role, size in sources) - 1
    frame = render_around(text_of(state.policy, step.marks), "digest", values)
    quote = (len(frame) - 1) * min(lines, gap.total)
    size = Size(
        chars=min(sum(map(len, frame)) + quote, LONGEST),
        tokens=ESTIMATORS[state.policy.estimator].quoting(frame, quote, sizes),
        digest=_sha256((frame, [size.digest for size in sizes], gap.per_message, gap.total)),
    )
    return _make_frame(Role.USER, step.marks, step.name, gap, frame, size)


def _make_frame(
    role: Role, text: str, name: str, gap: Gap, frame: tuple[str, ...], size: Size
) -> ev.MessageInjected:
    content = ev.Said(texts=frame)
    return ev.MessageInjected(
        role=role, text=text, cause=Cause.HISTORY, name=name, gap=gap, size=size, content=content
    )


def _make_trimming(state: RunState, step: Pass, shorter: Shortening, *, forced: bool) -> ev.MessageTrimmed:
    ref = next(ref for ref in refs(state.window) if ref.number == shorter.number)
    return make_trimming(state, ref, shorter, Cause.HISTORY, step.name, _reason(step, forced=forced))


def make_trimming(
    state: RunState, ref: MessageRef, shorter: Shortening, cause: Cause, name: str, reason: str
) -> ev.MessageTrimmed:
    """Return the decision to shorten a message, with its new sizes."""
    whole = ref.whole
    sizes = {"text": whole.chars, "reasoning": whole.reasoning}
    for cut, text in zip(shorter.cuts, shorter.texts, strict=True):
        sizes[cut.part] = cut.head + cut.tail + len(text)
    cuts = [(cut.part, cut.head, cut.tail) for cut in shorter.cuts]
    return ev.MessageTrimmed(
        message=ref.number,
        cause=cause,
        name=name,
        reason=reason,
        before=ref.size.tokens,
        size=replace(
            ref.size,
            chars=sizes["text"],
            reasoning=sizes["reasoning"],
            tokens=ESTIMATORS[state.policy.estimator].shortened(whole, sizes["text"], sizes["reasoning"]),
            digest=_sha256((whole.digest, cuts, shorter.texts)),
        ),
        cuts=shorter.cuts,
        content=ev.Said(texts=shorter.texts),
    )


def _sha256(shown: Any) -> str:
    return hashlib.sha256(encode_value(shown)).hexdigest()


def apply_summary(flow: Flow) -> bool:
    """Insert a summary in place of the messages that it covers, or give up on one that failed."""
    asked, came = flow.state.summary, flow.state.summed_up
    if asked is None or came is None:
        return False
    if isinstance(came.event, ev.ModelFailed):
        flow.say(_give_up(flow.state, asked.event, came.event))
    else:
        _insert_summary(flow, asked.event, came.seq, came.event.size)
    return True


def _insert_summary(flow: Flow, asked: ev.SummaryRequested, source: int, size: Size) -> None:
    before = flow.state.window
    covered = refs_within(before, asked.messages)
    gap = Gap(
        after=asked.after,
        covers=sum(ref.gap.covers if ref.gap else 1 for ref in covered),
        tokens=sum(ref.gap.tokens if ref.gap else ref.size.tokens for ref in covered),
        source=source,
    )
    frame = render_around(text_of(flow.state.policy, "summary"), "summary", {})
    size = replace(size, digest=_sha256((frame, size.digest)))
    flow.say(_make_frame(asked.role, "summary", asked.name, gap, frame, size))
    flow.say(_make_pruning(asked.name, "summary", before, flow.state.window, covered, over=False))


def _give_up(
    state: RunState, asked: ev.SummaryRequested, failed: ev.ModelFailed
) -> ev.StateChanged | ev.SummaryAbandoned:
    named = {step.name: step for step in (*state.policy.history, *_forced_passes(state))}
    step = named.get(asked.name)
    if isinstance(step, Summarise) and step.on_failure == "fail":
        reason = f"the summary for the pass {asked.name!r} failed ({failed.failure})"
        return make_move(state, Trigger.FAIL, f"provider:{failed.failure}", reason)
    return ev.SummaryAbandoned(name=asked.name, failure=failed.failure)
