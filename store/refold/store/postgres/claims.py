"""A run's row: its head and its claim, as a lease rule reads and changes it.

The rules of leases are in `base`. A rule runs on a row that was read without a lock. What it changed is
written only if the claim is still what the rule saw; otherwise the rule runs again.
"""

from collections.abc import Sequence
from typing import Any

from refold.store import rows
from refold.store.postgres.connection import SqlRow
from refold.store.protocol import Claim, DamagedStore, Head
from refold.store.tables import LAST_TOKEN


class RunRow:
    """A run's row: see `base.Claims`, whose rules change it. `number` 0 is a run that has no row yet."""

    def __init__(self, shown: str, run: str, row: SqlRow, now: int) -> None:
        self._shown, self.run, self._now = shown, run, now
        self.number: int
        self._token: int
        self.epoch: int
        self.number, self._token, seq, hashed, holder, *claim = row
        self._until, left, length, self._woken, self.epoch = claim
        self._holder = rows.text(holder)
        self.head = Head(seq=seq, hash=hashed)
        self._before = (self._token, self._holder, self._until, self._woken)
        self._left = min(left or 0, length)
        self.astray = left is not None and left > length
        """Whether the clock was set back since the claim was written."""
        self._length: int | None = None  # of a claim that the rule wrote
        self.changed = False

    @classmethod
    def read(cls, shown: str, row: SqlRow) -> "RunRow":
        """Convert a row of `schema.RUNS_NOW`. Raises `DamagedStore`."""
        name, number, token, seq, hashed, holder, until, left, length, woken, epoch, now, sound = row
        run = rows.run_id(name)
        if run is None or len(hashed) != 32 or seq < 0 or token < 0:
            raise DamagedStore(shown, f"run number {number}: its id, token or head is not valid")
        if not sound:
            raise DamagedStore(
                shown, f"run {run}: its row ends at event {seq}, which is missing or has another hash"
            )
        return cls(shown, run, (number, token, seq, hashed, holder, until, left, length, woken, epoch), now)

    @classmethod
    def new(cls, shown: str, run: str, now: int) -> "RunRow":
        """Return the row of a run that was never leased."""
        return cls(shown, run, (0, 0, 0, bytes(32), b"", None, None, 0, False, 0), now)

    def token(self, run: str) -> int:  # noqa: ARG002 - a rule asks of one run
        """See `Claims.token`."""
        return self._token

    def has_events(self, run: str) -> bool:  # noqa: ARG002
        """See `Claims.has_events`."""
        return self.head.seq > 0

    def claim(self, run: str) -> Claim | None:
        """See `Claims.claim`."""
        if self._until is None:
            return None
        return Claim(run=run, holder=self._holder, token=self._token, seconds=self._left / 1000)

    def woken(self, run: str) -> bool:  # noqa: ARG002
        """See `Claims.woken`."""
        return bool(self._woken)

    def fence(self, run: str) -> int:
        """See `Claims.fence`. Raises `DamagedStore` if the token cannot grow."""
        if self._token >= LAST_TOKEN:
            raise DamagedStore(
                self._shown, f"run {run}: its token is {self._token}, and no lease can follow it"
            )
        # At least the time, so that tokens of a restored store are above those given before.
        self._token, self.changed = max(self._token + 1, self._now), True
        return self._token

    def set_claim(self, run: str, holder: str, length: int) -> None:  # noqa: ARG002
        """See `Claims.set_claim`."""
        self._holder, self._length, self._woken, self.changed = holder, length, False, True

    def renew_claim(self, run: str, length: int) -> None:  # noqa: ARG002
        """See `Claims.renew_claim`."""
        if self._holder:
            self._length, self.changed = length, True

    def drop_claim(self, run: str) -> None:  # noqa: ARG002
        """See `Claims.drop_claim`."""
        self._holder, self._until, self._length, self._woken, self.changed = "", None, None, False, True

    def wake(self, run: str) -> None:  # noqa: ARG002
        """See `Claims.wake`."""
        if self._holder:
            self._woken, self._length, self.changed = True, None, True
        elif self._until is None or self._left > 0:
            self._length, self._woken, self.changed = 0, False, True

    def change(self) -> dict[str, Any]:
        """Return the change for `schema.SET_CLAIMS` or `ADD_CLAIMS`."""
        token, holder, until, woken = self._before
        keeps = self._length is None and self._until is not None
        return {
            "id": self.run,
            "number": self.number,
            "old_token": token,
            "old_holder": holder,
            "old_until": until,
            "old_woken": woken,
            "token": self._token,
            "holder": self._holder,
            "keeps": keeps,
            "due": self._length is not None,
            "length": self._length or 0,
            "woken": self._woken,
        }


def read_rows(shown: str, found: Sequence[SqlRow]) -> dict[str, RunRow]:
    """Convert rows of `schema.RUNS_NOW` by run. Raises `DamagedStore`."""
    every = [RunRow.read(shown, row) for row in found]
    by_run = {row.run: row for row in every}
    if len(by_run) < len(every):
        twice = next(row.run for row in every if by_run[row.run] is not row)
        raise DamagedStore(shown, f"run {twice} has several rows: one of its logs would be hidden")
    return by_run
