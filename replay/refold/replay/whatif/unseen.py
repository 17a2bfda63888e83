"""What the other run has in other words, as long as nobody has been shown it: a difference counts where it reaches somebody."""

from collections.abc import Mapping
from itertools import islice

from refold.reducers.state import RunState
from refold.reducers.window import refs
from refold.replay.whatif.shown import Parted


class Unseen:
    """Facts that another policy would have had recorded in other words (`words`), by their numbers in the other run."""

    def __init__(self) -> None:
        self._facts: dict[int, Parted] = {}

    def copied(self) -> "Unseen":
        """The same, to be followed in another way."""
        other = Unseen()
        other._facts = dict(self._facts)
        return other

    def add(self, seq: int, apart: Parted) -> None:
        """One more, and in what it is another."""
        self._facts[seq] = apart

    def told(self, state: RunState) -> Parted | None:
        """In what the runs part because somebody besides the model learns of one: who asked for the run, or is asked in it."""
        if not self._facts:
            return None
        outcome = state.outcome
        if outcome is not None:
            words = (*outcome.parts, outcome.answer)
            return next((self._facts[seq] for seq in words if seq in self._facts), None)
        return next(iter(self._facts.values())) if state.asked_at is not None else None

    def reason(self, state: RunState, apart: Parted) -> Parted:
        """Why the runs part: where the model is shown other messages, because one of these is among them."""
        if apart.kind not in ("view", "summary") or not self._facts:
            return apart
        return next((self._facts[ref.seq] for ref in refs(state.window) if ref.seq in self._facts), apart)

    def listed(self, origins: Mapping[int, int], most: int) -> tuple[tuple[int, str], ...]:
        """The first of them, by their recorded numbers, with what makes each another. `origins`: what those are, if others."""
        first = islice(self._facts.items(), most)
        return tuple((origins.get(seq, seq), apart.why) for seq, apart in first)
