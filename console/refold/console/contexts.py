"""`--contexts`: how many tokens models read at once, where the record does not say: by a file of yours, or by installed lists.

A file has a model's name a line, with tokens: `gpt-5-mini: 400000`. The line `"*"` is for every other model, and for a run of
which nobody knows the model. It is a word of who asks, and told as that: the file by its digest.
"""

from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from refold.console.prices import LISTS, read_table
from refold.reducers.errors import PolicyError, shown
from refold.replay.whatif.contexts import Contexts

OTHERS = "*"
"""The line for every other model."""

Tokens = Annotated[int, Meta(ge=1, le=2**53)]


def chosen_contexts(chosen: Path | None) -> Contexts | None:
    """The context lengths that were given: a file, or the installed lists by their name.

    Raises `PolicyFileError` for a file that cannot be read or has none, `WrongUse` where no lists are installed.
    """
    if chosen is None:
        return None
    if str(chosen) == LISTS and not chosen.is_file():
        from refold.engine.models.prices import list_name, listed_context

        return Contexts(list_name(), listed_context)
    name, table = read_table(chosen, "a table of context lengths", "gpt-5-mini: 400000", _length)

    def length(model: str, _: str) -> int | None:
        return table.get(model, table.get(OTHERS))

    return Contexts(name, length)


def _length(model: str, data: Any) -> int:
    try:
        return msgspec.convert(data, Tokens)
    except msgspec.ValidationError:
        raise PolicyError(model, f"expected tokens, a whole number above 0, got {shown(data)}") from None
