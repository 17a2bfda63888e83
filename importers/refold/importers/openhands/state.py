"""`base_state.json`, which stands beside the events of a conversation of the SDK: its id, its model, its usage, its state.

Each response is counted in it by its id, where the events have no usage at all.
"""

from collections.abc import Sequence

import msgspec

from refold.importers.fields import JSON, rows, table, text
from refold.importers.items import Answered, Item
from refold.importers.usages import UsageNames, plus
from refold.reducers.messages import Usage

_TOKENS = UsageNames(
    input=("prompt_tokens",),
    output=("completion_tokens",),
    cache_read=("cache_read_tokens",),
    cache_write=("cache_write_tokens",),
    reasoning=("reasoning_tokens",),
)


def is_state(row: JSON) -> bool:
    """Whether a row is such a state, and no event."""
    return {"execution_status", "stats"} <= table(row).keys() and "kind" not in table(row)


class BaseState(msgspec.Struct, frozen=True):
    """What a state says of the run: `usages` by the ids of responses; "" and nothing where there is no state."""

    key: str = ""
    model: str = ""
    usages: dict[str, Usage] = {}

    def count(self, item: Item) -> Item:
        """The item, an answer with the usage of its response."""
        if not isinstance(item, Answered) or item.quality or item.response_id not in self.usages:
            return item
        return msgspec.structs.replace(item, usage=self.usages[item.response_id], quality="reported")


def read_state(listed: Sequence[JSON]) -> BaseState:
    """What the last of these states says."""
    if not listed:
        return BaseState()
    state, usages = listed[-1], dict[str, Usage]()
    for metrics in table(state, "stats", "usage_to_metrics").values():
        for used in rows(metrics, "token_usages"):
            response, usage = text(used, "response_id"), _TOKENS.of(used)
            if response and usage is not None:
                usages[response] = plus(usages[response], usage) if response in usages else usage
    return BaseState(text(state, "id"), text(state, "agent", "llm", "model"), usages)
