"""Queries over logs: one language for events and states, and the commands that use it."""
