"""The words by which a person says how a call ended."""

from enum import StrEnum

from refold.reducers.vocabulary import Doubt


class Ending(StrEnum):
    """How a call ended whose end was not recorded, as it is typed; the log's own word is understood too."""

    HAPPENED = "happened"
    DID_NOT = "did-not"
    UNKNOWN = "unknown"

    @classmethod
    def _missing_(cls, value: object) -> "Ending | None":
        return cls.DID_NOT if value == Doubt.DID_NOT else None

    @property
    def doubt(self) -> Doubt:
        """As the log has it."""
        return Doubt[self.name]


# In braces: typed just so, a shell makes three words of it, and the command refuses them. A `|` would begin another command.
ENDINGS = f"{{{','.join(Ending)}}}"
"""The words in a command that is shown, of which one is to be typed."""
