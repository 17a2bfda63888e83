"""What a model says in a run, as text that comes in pieces."""

from collections.abc import Callable
from typing import Self

from refold.engine.background import Background
from refold.engine.models.protocol import TextDelta
from refold.engine.updates import Recorded, Streamed, Update, Updates
from refold.reducers.events import ModelResponded

_EVERY_PIECE = 2**62
_BETWEEN = "\n\n"


class StreamedText:
    """An iteration over a run's text: every answer's, as it streams, with an empty line between two answers.

    Nothing is dropped for who reads slowly. Of a request that failed half-way, what had arrived was given; the next
    try begins anew behind an empty line.
    """

    def __init__(self, start: Callable[[], Background]) -> None:
        self.updates = Updates(start, room=_EVERY_PIECE)
        self._last: int | None = None  # the request of which the last piece came

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        while True:
            request, piece = self._piece(await anext(self.updates))
            if piece:
                between = "" if self._last in (None, request) else _BETWEEN
                self._last = request
                return between + piece

    def _piece(self, update: Update) -> tuple[int, str]:
        match update:
            case Streamed(request=request, delta=TextDelta(text=text)):
                return request, text
            case Recorded(event=ModelResponded(request=request, content=answer)) if request != self._last:
                return request, answer.text if answer else ""  # it came in one piece
            case _:
                return 0, ""
