"""How each kind of event changes the state: `table` has one function for each kind."""

from refold.reducers.meanings.table import MEANINGS

__all__ = ["MEANINGS"]
