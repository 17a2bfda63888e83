"""Waiting for a notice that a run became runnable. A notice may be lost; workers also poll."""

from refold.store.postgres.connection import Link


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
