"""Show only the beginning of large results of tools."""

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from refold.reducers.history.cuts import cut_text, shortening
from refold.reducers.history.scene import Plan, Scene
from refold.reducers.history.strategy import Strategy
from refold.reducers.text import preview_length
from refold.reducers.vocabulary import Role
from refold.reducers.window import refs


class PreviewResults(Strategy, frozen=True, kw_only=True, tag="preview_results"):
    """A result of at least `tokens` is shown as its first `chars` characters, or `lines` lines if that is less.

    How many characters that are is known since the result came in: the state holds no text. Source: `tirea`.
    """

    name: str = "preview_results"
    tokens: Annotated[int, Meta(ge=1)]
    chars: Annotated[int, Meta(ge=1)]
    lines: Annotated[int, Meta(ge=1)]

    def plan(self, scene: Scene) -> Plan | None:
        """Cut each large result to its preview."""
        return shortening(
            cut_text(scene, ref, "preview", ref.preview, 0)
            for ref in refs(scene.window)
            if ref.role is Role.TOOL and ref.preview and ref.size.tokens >= self.tokens
        )


def previewed(passes: Iterable[Strategy], text: str, tokens: int) -> int:
    """How many characters of a result the first of these passes to preview it would show; 0: all of them."""
    for step in passes:
        if isinstance(step, PreviewResults) and tokens >= step.tokens:
            length = preview_length(text, step.chars, step.lines)
            return length if length < len(text) else 0
    return 0
