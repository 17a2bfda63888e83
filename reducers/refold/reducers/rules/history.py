"""History at work: the policy's passes are run, and what they plan becomes decisions."""

import hashlib
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from refold.reducers.checkpoint import encoded
from refold.reducers.events import (
    HistoryPruned,
    MessageInjected,
    MessageTrimmed,
    Said,
    SummaryAbandoned,
    SummaryRequested,
    SummaryReturned,
)
from refold.reducers.history import Covering, Marker, Pass, Plan, Scene, Shortening, planned
from refold.reducers.history.observed import Observed
from refold.reducers.history.summarise import Summarise
from refold.reducers.machine import Trigger
from refold.reducers.measure import measured
from refold.reducers.pending import failed_summary, summary_of
from refold.reducers.policy import Policy, text_of
from refold.reducers.rules.ends import injected, move, said
from refold.reducers.rules.flow import Flow, settled, switched_by
from refold.reducers.rules.requests import model_next
from refold.reducers.state import Remembered, RunState
from refold.reducers.texts import framed, render
from refold.reducers.usage import call_deadline
from refold.reducers.vocabulary import Cause, Role
from refold.reducers.window import MessageRef, Window, only, ranges_of, refs

# Characters: no text of a model is longer, and a forged log must not make us build what it only claims.
_LONGEST = 1 << 24


@switched_by(lambda policy: policy if policy.history or policy.overflow else None)
def history(policy: Policy, flow: Flow) -> bool:
    """P7: the policy's passes, in order. A pass whose summary came back is done, and those before it."""
    resumed = flow.state.pruned_by
    if resumed in [step.name for step in _forced(flow.state)]:
        make_room(flow)
    # What an overflow has run is not run again: its summary, if it failed, would be asked for without end.
    forced = [step.name for step in _forced(flow.state)]
    passes = tuple([step for step in policy.history if step.name not in forced])
    if not settled(flow.state):
        _run(flow, _after(passes, resumed))
    return True


def _observed(policy: Policy) -> tuple[Pass, ...] | None:
    return tuple([step for step in policy.history if isinstance(step, Observed)]) or None


@switched_by(_observed)
def observed_history(passes: tuple[Pass, ...], flow: Flow) -> bool:
    """Before another attempt of an imported run: what its own harness dropped meanwhile leaves, and no more."""
    if flow.state.observed is not None:
        _run(flow, passes)
    return True


def _after(passes: tuple[Pass, ...], resumed: str) -> tuple[Pass, ...]:
    names = [step.name for step in passes]
    return passes[names.index(resumed) + 1 :] if resumed in names else passes


def make_room(flow: Flow) -> None:
    """F2, R2: after an overflow the passes that the policy names run at once, whatever their `when` says."""
    _run(flow, _after(tuple(_forced(flow.state)), flow.state.pruned_by), forced=True)
    if not settled(flow.state) and not flow.state.eased:
        sentence = "the context was too long, and nothing more can leave the history"
        flow.say(move(flow.state, Trigger.FAIL, "context_overflow", sentence))


def _run(flow: Flow, passes: tuple[Pass, ...], *, forced: bool = False) -> None:
    scene, at = scene_of(flow.state, forced=forced), flow.state.seq
    for step in passes:
        if flow.state.seq != at:
            scene, at = scene_of(flow.state, forced=forced), flow.state.seq
        plan = planned(scene, step)
        if plan is not None:
            _carry_out(flow, step, plan, forced=forced)
            if settled(flow.state):
                return


def _forced(state: RunState) -> Iterator[Pass]:
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
    """What a pass is given; `forced`: an overflow asks."""
    setup = state.setup
    return Scene(
        window=state.window,
        step=state.spent.steps + 1,
        model=model_next(state) or setup.model,
        context=setup.context,
        tools=setup.tools_tokens,
        turn_start=state.spent.steps == state.turn.spent.steps,
        forced=forced,
        upto=0 if state.observed is None else state.observed.upto,
        kept=None if state.observed is None else state.observed.kept,
        single=state.failure is not None and state.failure.event.single,
        texts=state.policy.texts,
    )


def _carry_out(flow: Flow, step: Pass, plan: Plan, *, forced: bool) -> None:
    for shorter in plan.shorter:
        flow.say(_trimmed(flow.state, step, shorter, forced=forced))
    if plan.summary is not None:
        flow.say(_summary_requested(flow.state, step.name, plan.summary))
        return
    kept, before = plan.keep, flow.state.window
    if plan.marker is not None:
        flow.say(_marked(flow.state, step.name, plan.marker))
        kept = None if kept is None else kept | {flow.state.messages}
    if kept is not None:
        after = only(flow.state.window, kept)
        over = not step.fits(after, scene_of(flow.state, forced=forced))
        flow.say(_pruned(step.name, _reason(step, forced=forced), before, after, over=over))


def _summary_requested(state: RunState, name: str, wanted: Covering) -> SummaryRequested:
    content, size = said(state, Role.SYSTEM, "summarise", {})
    return SummaryRequested(
        name=name,
        messages=ranges_of(wanted.numbers),
        input_tokens=wanted.tokens,
        max_output=wanted.max_output,
        deadline=call_deadline(state),
        after=wanted.after,
        role=wanted.role,
        instructions=size,
        content=content,
    )


def _reason(step: Pass, *, forced: bool) -> str:
    return "overflow" if forced else step.reason


def _pruned(name: str, reason: str, before: Window, after: Window, *, over: bool) -> HistoryPruned:
    # `after` is with the message that stands for what leaves, `before` without it.
    return HistoryPruned(
        name=name,
        reason=reason,
        before=before.count,
        after=after.count,
        tokens_before=before.tokens,
        tokens_after=after.tokens,
        kept=after.ranges,
        over_budget=over,
    )


def _marked(state: RunState, name: str, marker: Marker) -> MessageInjected:
    if not marker.sources:
        alone = injected(state, marker.text, Cause.HISTORY, name, marker.values, marker.role)
        return replace(alone, after=marker.after, covers=marker.covers, covered_tokens=marker.covered_tokens)
    # A digest holds words of the model: only what stands around them is said here.
    values = {**marker.values, "per_message": marker.per_message, "total": marker.total}
    lines = (
        sum(len(ref.role) + 2 + min(ref.size.chars or 9, marker.per_message) + 1 for ref in marker.sources)
        - 1
    )
    frame = framed(text_of(state.policy, marker.text), "digest", values)
    chars = sum(map(len, frame)) + (len(frame) - 1) * min(lines, marker.total)
    sources = [ref.size.digest for ref in marker.sources]
    digest = _sha256((frame, sources, marker.per_message, marker.total))
    return MessageInjected(
        role=marker.role,
        text=marker.text,
        values=values,
        cause=Cause.HISTORY,
        name=name,
        after=marker.after,
        covers=marker.covers,
        covered_tokens=marker.covered_tokens,
        sources=ranges_of([ref.number for ref in marker.sources]),
        size=measured(state.policy.estimator, "x" * min(chars, _LONGEST), digest=digest),
        content=Said(texts=frame),
    )


def _trimmed(state: RunState, step: Pass, shorter: Shortening, *, forced: bool) -> MessageTrimmed:
    ref = next(ref for ref in refs(state.window) if ref.number == shorter.number)
    return trimming(state, ref, shorter, Cause.HISTORY, step.name, _reason(step, forced=forced))


def trimming(
    state: RunState, ref: MessageRef, shorter: Shortening, cause: Cause, name: str, reason: str
) -> MessageTrimmed:
    """The decision to show a message shorter, with the sizes of what is left of it."""
    whole = ref.whole
    sizes, texts = {"text": whole.chars, "reasoning": whole.reasoning}, list[str]()
    for cut in shorter.cuts:
        values = {**shorter.values, "removed": cut.removed}
        texts.append(render(text_of(state.policy, shorter.text), values) if cut.marker else "")
        sizes[cut.part] = cut.head + cut.tail + len(texts[-1])
    # Beside its text and reasoning a message weighs what its calls do: that stays.
    beside = whole.tokens - _weight(state, whole.chars, whole.reasoning)
    tokens = max(0, beside + _weight(state, sizes["text"], sizes["reasoning"]))
    cuts = [(cut.part, cut.head, cut.tail) for cut in shorter.cuts]
    return MessageTrimmed(
        message=ref.number,
        cause=cause,
        name=name,
        reason=reason,
        before=ref.size.tokens,
        size=replace(
            ref.size,
            chars=sizes["text"],
            reasoning=sizes["reasoning"],
            tokens=tokens,
            digest=_sha256((whole.digest, cuts, texts)),
        ),
        text=shorter.text,
        values=shorter.values,
        cuts=shorter.cuts,
        content=Said(texts=tuple(texts)) if any(cut.marker for cut in shorter.cuts) else None,
    )


def _weight(state: RunState, chars: int, reasoning: int) -> int:
    text, thought = "x" * min(chars, _LONGEST), "x" * min(reasoning, _LONGEST)
    return measured(state.policy.estimator, text, thought).tokens


def _sha256(shown: Any) -> str:
    return hashlib.sha256(encoded(shown)).hexdigest()


def summarised(flow: Flow) -> bool:
    """When a summary came back, or failed to: it takes the place of what it sums up, or nothing does."""
    asked, came = flow.state.summary, summary_of(flow.state)
    if asked is None:
        return False
    if came is None:
        return _failed(flow, asked.event)
    _replace(flow, asked.event, came)
    return True


def _replace(flow: Flow, asked: SummaryRequested, came: Remembered[SummaryReturned]) -> None:
    state = flow.state
    covered = {
        ref.number: ref
        for ref in refs(state.window)
        if any(first <= ref.number <= last for first, last in asked.messages)
    }
    before, size = state.window, came.event.size
    frame = framed(text_of(state.policy, "summary"), "summary", {})
    stands_for = MessageInjected(
        role=asked.role,
        text="summary",
        cause=Cause.HISTORY,
        name=asked.name,
        after=asked.after,
        covers=sum(ref.covers or 1 for ref in covered.values()),
        covered_tokens=sum(ref.covered_tokens or ref.size.tokens for ref in covered.values()),
        source=came.seq,
        size=replace(size, digest=_sha256((frame, size.digest))),
        content=Said(texts=frame),
    )
    flow.say(stands_for)
    window = flow.state.window
    kept = frozenset(ref.number for ref in refs(window)) - covered.keys()
    flow.say(_pruned(asked.name, "summary", before, only(window, kept), over=False))


def _failed(flow: Flow, asked: SummaryRequested) -> bool:
    state, failed = flow.state, failed_summary(flow.state)
    if failed is None:
        return False
    named = {step.name: step for step in (*state.policy.history, *_forced(state))}
    step = named.get(asked.name)
    if isinstance(step, Summarise) and step.on_failure == "fail":
        reason = f"the summary for the pass {asked.name!r} failed ({failed.failure})"
        flow.say(move(state, Trigger.FAIL, f"provider:{failed.failure}", reason))
    else:
        flow.say(SummaryAbandoned(name=asked.name, failure=failed.failure))
    return True
