"""Providers' words for why an answer stopped, in ours. One that nobody here has heard of is `OTHER`: no end of its own accord."""

from collections.abc import Mapping
from types import MappingProxyType

from refold.reducers.vocabulary import StopReason

_WORDS: Mapping[StopReason, tuple[str, ...]] = MappingProxyType(
    {
        StopReason.END_TURN: ("stop", "end_turn"),
        StopReason.MAX_TOKENS: (
            "length",
            "max_tokens",
            "max_output_tokens",
            "model_length",
            "model_context_window_exceeded",
        ),
        StopReason.TOOL_USE: ("tool_call", "tool_calls", "tool_use", "tooluse", "function_call"),
        StopReason.STOP_SEQUENCE: ("stop_sequence",),
        StopReason.CONTENT_FILTER: ("content_filter", "refusal"),
        StopReason.OTHER: ("error", "aborted", "cancelled", "pause_turn"),
    }
)
_STOPS = {word: stop for stop, words in _WORDS.items() for word in words}


def stop_of(word: str) -> StopReason | None:
    """The stop reason for a provider's word, None where it says nothing."""
    return _STOPS.get(_plain(word), StopReason.OTHER) if word else None


def end_of(word: str) -> str:
    """How a run ended whose last answer has no call and stopped by this word: without a known one nobody knows if it was whole."""
    match stop_of(word):
        case None | StopReason.OTHER:
            return "unknown"
        case StopReason.MAX_TOKENS:
            return "limit:token"
        case _:
            return "finished"


def is_known(word: str) -> bool:
    """Whether it is a word of which anybody here knows what it means."""
    return _plain(word) in _STOPS


def _plain(word: str) -> str:
    return word.lower().removeprefix("stopreason.").replace("-", "_")
