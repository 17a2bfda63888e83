"""An audit beside other work on a log: it ends where it can go no further, and what is around it goes on."""

from collections.abc import Callable

from refold.reducers.errors import CannotJudge, Damaged
from refold.reducers.guards import BUILTIN, Registry
from refold.replay.audit import Audit, Auditor
from refold.store.protocol import Stored


class PartialAudit:
    """Takes a run's records in order. `refused` says why it ended before them, "" if it did not; so does `damaged` of the result."""

    def __init__(self, run: str, registry: Registry = BUILTIN) -> None:
        self._auditor = Auditor(run, registry)
        self.damaged = self.refused = ""

    def take(self, stored: Stored) -> None:
        """Take one record."""
        self._do(lambda: self._auditor.take(stored))

    def result(self) -> Audit:
        """What was found, as far as it went. There is no more to come."""
        self._do(self._auditor.finish)
        return self._auditor.result(self.damaged)

    @property
    def policy(self) -> str:
        """Hex SHA-256 of the policy that is in force where it stands."""
        return self._auditor.policy

    def _do(self, step: Callable[[], None]) -> None:
        if self.damaged or self.refused:
            return
        try:
            step()
        except Damaged as error:
            self.damaged = str(error)
        except CannotJudge as error:
            self.refused = str(error)
