"""The policy of an agent: plain data that is recorded with each run.

Guards keep their configuration as written. `refold.reducers.guards.duty.watches` resolves them with the
caller's registry, because a policy may name guards that are not installed.
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
    """The timeout of a model call or a batch of tools: the time left under the tightest limit, at least
    `min` seconds. `whole_seconds` first rounds that time down to whole seconds.
    """

    min: Amount = 1
    whole_seconds: bool = False

    @property
    def nanoseconds(self) -> int:
        """Return the minimum in nanoseconds."""
        return nano(self.min)


class Near(Knob, frozen=True, kw_only=True):
    """When users are warned that a limit is near. The model does not see it.

    `fraction`: once a run, when this share of the smallest time limit has elapsed. `reserve_tokens` and
    `reserve_cost_fraction` (of the limit): once per `scope`, when a budget has at most this much left.
    """

    fraction: Fraction | None = None
    reserve_tokens: Whole | None = None
    reserve_cost_fraction: Annotated[float, Meta(ge=0, le=1)] | None = None
    scope: Scope = "run"


class Grace(Knob, frozen=True, kw_only=True):
    """Limits, by name, at which one more request is made, without tools.

    The request is repeated `again_if_empty` times while its response is empty.
    """

    on: tuple[str, ...] = ()
    again_if_empty: Times = 0


class Overflow(Knob, frozen=True, kw_only=True):
    """Reaction to a context overflow: run the compaction steps in `do`, by name or inline, and send again.

    `patterns` in the text of a failure (case-insensitive) and `stops`, stop reasons of the provider, detect
    an overflow; `single_patterns` detect one message that is too long. `do: null`: an ordinary failure. At
    most `max` reactions per `scope`; each costs a step with `counts_step`. `hint` informs the model.
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
        """Yield reactions without an upper bound, and invalid patterns."""
        if self.do and self.max is None and not self.counts_step:
            yield "max", "null with 'counts_step: false' has no upper bound: set a number"
        for key in ("patterns", "single_patterns"):
            for place, pattern in enumerate(getattr(self, key) or ()):
                yield from pattern_faults(f"{key}[{place}]", pattern)


class ToolOutput(Knob, frozen=True, kw_only=True):
    """The maximum size of a tool result. Keeps head and tail, or only the head.

    `max: null`: no maximum.
    """

    max: Annotated[int, Meta(ge=1)] | None = 16384
    unit: Literal["bytes", "chars"] = "bytes"
    keep: Literal["head_tail", "head"] = "head_tail"


class Truncation(Knob, frozen=True, kw_only=True):
    """Recovery from a response cut at the output limit: keep it and ask the model to continue.

    At most `max` times per `scope`. `when`: the response has no complete call, or an incomplete one, or
    either. `stitch` joins the texts in the outcome. `exhausted`: how a cut response counts when no recovery
    is left.
    """

    when: Literal["no_calls", "broken_calls", "either"] = "no_calls"
    max: Times = 2
    scope: Scope = "run"
    needs_text: bool = False
    stitch: bool = True
    exhausted: Literal["complete", "fail", "fail_if_broken"] = "complete"


class Stream(Knob, frozen=True, kw_only=True):
    """Retry of a stream that broke, or ended without text, calls and usage, at most `max` times per
    `scope`.
    """

    max: Times = 2
    scope: Scope = "run"


class Empty(Knob, frozen=True, kw_only=True):
    """Retry of a response without text and calls, which is not kept.

    The model is asked `again` at most this often (null: no maximum); `then` the response counts as complete
    or as an error.
    """

    again: Times | None = 0
    then: Literal["complete", "fail"] = "complete"


class Progress(Knob, frozen=True, kw_only=True):
    """A message to the model, `every` N steps, with the time used: kept, or in that request only.

    `clock: productive` excludes credited waits; `show_limit` adds the limit.
    """

    every: Annotated[int, Meta(ge=1)]
    kept: bool = True
    clock: Literal["wall", "productive"] = "wall"
    show_limit: bool = False
    before_history: bool = False


class At(Knob, frozen=True, kw_only=True):
    """Where a tier begins: at a `fraction` of the limit or when this much is `remaining`, whichever comes
    first.
    """

    fraction: Annotated[float, Meta(ge=0, le=1)] | None = None
    remaining: Whole | None = None

    def problems(self) -> Iterator[Fault]:
        """Yield the problem that neither is given."""
        if self == At():
            yield "", "expected 'fraction', 'remaining', or both"


class Without(Knob, frozen=True, kw_only=True):
    """All tools but these."""

    without: tuple[str, ...]


class Tier(Knob, frozen=True, kw_only=True):
    """A level of pressure: sends the text `pressure:<name>` in each request from `at` on, or `once` a turn.

    `place`: last in the request, as a system message, or with the newest result (and only there). `tools`:
    what is still offered.
    """

    name: Annotated[str, Meta(min_length=1)]
    at: At
    place: Literal["user", "system", "tool_result"] = "user"
    repeat: Literal["every", "once"] = "every"
    tools: Literal["all", "none"] | Without = "all"


class Pressure(Knob, frozen=True, kw_only=True):
    """Messages to the model that the limit named `of` is near. Not kept; the last matching tier is sent.

    `counts`: the step about to start (`next`), or completed steps (`used`). `acknowledge: escalate`: after a
    response to a tier that has calls and no text, the next tier is sent as a user message, with the text of
    the last tier.
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
    """Limits, history, recoveries, guards, approvals, retries, and when a run ends.

    `end_of_turn`: a response without tool calls completes the run (`complete`), is followed by a request to
    continue (`continue`), or by a user message (`wait`). `refusal`: how a response stopped by the provider's
    filter counts. `fallback`: the text of the outcome when a limit leaves none. `nudge`: end every request
    with the text `nudge`. `batch`: run the calls of a response in parallel or in order. `doubt`: for a call
    with an unknown outcome, inform the model or ask an operator first. `redact`: regular expressions, applied
    to each line before it is recorded; matches are removed. `texts`: overrides of the texts sent to the
    model, by key.

    Defaults are always written out, so a recorded policy keeps its meaning when a default changes. A key
    added by a later version defaults here to what older logs mean; `parse` fills in the language's own
    defaults.
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
        """Return the registries with which the parser has validated this policy. Not part of the value."""
        return []

    @cached_property
    def token_caps(self) -> tuple[tuple[str, int], ...]:
        """Return (tokenizer, cap) of each `trim_messages` that counts tokens. Not part of the value."""
        trims = [step for _, step in passes_of(self) if isinstance(step, TrimMessages) and step.tokenized]
        return tuple(dict.fromkeys((step.codec, step.cap) for step in trims if step.cap is not None))


def passes_of(policy: Policy) -> Iterator[tuple[str, Pass]]:
    """Yield every compaction step with its path: those of `history` and those inline in `overflow.do`."""
    for place, step in enumerate(policy.history):
        yield f"history[{place}]", step
    for place, entry in enumerate((policy.overflow.do or ()) if policy.overflow else ()):
        if not isinstance(entry, str):
            yield f"overflow.do[{place}]", entry


def text_of(policy: Policy, key: str) -> str:
    """Return the text for the model under this key; the built-in one if the policy predates the key.

    Raises `UnexpectedEvent` for an unknown key, which only a forged log can name.
    """
    text = _text(policy, key)
    if text is None:
        raise UnexpectedEvent("text", f"the policy has no text {key!r}")
    return text


def has_text(policy: Policy, key: str) -> bool:
    """Return whether there is a text under this key."""
    return _text(policy, key) is not None


def _text(policy: Policy, key: str) -> str | None:
    return policy.texts.get(key) or TEXTS.get(key)
