"""Questions to logs: one language about events and states, and the verbs that use it."""
