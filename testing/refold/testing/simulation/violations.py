"""Violations: broken promises of the engine, of tools, of guards, or of the user's own check."""

from enum import StrEnum, unique

import msgspec


@unique
class ViolationKind(StrEnum):
    """What was violated. The first group concerns tools, guards and policies, the second the engine."""

    NOT_IDEMPOTENT = "not_idempotent"  # a second execution of an idempotent tool changed the world
    NOT_READ_ONLY = "not_read_only"  # a read-only tool changed the world
    REPEATED_EFFECT = "repeated_effect"  # one call had an effect twice
    FAILED_CHECK = "failed_check"  # the user's check
    IGNORED_CANCELLATION = "ignored_cancellation"  # a tool ran on after its cancellation
    ENDLESS_RUN = "endless_run"  # a run neither ended nor waits for an operator
    AUDIT = "audit"  # decisions do not follow from the log, as with a guard that has hidden state

    DAMAGED_LOG = "damaged_log"  # a log does not verify
    LOST_EVENT = "lost_event"  # an acknowledged or reported event is not in the log
    EARLY_CALL = "early_call"  # a tool ran before its dispatch was recorded
    REPEATED_CALL = "repeated_call"  # a tool ran again, and no record states that it had not happened
    FOREIGN_KEY = "foreign_key"  # a tool ran under the idempotency key of another call
    STALE_LEASE = "stale_lease"  # an engine wrote under a lease that it had lost
    BROKEN_STREAM = "broken_stream"  # the updates of a stream do not fit together
    ENGINE_ERROR = "engine_error"  # an error that no planned fault explains


class Violation(msgspec.Struct, frozen=True):
    """A broken promise: its kind, and a sentence."""

    kind: ViolationKind
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"
