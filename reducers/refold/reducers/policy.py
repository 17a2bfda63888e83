"""The policy: what an agent may do, as plain data that is recorded with its run.

Everything here is a value. Guards stay as they were written until a registry that the caller passes in
resolves them (`refold.reducers.guards.resolve`), because a policy may name guards that are not installed.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from refold.reducers.approvals import Approvals
from refold.reducers.errors import Fault, UnexpectedEvent
from refold.reducers.failures import Retry
from refold.reducers.history import Pass
from refold.reducers.history.results import TrimMessages
from refold.reducers.limits import Amount, Limit, Scope, StepLimit, Whole
from refold.reducers.patterns import pattern_faults
from refold.reducers.text import TEXTS
from refold.reducers.vocabulary import Knob, nano

Times = Annotated[int, Meta(ge=0, le=1_000_000)]
Fraction = Annotated[float, Meta(gt=0, lt=1)]


class CallTimeout(Knob, frozen=True, kw_only=True):
    """Each model call and each batch of tools gets the time that is left of the tightest limit, at least
    `min` s.

    `whole_seconds` first rounds what is left toward zero.
    """

    min: Amount = 1
    whole_seconds: bool = False

    @property
    def nanoseconds(self) -> int:
        """The minimum in nanoseconds."""
        return nano(self.min)


class Near(Knob, frozen=True, kw_only=True):
    """When people are warned that a limit is near; the model is not told.

    `fraction`: once a run, when so much of the smallest time limit has elapsed. `reserve_tokens` and
    `reserve_cost_fraction` (of the limit): once a scope, when no more than that is left of a budget.
    """

    fraction: Fraction | None = None
    reserve_tokens: Whole | None = None
    reserve_cost_fraction: Annotated[float, Meta(ge=0, le=1)] | None = None
    scope: Scope = "run"


class Grace(Knob, frozen=True, kw_only=True):
    """Limits, by name, at which one more request is made, without tools; repeated while its answer is
    empty.
    """

    on: tuple[str, ...] = ()
    again_if_empty: Times = 0


class Overflow(Knob, frozen=True, kw_only=True):
    """What is done when the context was too long: `do` these passes, by name or inline, and ask again.

    `patterns` in a failure's text (any case) and `stops`, words of the provider for why it stopped, say that
    it was; `single_patterns` that one message was. `do: null` treats it as any failure. `max` reactions in
    `scope`, each of which costs a step with `counts_step`; `hint` tells the model.
    """

    patterns: tuple[str, ...] | None = None
    single_patterns: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    do: tuple[str | Pass, ...] | None = None
    max: Times | None = None
    scope: Scope = "run"
    counts_step: bool = True
    hint: bool = False

    def problems(self) -> Iterator[Fault]:
        """Yield reactions without end, and patterns that are not of the pattern language."""
        if self.do and self.max is None and not self.counts_step:
            yield "max", "null, with 'counts_step: false', would be for ever: give a number"
        for key in ("patterns", "single_patterns"):
            for place, pattern in enumerate(getattr(self, key) or ()):
                yield from pattern_faults(f"{key}[{place}]", pattern)


class ToolOutput(Knob, frozen=True, kw_only=True):
    """The cap on what a tool may say: its head and tail stay, or its head; the rest is cut.

    `max: null` is no cap.
    """

    max: Annotated[int, Meta(ge=1)] | None = 16384
    unit: Literal["bytes", "chars"] = "bytes"
    keep: Literal["head_tail", "head"] = "head_tail"


class Truncation(Knob, frozen=True, kw_only=True):
    """An answer cut at the output limit is kept, and the model asked to go on, `max` times in `scope`.

    `when` it has no complete call, or an incomplete one, or either. `stitch` joins the texts in the outcome.
    `exhausted`: what a cut answer means once no recovery is left.
    """

    when: Literal["no_calls", "broken_calls", "either"] = "no_calls"
    max: Times = 2
    scope: Scope = "run"
    needs_text: bool = False
    stitch: bool = True
    exhausted: Literal["complete", "fail", "fail_if_broken"] = "complete"


class Stream(Knob, frozen=True, kw_only=True):
    """A stream that broke, or ended without text, call and usage, is asked for again, `max` times in
    `scope`.
    """

    max: Times = 2
    scope: Scope = "run"


class Empty(Knob, frozen=True, kw_only=True):
    """An answer of no text and no calls is not kept; the model is asked `again` so often (null: always),
    `then`.
    """

    again: Times | None = 0
    then: Literal["complete", "fail"] = "complete"


class Progress(Knob, frozen=True, kw_only=True):
    """Every so many steps the model is told how much time it used: kept, or in that request only.

    `clock: productive` leaves out credited retries; `show_limit` says of how much.
    """

    every: Annotated[int, Meta(ge=1)]
    kept: bool = True
    clock: Literal["wall", "productive"] = "wall"
    show_limit: bool = False
    before_history: bool = False


class At(Knob, frozen=True, kw_only=True):
    """Where a tier begins: at a `fraction` of the limit, or when so much is `remaining`, whichever holds
    first.
    """

    fraction: Annotated[float, Meta(ge=0, le=1)] | None = None
    remaining: Whole | None = None

    def problems(self) -> Iterator[Fault]:
        """No way to begin."""
        if self == At():
            yield "", "expected 'fraction', 'remaining', or both"


class Without(Knob, frozen=True, kw_only=True):
    """All tools but these."""

    without: tuple[str, ...]


class Tier(Knob, frozen=True, kw_only=True):
    """A degree of pressure: the text `pressure:<name>` in each request from `at` on, or `once` a turn.

    `place`: last in the request, as a system message, or beside the newest result (and only there). `tools`
    is what is still offered.
    """

    name: Annotated[str, Meta(min_length=1)]
    at: At
    place: Literal["user", "system", "tool_result"] = "user"
    repeat: Literal["every", "once"] = "every"
    tools: Literal["all", "none"] | Without = "all"


class Pressure(Knob, frozen=True, kw_only=True):
    """The model is told when the limit named `of` is near. Never kept. The last tier that holds is shown.

    `counts`: the step about to be made (`next`), or those made (`used`). `acknowledge: escalate`: after an
    answer to a tier that has calls and no text, the next tier is shown in the last one's words, as the user.
    """

    of: str = "step"
    counts: Literal["next", "used"] = "next"
    tiers: tuple[Tier, ...]
    acknowledge: Literal["escalate"] | None = None


GuardConfig = dict[str, Any]
EstimatorName = Literal[
    "chars4", "chars4_total", "chars4_joined", "cjk", "bytes4", "bpe:o200k_base", "bpe:cl100k_base"
]


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """Limits, history, recoveries, guards, approvals, retries, and what ends a turn.

    `end_of_turn`: what an answer without tool calls means. `complete` ends the run; `continue` asks the model
    to go on; `wait` waits for a person. `refusal`: what an answer that the provider's filter stopped means.
    `fallback`: the text of the outcome when a limit leaves none. `nudge`: whether every request ends with
    one. `batch`: how the calls of one answer run. `doubt`: whether the model is told of a call whose end
    nobody saw, or a person is asked first. `redact`: regular expressions, looked for in each line of what is
    recorded, and hidden. `texts` overrides what the harness says to the model, by key. Written without
    defaults left out, so that a recorded policy never changes its meaning when a default does.

    A key that a later version adds has here, as its default, what runs recorded without it meant; what the
    language takes for a key that was not written is filled in by `parse`.
    """

    schema: Literal["refold/v1"] = "refold/v1"
    limits: tuple[Limit, ...] = (StepLimit(value=50),)
    call_timeout: CallTimeout = CallTimeout()
    near: Near | None = None
    grace: Grace | None = None
    fallback: str | None = None
    estimator: EstimatorName = "chars4"
    history: tuple[Pass, ...] = ()
    overflow: Overflow | None = None
    tool_output: ToolOutput | None = ToolOutput()
    truncation: Truncation | None = None
    stream: Stream | None = None
    premature_end: GuardConfig | None = None
    empty: Empty | None = None
    refusal: Literal["fail", "complete", "wait"] = "fail"
    end_of_turn: Literal["complete", "continue", "wait"] = "complete"
    nudge: bool = False
    progress: Progress | None = None
    guards: tuple[GuardConfig, ...] = ()
    pressure: Pressure | None = None
    retry: Retry = Retry()
    approvals: Approvals | None = None
    batch: Literal["parallel", "in_order"] = "parallel"
    doubt: Literal["tell", "ask"] = "tell"
    redact: tuple[str, ...] = ()
    texts: dict[str, str] = {}

    @cached_property
    def checked_with(self) -> list[Mapping[str, type[Any]]]:
        """The guards with which the parser found that it can work, so that it need not look again.

        No part of the value.
        """
        return []

    @cached_property
    def token_caps(self) -> tuple[tuple[str, int], ...]:
        """The tokenizer and the cap of each pass `trim_messages` that counts by one. No part of the value."""
        trims = [step for _, step in passes_of(self) if isinstance(step, TrimMessages) and step.tokenized]
        return tuple(dict.fromkeys((step.codec, step.cap) for step in trims if step.cap is not None))


def passes_of(policy: Policy) -> Iterator[tuple[str, Pass]]:
    """Every pass with its path: those of the history, and those that stand in `overflow.do` itself."""
    for place, step in enumerate(policy.history):
        yield f"history[{place}]", step
    for place, entry in enumerate((policy.overflow.do or ()) if policy.overflow else ()):
        if not isinstance(entry, str):
            yield f"overflow.do[{place}]", entry


def text_of(policy: Policy, key: str) -> str:
    """What the harness says under this key. A policy recorded before the key was there means the built-in
    text.

    Raises `UnexpectedEvent` for a key that nobody has: only a forged log names one.
    """
    text = _text(policy, key)
    if text is None:
        raise UnexpectedEvent("text", f"the policy has none under {key!r}")
    return text


def has_text(policy: Policy, key: str) -> bool:
    """Whether the harness has something to say under this key."""
    return _text(policy, key) is not None


def _text(policy: Policy, key: str) -> str | None:
    return policy.texts.get(key) or TEXTS.get(key)
