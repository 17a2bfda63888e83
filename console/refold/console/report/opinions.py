"""What limits and guards said at every fact, packed: they say the same few words thousands of times."""

import msgspec

from refold.console.report.data import PackedOpinion
from refold.replay import figures
from refold.replay.why import ALLOWED, Opinion

_MOST = 4000  # characters of a guard's memory


class Packer:
    """Gives each word a number. `words` has them in order."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    @property
    def words(self) -> tuple[str, ...]:
        """The words, by their numbers from 0."""
        return tuple(self._numbers)

    def packed(self, opinion: Opinion) -> PackedOpinion:
        """One opinion."""
        own = ""
        if opinion.own is not None and opinion.said != (ALLOWED,):
            own = msgspec.json.encode(opinion.own, order="deterministic").decode()
        return PackedOpinion(
            opinion.before,
            self._number(opinion.place),
            self._number(opinion.who),
            self._number(", ".join(opinion.said)),
            tuple((self._number(key), value) for key, value in opinion.saw.items()),
            figures.cut(own, _MOST),
        )

    def _number(self, word: str) -> int:
        return self._numbers.setdefault(word, len(self._numbers))
