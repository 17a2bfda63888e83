"""Reading a schema-constrained answer while it is written: the text or the call inside the JSON.

The sampler is held to the shapes of `local_dialect`, so the reader expects those and no others; white space
may stand where JSON allows it. What a call's arguments are is kept byte for byte.
"""

import json
import re
from typing import Final

import msgspec

from refold.engine.models.protocol import CallDelta, Delta, TextDelta

_ANSWER: Final = re.compile(r'\s*\{\s*"answer"\s*:\s*"')
_TOOL: Final = re.compile(r'\s*\{\s*"tool"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*(?=\S)')
# The pieces of a JSON string that are whole: plain characters, escapes, and surrogate pairs as one. A high
# surrogate waits for what follows it.
_WHOLE: Final = re.compile(
    r'(?:[^"\\]|\\[^u]|\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\u[0-9a-fA-F]{4}|(?!\\|\Z)|(?=\\[^u]))'
    r"|\\u(?![dD][89abAB])[0-9a-fA-F]{4})*"
)


class AnswerReader:
    """Feeds on pieces of the answer; `feed` returns the deltas that each piece completes.

    `text` is the answer's text so far; `tool` and `arguments` are the call's, None and "" while it is not
    known to be one. `closed` says that the text or the call is whole.
    """

    def __init__(self) -> None:
        self.tool: str | None = None
        self.closed = False
        self._head: str | None = ""  # what came before we knew the shape; None since
        self._rest = ""  # of a text: raw characters that are not whole yet
        self._pieces: list[str] = []
        self._depth, self._quoted, self._escaped = 0, False, False

    @property
    def text(self) -> str:
        """The text of the answer as far as it was written."""
        return "" if self.tool is not None else "".join(self._pieces)

    @property
    def arguments(self) -> str:
        """The arguments of the call as far as they were written, byte for byte."""
        return "" if self.tool is None else "".join(self._pieces)

    def feed(self, piece: str) -> list[Delta]:
        """Take in the next piece. Never raises: what does not fit any shape yields nothing."""
        if self._head is not None:
            return self._begin(self._head + piece)
        return self._more(piece)

    def _begin(self, head: str) -> list[Delta]:
        if found := _ANSWER.match(head):
            self._head = None
            return self._more(head[found.end() :])
        if found := _TOOL.match(head):
            self._head = None
            self.tool = _unquoted(found[1])
            return [CallDelta(0, name=self.tool), *self._more(head[found.end() :])]
        self._head = head
        return []

    def _more(self, piece: str) -> list[Delta]:
        if self.closed:
            return []
        new = self._text(piece) if self.tool is None else self._raw(piece)
        if not new:
            return []
        self._pieces.append(new)
        return [TextDelta(new) if self.tool is None else CallDelta(0, arguments=new)]

    def _text(self, piece: str) -> str:
        raw = self._rest + piece
        whole = _WHOLE.match(raw)
        end = whole.end() if whole else 0
        self._rest = raw[end:]
        self.closed = self._rest.startswith('"')
        return _unquoted(f'"{raw[:end]}"')

    def _raw(self, piece: str) -> str:
        for position, char in enumerate(piece):
            if self._closes(char):
                self.closed = True
                return piece[: position + 1]
        return piece

    def _closes(self, char: str) -> bool:
        """Step over one character of the arguments; say whether it ends them."""
        if self._quoted:
            self._quoted = self._escaped or char != '"'
            self._escaped = char == "\\" and not self._escaped
        elif char == '"':
            self._quoted = True
        elif char in "{[":
            self._depth += 1
        elif char in "}]":
            self._depth -= 1
            return self._depth <= 0
        return False


def _unquoted(literal: str) -> str:
    """A JSON string literal's text; control characters that strict JSON forbids are taken as they are."""
    try:
        return msgspec.json.decode(literal, type=str)
    except (msgspec.MsgspecError, UnicodeError):
        return _lenient(literal)


def _lenient(literal: str) -> str:
    """What msgspec refuses: raw control characters, and lone surrogates, which become U+FFFD."""
    try:
        text = str(json.loads(literal, strict=False))
    except ValueError:
        text = literal[1:-1]
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
