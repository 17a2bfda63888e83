"""Words with which a model says that it is done.

Source: the completion words of inspect_agents, and the stop condition `content_match` of tirea 0.5.
"""

from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from refold.reducers.events import Event, ModelResponded
from refold.reducers.guards.common import Config
from refold.reducers.guards.protocol import Judgement, Place, Stop
from refold.reducers.machine import Trigger
from refold.reducers.state import RunState


class Keywords(Config, frozen=True, kw_only=True, tag="keywords"):
    """Complete the run when an answer's text holds one of `words`: at once, its calls refused, or after its tools.

    `case: ignore` folds the case of both; `exact` takes them as they are. Reasoning is not looked at.
    """

    words: Annotated[tuple[Annotated[str, Meta(min_length=1)], ...], Meta(min_length=1)]
    case: Literal["ignore", "exact"] = "ignore"
    when: Literal["response", "after_tools"] = "response"

    kind: ClassVar[str] = "keywords"
    places: ClassVar[frozenset[Place]] = frozenset({Place.ON_RESPONSE, Place.AFTER_TOOLS})
    observes: ClassVar[frozenset[type[Event]]] = frozenset({ModelResponded})
    reads_content: ClassVar[bool] = True
    fresh: ClassVar[int] = 0

    def observe(self, own: int, event: Event) -> int:
        """The number, from 1, of the first word that the latest answer holds; 0 for none."""
        if not isinstance(event, ModelResponded):
            return own
        text = self._folded(event.content.text if event.content else "")
        return next((place for place, word in enumerate(self.words, 1) if self._folded(word) in text), 0)

    def _folded(self, text: str) -> str:
        return text.casefold() if self.case == "ignore" else text

    def judge(self, own: int, state: RunState, place: Place) -> Iterable[Judgement]:  # noqa: ARG002
        """Complete the run at the place that is configured."""
        here = Place.ON_RESPONSE if self.when == "response" else Place.AFTER_TOOLS
        if own and place == here:
            yield Stop(
                code="keyword",
                reason="the answer holds a word that ends the run",
                saw={"word": own},
                trigger=Trigger.COMPLETE,
                text="refused:stopped",
            )
