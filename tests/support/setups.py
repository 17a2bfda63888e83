"""What a run goes by, of which a test says only what it is about."""

from typing import Any

from msgspec.structs import replace

from refold.reducers.state import NEW, Setup


def setup_of(**said: Any) -> Setup:
    """A setup with these fields."""
    return replace(NEW.setup, **said)
