"""What a history pass is given, and what it answers: a plan, made of numbers, sizes and the harness's own words."""

from collections.abc import Mapping, Sequence

import msgspec

from refold.reducers.messages import Gap, Size, TextCut
from refold.reducers.numbers import Ranges
from refold.reducers.texts import TEXTS, render
from refold.reducers.vocabulary import Role
from refold.reducers.window import MessageRef, Window


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """The moment at which a pass runs: before step `step` (from 1) is requested of `model`.

    `context` is the model's context in tokens, None if nobody knows it; `tools` the estimate of what is offered
    beside the messages; `turn_start` that no step was made in this turn yet. `forced`: an overflow asks, whatever
    `when` says; `single`: the provider complained about one message. `texts` are the policy's, for their lengths.
    Of an imported run: of its first `upto` messages its own harness kept the ranges `kept`, None: all.
    """

    window: Window
    step: int = 1
    model: str = ""
    context: int | None = None
    tools: int = 0
    turn_start: bool = False
    forced: bool = False
    single: bool = False
    texts: Mapping[str, str] = {}
    upto: int = 0
    kept: Ranges | None = None

    def text(self, key: str, whole: Size, removed: int) -> str:
        """What the harness says under this key where so much of a message was cut, of which `whole` is the size."""
        return render(self.texts.get(key) or TEXTS[key], cut_values(whole, removed))


def cut_values(whole: Size, removed: int) -> dict[str, str | int]:
    """What fills the text that stands where so much of a message was cut: the characters of its text and reasoning, too."""
    reasoning = {"reasoning": whole.reasoning} if whole.reasoning else {}
    return {"size": whole.chars, **reasoning, "removed": removed}


class Shortening(msgspec.Struct, frozen=True, kw_only=True):
    """A message to be shown shorter, and what is said where something was cut: a text a cut."""

    number: int
    cuts: tuple[TextCut, ...]
    texts: tuple[str, ...]


class Covering(msgspec.Struct, frozen=True, kw_only=True):
    """A summary to be asked for, of these messages; it is to stand right after message `after`."""

    messages: Ranges
    after: int
    role: Role
    max_output: int | None
    input_tokens: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a pass wants. `drop`: what leaves, in order, whole units and nothing that is pinned; None: it is none that drops.

    `gap` is what one message stands for that tells of all that was dropped.
    """

    drop: Sequence[MessageRef] | None = None
    shorter: tuple[Shortening, ...] = ()
    gap: Gap | None = None
    summary: Covering | None = None
