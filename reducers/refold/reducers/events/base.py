"""What every event is: an immutable value with a kind, and perhaps content.

An event's *body* is all its fields but `content`: ids, names, numbers, sizes, reasons. Its `content` is what
was said: texts, arguments, outputs. Folding needs bodies only, so `content` is None where it was not read,
and for ever where it was erased. What became a message has its `Size` in the body, with a digest of the words, so
that what a model saw can be told apart without them; of every content the store's chain has the digest.
"""

from refold.reducers.values import Value
from refold.reducers.vocabulary import Unknown


class Event(Value, frozen=True, kw_only=True, tag_field="kind"):
    """Base of all events. Kinds and fields never change their meaning; new fields have defaults."""


class Fact(Event, frozen=True, kw_only=True):
    """Something from outside that cannot be recomputed. `at` is integer nanoseconds since the Unix epoch.

    `unknown` is what its source does not say of it: of `run_started` what it says nowhere. Of a run of ours, what nobody knew.
    """

    at: int
    unknown: tuple[Unknown, ...] = ()


class Decision(Event, frozen=True, kw_only=True):
    """Something that a pure function derived from the state and one fact; it happened when its fact did."""


class Annotation(Event, frozen=True, kw_only=True, tag_field="annotation"):
    """Something worth keeping that has no effect on the state. `at` as in `Fact`.

    Its body is tagged `annotation`, not `kind`: so a reader knows of an annotation that it does not know
    that it may be skipped.
    """

    at: int


class Content(Value, frozen=True, kw_only=True):
    """Base of what was said. It can be erased; nothing that decides may need it without saying so."""
