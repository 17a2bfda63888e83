"""Tests with real processes, and how to leave them out."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """`-m "not slow"` leaves them out."""
    config.addinivalue_line("markers", "slow: takes up to a minute")
