"""How much the models of runs read at once, by the word of who asks, where the record does not say. Never written."""

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from refold.reducers.events import Fact, RunStarted
from refold.reducers.vocabulary import Unknown


class Contexts(msgspec.Struct, frozen=True):
    """A table of context lengths. `name` says which, and which version of it.

    `length` is tokens, of a model asked at an address (each "" if unknown), None where the table does not say.
    """

    name: str
    length: Callable[[str, str], int | None]


def with_context(fact: Fact, contexts: Contexts | None) -> Fact:
    """What a run was started with, with the length of its model's context if only the table says it.

    Where nobody knows which model it was, a rule that asks for its name is judged as before.
    """
    if contexts is None or not isinstance(fact, RunStarted) or Unknown.CONTEXT not in fact.unknown:
        return fact
    length = contexts.length(fact.model, fact.address)
    if length is None or fact.context is not None:
        return fact
    known = (Unknown.CONTEXT,) if fact.model else ()
    return replace(fact, context=length, unknown=tuple(kind for kind in fact.unknown if kind not in known))
