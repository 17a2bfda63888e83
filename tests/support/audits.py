"""Audits of logs that no store has."""

from refold.testing.audits import RUN, audit_events, chained, records

__all__ = ["RUN", "audited", "chained", "records"]

audited = audit_events
