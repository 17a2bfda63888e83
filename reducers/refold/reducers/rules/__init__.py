"""The decision rules: `order` has every phase with its checks, and `decide`."""

from refold.reducers.rules.order import DIGEST_EVERY, ORDER, RULES, Phase, decide, rules_of

__all__ = ["DIGEST_EVERY", "ORDER", "RULES", "Phase", "decide", "rules_of"]
