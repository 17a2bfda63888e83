"""What each kind of event means: `table` says which function it is."""

from refold.reducers.meanings.table import MEANINGS

__all__ = ["MEANINGS"]
