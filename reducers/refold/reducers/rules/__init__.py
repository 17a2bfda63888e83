"""What is decided, and in which order: `order` has every phase, its checks, and `decide`."""

from refold.reducers.rules.order import DIGEST_EVERY, ORDER, RULES, Phase, decide

__all__ = ["DIGEST_EVERY", "ORDER", "RULES", "VERSIONS", "Phase", "decide"]

VERSIONS = {RULES: decide}
"""Every version of the decision rules that a log may name; old ones stay here, and stay callable."""
