"""Replay: the verbs over logs. They read, derive and compare; no model, tool or network is ever reached."""

from refold.replay.audit import Audit, Auditor, Finding, audit
from refold.replay.cuts import NoCut, cut
from refold.replay.doubts import DoubtfulCall, doubts
from refold.replay.following import Follower, Step, follow
from refold.replay.parting import Difference
from refold.replay.queries.bisect import FirstTrue, bisect
from refold.replay.queries.blame import Blame, blame
from refold.replay.queries.diffs import Diff, diff
from refold.replay.queries.divergence import Divergence, divergence
from refold.replay.queries.grep import grep
from refold.replay.queries.stats import Stats, stats
from refold.replay.reader import Records, events, state_at, stored_events
from refold.replay.verification import Problem, Verification, Verifier, verify
from refold.replay.whatif.comparison import Comparison, side_by_side, whatif
from refold.replay.whatif.contexts import Contexts
from refold.replay.whatif.facts import Change
from refold.replay.whatif.only import only
from refold.replay.whatif.prices import Answered, Prices
from refold.replay.whatif.totals import Prefixes, Totals, totals_of
from refold.replay.whatif.verdict import Spend, Verdict, WhatIf
from refold.replay.whatif.view import Hypothesis, NoEvidence, hypothesis
from refold.replay.why import Opinion, Reasons, why

__all__ = [
    "Answered",
    "Audit",
    "Auditor",
    "Blame",
    "Change",
    "Comparison",
    "Contexts",
    "Diff",
    "Difference",
    "Divergence",
    "DoubtfulCall",
    "Finding",
    "FirstTrue",
    "Follower",
    "Hypothesis",
    "NoCut",
    "NoEvidence",
    "Opinion",
    "Prefixes",
    "Prices",
    "Problem",
    "Reasons",
    "Records",
    "Spend",
    "Stats",
    "Step",
    "Totals",
    "Verdict",
    "Verification",
    "Verifier",
    "WhatIf",
    "audit",
    "bisect",
    "blame",
    "cut",
    "diff",
    "divergence",
    "doubts",
    "events",
    "follow",
    "grep",
    "hypothesis",
    "only",
    "side_by_side",
    "state_at",
    "stats",
    "stored_events",
    "totals_of",
    "verify",
    "whatif",
    "why",
]
