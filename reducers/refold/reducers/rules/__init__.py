"""What is decided, and in which order: `order` has every phase, its checks, and `decide`."""

from refold.reducers.rules.order import DIGEST_EVERY, ORDER, RULES, Phase, decide, rules_of

__all__ = ["DIGEST_EVERY", "ORDER", "RULES", "Phase", "decide", "rules_of"]
