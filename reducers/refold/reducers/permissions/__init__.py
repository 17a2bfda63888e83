"""Permission rules: which commands, paths and hosts the calls of an agent may use."""
