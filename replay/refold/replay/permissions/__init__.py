"""Permission rules over recorded calls: hits, comparisons of two lists of rules, and proposals."""
