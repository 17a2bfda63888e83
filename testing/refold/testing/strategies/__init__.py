"""Hypothesis strategies: policies, events, logs and the behaviour of models."""

from refold.testing.strategies.driver import Driver, drive
from refold.testing.strategies.events import events
from refold.testing.strategies.logs import logs, runs
from refold.testing.strategies.policies import policies
from refold.testing.strategies.scripts import scripts

__all__ = ["Driver", "drive", "events", "logs", "policies", "runs", "scripts"]
