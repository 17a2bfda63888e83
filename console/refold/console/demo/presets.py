"""The demo's runs under a preset, and what their logs must show.

Expectations follow from the policy, not from the preset's name, so they hold for variants and future presets.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from refold.reducers import events as ev
from refold.reducers import parse
from refold.reducers.errors import WrongUse, nearest
from refold.reducers.history.windows import Summarise
from refold.reducers.machine import TERMINAL
from refold.reducers.policy import Policy, Pressure, Tier
from refold.reducers.presets import PRESETS, preset_data
from refold.replay.timeline import Timeline

FILES: Mapping[str, str] = MappingProxyType(
    {
        "README.md": "# refold\n\nrefold runs agents on a log: every run can be replayed, audited and forked.\n",
        "log.md": "# The log\n\nA run is an append-only log of events. The state is a fold over the log.\n",
        "limits.md": "# Limits\n\nA limit that trips ends the run: steps, time, tokens, cost or messages.\n",
        "audit.md": "# Audit\n\nAn audit derives every decision again from the facts, and compares.\n",
    }
)
"""File names and texts to read without `--root`."""


class PlayedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A played run: its timeline, its events in order, and the text of its outcome."""

    told: Timeline
    events: tuple[ev.Event, ...]
    text: str

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.told.agent_state in TERMINAL


class Expected(msgspec.Struct, frozen=True):
    """A property that a log must show: its description, its check, and the policies that it applies to."""

    shown: str
    holds: Callable[[PlayedRun], bool]
    applies: Callable[[Policy], bool] = lambda policy: True  # noqa: ARG005


class DemoScene(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the demo: its task, policy and expectations, with or without the reading tools."""

    title: str
    task: str
    policy: Mapping[str, Any]
    expects: tuple[Expected, ...]
    tools: bool = True
    settings: Mapping[str, Any] = {}


# As many as a model of this size uses to read the files one by one, with no step left for an answer.
STEPS = 5
# Ends no normal run even on a busy machine: the work takes about 10 s on two idle cores.
SECONDS = 600
OUTPUT = 60
CUT_OUTPUT = 24

_READ = f"List the files. Then read every file, one after the other: {', '.join(FILES)}."
_TELL = "Tell me everything about event sourcing, at length."

# Compaction steps with limits so low that four short files exceed them.
_SMALL: Mapping[str, Mapping[str, Any]] = {
    "tail": {"last": 2},
    "trim_messages": {"cap": 12, "codec": "chars4"},
    "token_tail": {"budget": 200, "min_last": 1},
    "compact": {"budget": 200},
    "age_results": {
        "keep_last": 2,
        "soft": {"over": 60, "head": 20, "tail": 20},
        "hard": {"over": 10_000},
    },
    "preview_results": {"tokens": 8, "chars": 30, "lines": 1},
    "summarise": {
        "keep_first": 0,
        "keep_last": 2,
        "keep_tokens": None,
        "from_last_user": False,
        "min_gain": 0,
        "min_messages": 1,
        "cut_at": "any",
    },
}


def scenes(preset: str) -> tuple[DemoScene, ...]:
    """Return the runs of a preset or variant, each with the checks that apply to it.

    Raises `WrongUse` for other names.
    """
    if preset not in PRESETS:
        raise WrongUse(f"unknown preset {preset!r}{nearest(preset, PRESETS)}")
    if preset == "observed":
        raise WrongUse(
            "the preset 'observed' is for imported runs, and has no loop to play; try `refold import`"
        )
    base = _base(preset)
    played = [
        _scene("reads until its steps run out", _READ, base, READING, tools=True),
        _scene("is cut at the output limit", _TELL, base, TELLING, tools=False),
    ]
    if history := preset_data(preset).get("history"):
        small = {**base, "history": [_shrink_step(each) for each in history]}
        played.append(_scene("keeps a small window", _READ, small, REMEMBERING, tools=True))
    return tuple(played)


def _scene(
    what: str, task: str, policy: Mapping[str, Any], rules: Sequence[Expected], *, tools: bool
) -> DemoScene:
    meant = parse(policy)
    return DemoScene(
        title=f"{policy['preset']}: an agent {what}",
        task=task,
        policy=policy,
        tools=tools,
        settings={"max_tokens": OUTPUT if tools else CUT_OUTPUT},
        expects=tuple(rule for rule in rules if rule.applies(meant)),
    )


def _base(preset: str) -> dict[str, Any]:
    limits = [{"type": "step", "value": STEPS}, {"type": "time", "value": SECONDS}]
    base: dict[str, Any] = {"preset": preset, "limits": limits}
    if preset_data(preset).get("approvals"):  # the demo has no operator
        rules = [{"tool": "*", "decision": "approve"}]
        base["approvals"] = {"chain": [{"approver": "rules", "rules": rules}]}
    return base


def _shrink_step(step: Mapping[str, Any]) -> dict[str, Any]:
    always = step["when"].get("always", False)
    return {**step, "when": {"always": True} if always else {"messages": 4}, **_SMALL.get(step["do"], {})}


def _has_tier(policy: Policy) -> bool:
    """Return whether a tier applies at a step that is reached: with five steps, nine tenths never are
    before the end.
    """
    pressure = policy.pressure
    if pressure is None or pressure.of != "step":
        return False
    return any(_holds(pressure, tier, made) for tier in pressure.tiers for made in range(STEPS))


def _holds(pressure: Pressure, tier: Tier, made: int) -> bool:
    counted = made if pressure.counts == "used" else made + 1
    far = tier.at.fraction is not None and counted / STEPS >= tier.at.fraction
    return far or (tier.at.remaining is not None and STEPS - counted <= tier.at.remaining)


def _requests(seen: PlayedRun, purpose: str) -> list[ev.ModelRequested]:
    return [
        event for event in seen.events if isinstance(event, ev.ModelRequested) and event.purpose == purpose
    ]


def _injections(seen: PlayedRun, text: str) -> list[int]:
    return [
        place
        for place, event in enumerate(seen.events)
        if isinstance(event, ev.MessageInjected) and event.text == text
    ]


def _has_pressure(seen: PlayedRun) -> bool:
    return any(said.tier for request in _requests(seen, "step") for said in request.request_only)


def _has_nudge(seen: PlayedRun) -> bool:
    requests = _requests(seen, "step")
    return bool(requests) and all(
        "nudge" in [said.text for said in request.request_only] for request in requests
    )


def _has_continuation(seen: PlayedRun) -> bool:
    """Return whether a response follows the first message about a truncated one."""
    return any(
        isinstance(event, ev.ModelResponded)
        for place in _injections(seen, "truncated")[:1]
        for event in seen.events[place:]
    )


def _has_stitch(seen: PlayedRun) -> bool:
    answers = [
        event.content.text for event in seen.events if isinstance(event, ev.ModelResponded) and event.content
    ]
    return bool(answers) and len(seen.text) > max(map(len, answers))


def _has_summary(seen: PlayedRun) -> bool:
    return any(
        isinstance(event, ev.MessageInjected) and event.gap and event.gap.source for event in seen.events
    )


def _is_smaller(seen: PlayedRun) -> bool:
    return any(isinstance(event, ev.HistoryPruned | ev.MessageTrimmed) for event in seen.events)


READING = (
    Expected("a request warned the model that a limit is near", _has_pressure, _has_tier),
    Expected(
        "after its last step it was granted one more request, without tools",
        lambda seen: bool(_requests(seen, "grace")),
        lambda policy: policy.grace is not None and "step" in policy.grace.on,
    ),
    Expected("each request nudged the model", _has_nudge, lambda policy: policy.nudge),
    Expected(
        "the model was informed of the time used",
        lambda seen: bool(_injections(seen, "progress")),
        lambda policy: policy.progress is not None,
    ),
    Expected(
        "a limit ended the run",
        lambda seen: seen.told.limit is not None,
        lambda policy: policy.end_of_turn == "continue",
    ),
)
TELLING = (
    Expected(
        "a response was cut, and the model was asked to continue and did",
        _has_continuation,
        lambda policy: policy.truncation is not None and policy.truncation.when != "broken_calls",
    ),
    Expected(
        "the outcome is longer than any response: its parts are joined",
        _has_stitch,
        lambda policy: (
            policy.truncation is not None
            and policy.truncation.stitch
            and policy.truncation.when != "broken_calls"
        ),
    ),
    Expected(
        "the cut response ended the run, and the log records that it was cut",
        lambda seen: seen.told.code == "truncated",
        lambda policy: policy.truncation is None and policy.end_of_turn == "complete",
    ),
    Expected(
        "a finished turn was answered with a request to continue",
        lambda seen: bool(_injections(seen, "continue")),
        lambda policy: policy.end_of_turn == "continue",
    ),
)
REMEMBERING = (
    Expected(
        "a summary by the model replaces older messages",
        _has_summary,
        lambda policy: any(isinstance(step, Summarise) for step in policy.history),
    ),
    Expected(
        "older messages were dropped or shortened",
        _is_smaller,
        lambda policy: any(not isinstance(step, Summarise) for step in policy.history),
    ),
)
