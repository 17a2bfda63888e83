"""What a history pass is given, and what it answers: a plan, made of numbers and sizes, never of texts."""

from collections.abc import Mapping

import msgspec

from refold.reducers.messages import TextCut
from refold.reducers.texts import TEXTS
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
    kept: tuple[tuple[int, int], ...] | None = None

    def text(self, key: str) -> str:
        """What the harness says under this key."""
        return self.texts.get(key) or TEXTS[key]


class Shortening(msgspec.Struct, frozen=True, kw_only=True):
    """A message to be shown shorter: `text` is the key of what stands where something was cut, `values` fill it.

    `{removed}` is each cut's own. The length of what is shown follows from the cuts and the policy's texts.
    """

    number: int
    text: str
    cuts: tuple[TextCut, ...]
    values: dict[str, str | int] = {}


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the harness that stands for what was dropped, right after message `after` (0: in front).

    With `sources` it is a digest: a line for each of them, `per_message` characters each, `total` in all.
    """

    text: str
    after: int
    role: Role = Role.USER
    values: dict[str, str | int] = {}
    covers: int = 0
    covered_tokens: int = 0
    sources: tuple[MessageRef, ...] = ()
    per_message: int = 0
    total: int = 0


class Covering(msgspec.Struct, frozen=True, kw_only=True):
    """A summary to be asked for: of the messages `numbers`; it is to stand right after message `after`."""

    numbers: tuple[int, ...]
    after: int
    role: Role
    max_output: int | None
    tokens: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a pass wants. `keep`: the numbers that stay, whole units and all that is pinned; None: all of them."""

    keep: frozenset[int] | None = None
    shorter: tuple[Shortening, ...] = ()
    marker: Marker | None = None
    summary: Covering | None = None
