"""Replay: the verbs over logs. They read, derive and compare; no model, tool or network is ever reached."""

from refold.replay.audit import Audit, Auditor, Difference, Finding, audit
from refold.replay.doubts import DoubtfulCall, doubts
from refold.replay.reading import events, state_at
from refold.replay.verification import Problem, Verification, Verifier, verify
from refold.replay.why import Opinion, Reasons, why

__all__ = [
    "Audit",
    "Auditor",
    "Difference",
    "DoubtfulCall",
    "Finding",
    "Opinion",
    "Problem",
    "Reasons",
    "Verification",
    "Verifier",
    "audit",
    "doubts",
    "events",
    "state_at",
    "verify",
    "why",
]
