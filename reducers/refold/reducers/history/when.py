"""When a history pass runs: every condition that is given must hold."""

from typing import Annotated

import msgspec
from msgspec import Meta

from refold.reducers.window import Window


class When(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """`always`; more than so many `messages` in the window; more than so many estimated `tokens` in it."""

    always: bool = False
    messages: Annotated[int, Meta(ge=1)] | None = None
    tokens: Annotated[int, Meta(ge=1)] | None = None

    @property
    def waits(self) -> bool:
        """Whether there is a threshold to wait for."""
        return self.messages is not None or self.tokens is not None

    def holds(self, window: Window) -> bool:
        """Whether every condition given holds; with none given, only `always` makes it true."""
        conditions = [
            window.count > self.messages if self.messages is not None else None,
            window.tokens > self.tokens if self.tokens is not None else None,
        ]
        given = [condition for condition in conditions if condition is not None]
        return all(given) if given else self.always
