"""Messages that are cut to a number of tokens, one a character."""

from collections.abc import Sequence

from conformance.replayer import Replayer
from refold.reducers import Message
from refold.reducers.events import MessageTrimmed
from refold.reducers.history.results import halves, head_and_tail, shares
from refold.reducers.vocabulary import Role

Cut = dict[str, int] | None
_OF_A_RUN = (["text"], ["reasoning"], ["text", "reasoning"])


class Knife:
    """A pass that cuts messages, and the length of its marker: so many characters and the number that it
    says.
    """

    def __init__(
        self,
        preset: str,
        cap: int | None,
        marker: str,
        roles: Sequence[str],
        last: int | None = None,
        place: str = "within",
    ) -> None:
        self._preset, self._cap, self._marker, self._roles, self._last = preset, cap, marker, roles, last
        self._place = place

    def texts(self, messages: Sequence[tuple[str, int]]) -> list[Cut]:
        """How each of these messages, (role, tokens), is shown. They are no conversation."""
        run = self._run([Message(role=Role(role), text="x" * size) for role, size in messages])
        cuts = {trimmed.message: trimmed.cuts[0] for trimmed in run.of(MessageTrimmed)}
        numbers = range(1, len(messages) + 1)
        return [_cut(cuts[n].head, cuts[n].tail, cuts[n].removed) if n in cuts else None for n in numbers]

    def parts(self, role: str, chunks: Sequence[tuple[str, int]]) -> list[Cut]:
        """How the parts of one message, (kind, tokens), are shown; what is no text is not counted.

        A message of ours has a text and a reasoning; of more parts the pure functions are asked.
        """
        kinds = [kind for kind, _ in chunks]
        if kinds not in _OF_A_RUN:
            return self._shared(role, chunks)
        sizes = dict(chunks)
        text, reasoning = "x" * sizes.get("text", 0), "x" * sizes.get("reasoning", 0)
        run = self._run([Message(role=Role(role), text=text, reasoning=reasoning)])
        cuts = {cut.part: cut for trimmed in run.of(MessageTrimmed) for cut in trimmed.cuts}
        said = [next((cut for part, cut in cuts.items() if part == kind), None) for kind in kinds]
        return [_cut(cut.head, cut.tail, cut.removed) if cut else None for cut in said]

    def _shared(self, role: str, chunks: Sequence[tuple[str, int]]) -> list[Cut]:
        counts = [size for kind, size in chunks if kind != "image"]
        if self._cap is None or role not in self._roles or sum(counts) <= self._cap:
            return [None] * len(chunks)
        if self._place == "beside":
            kept = iter(halves(counts, self._cap))
            return [None if kind == "image" else _half(size, next(kept)) for kind, size in chunks]
        given = iter(shares(counts, self._cap))
        return [None if kind == "image" else self._to(size, next(given)) for kind, size in chunks]

    def _to(self, size: int, share: int) -> Cut:
        if size <= share:
            return None
        head, tail, _ = head_and_tail(share, len(self._marker.format(removed=size)))
        return _cut(head, tail, size - head - tail)

    def _run(self, messages: list[Message]) -> Replayer:
        step = {
            "name": "trim",
            "do": "trim_messages",
            "when": {"always": True},
            "cap": self._cap,
            "last": self._last,
            "roles": list(self._roles),
            "codec": "char",
            "marker": self._place,
        }
        policy = {"preset": self._preset, "history": [step], "texts": {"trimmed": self._marker}}
        return Replayer.begin(policy | {"overflow": None}, messages, apart=True)


def _half(size: int, half: int | None) -> Cut:
    return None if half is None else _cut(half, half, size - 2 * half)


def _cut(head: int, tail: int, trimmed: int) -> Cut:
    return {"head": head, "tail": tail, "trimmed": trimmed}
