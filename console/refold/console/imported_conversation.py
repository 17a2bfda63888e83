"""The identity of an imported run in its source."""

from collections.abc import Mapping

import msgspec

from refold.reducers.events import Parent
from refold.reducers.source_marks import PARENT_LABEL
from refold.reducers.vocabulary import SOURCE_LABEL


class ImportedConversation(msgspec.Struct, frozen=True):
    """An imported run's identity in its source, and its parent if known, from its first event.

    `apart` is the key of the parent run if the file does not name the call: "" if it does not name the run
    either, None without a parent, or if the call is known.
    """

    run: str
    format: str
    key: str
    apart: str | None = None
    parent: Parent | None = None

    @classmethod
    def of(cls, run: str, labels: Mapping[str, str], parent: Parent | None) -> "ImportedConversation":
        """Return the identity from a run's labels."""
        key, above = labels.get("source.key", ""), labels.get(PARENT_LABEL)
        return cls(run, labels.get(SOURCE_LABEL, ""), key, None if "source.call" in labels else above, parent)
