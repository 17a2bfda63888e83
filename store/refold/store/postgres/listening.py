"""Waiting for a notice that a run became runnable. A notice may be lost; workers also poll."""

from refold.store.postgres.connection import Link
from refold.store.postgres.threads import LaneInThread, Reply


class Listener:
    """Listens on a channel, in a thread of its own."""

    def __init__(self, link: Link, channel: str) -> None:
        self._lane, self._channel = LaneInThread(link, "refold-store-notices"), channel
        self._begun: Reply[bool] | None = None

    async def wait(self, seconds: float) -> bool:
        """Return whether a notice came, False after `seconds` at the latest or at once behind a pooler.

        A wait that is cancelled goes on in the thread: the next call gets its notice. Otherwise each would
        queue behind the waits that were cancelled, and miss what they receive. Raises `StoreUnavailable`, and
        `WrongUse` in a forked process.
        """
        self._lane.check_process()
        return await self._finish() or await self._finish(seconds)

    async def _finish(self, seconds: float | None = None) -> bool:
        """Wait for the end of a begun wait; begin one if there is none, with `seconds`."""
        if self._begun is None and seconds is not None:
            self._begun = self._lane.start(listen, self._channel, seconds)
        begun = self._begun
        if begun is None:
            return False
        try:
            return await begun.get()
        finally:
            if begun.over and self._begun is begun:  # otherwise this call was cancelled
                self._begun = None

    def close_soon(self) -> None:
        """Close the connection after the present wait, without waiting for it."""
        self._lane.close_soon()


def listen(link: Link, channel: str, seconds: float) -> bool:
    """Wait at most `seconds` for a notice; return whether one came, at once False behind a pooler.

    Raises `Lost`.
    """
    connection = link.connect()
    if link.pooled:
        return False
    if link.listening is not connection:
        link.execute(f'LISTEN "{channel}"')
        link.listening = connection
    return link.wait_for_notice(seconds)
