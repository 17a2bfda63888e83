"""Messages with the provider's own call ids, and how their results find the calls they answer.

Ids repeat in real transcripts, and some formats have none, so adjacency decides where they do not.
"""

from collections.abc import Sequence

from refold.reducers.messages import Message, MessageCall
from refold.reducers.vocabulary import Role


def messages(pieces: Sequence[Message]) -> tuple[Message, ...]:
    """Messages of which each result names a call before it, by an id that is unique among them.

    A result belongs to the first open call of its id; without one, of its name; without one, to the first open call.
    One for which no call is open is left out: ask `unpaired`.
    """
    made: list[Message] = []
    open_calls: list[tuple[str, str, str]] = []
    seen: set[str] = set()
    for piece in pieces:
        if piece.role is Role.TOOL:
            if call := _taken(open_calls, piece):
                made.append(Message(role=Role.TOOL, text=piece.text, call=call[2], name=call[1] or None))
            continue
        calls = tuple(MessageCall(_unique(call.id, seen), call.name, call.arguments) for call in piece.calls)
        open_calls += [(asked.id, call.name, call.id) for asked, call in zip(piece.calls, calls, strict=True)]
        made.append(Message(role=piece.role, text=piece.text, reasoning=piece.reasoning, calls=calls))
    return tuple(made)


def unpaired(pieces: Sequence[Message]) -> tuple[Message, ...]:
    """The results for which no call is open before them."""
    open_calls: list[tuple[str, str, str]] = []
    found: list[Message] = []
    for piece in pieces:
        open_calls += [(call.id, call.name, call.id) for call in piece.calls]
        if piece.role is Role.TOOL and not _taken(open_calls, piece):
            found.append(piece)
    return tuple(found)


def _taken(open_calls: list[tuple[str, str, str]], piece: Message) -> tuple[str, str, str] | None:
    """Take out the call that a result answers. Each is (the provider's id, the name, our id)."""
    places = range(len(open_calls))
    by_id = (place for place in places if piece.call and open_calls[place][0] == piece.call)
    by_name = (place for place in places if piece.name and open_calls[place][1] == piece.name)
    found = next((place for fits in (by_id, by_name, places) for place in fits), None)
    return None if found is None else open_calls.pop(found)


def _unique(wanted: str, seen: set[str]) -> str:
    base = wanted or "call"
    made, number = base, 2
    while made in seen:
        made, number = f"{base}#{number}", number + 1
    seen.add(made)
    return made
