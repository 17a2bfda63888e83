"""What is asked of everything that was broken: an answer, or one of our errors, in bounded time and words."""

import io
import signal
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import FrameType

from hypothesis import settings

from console.conftest import Ran
from refold.console.main import main
from refold.reducers.errors import RefoldError
from refold.replay import audit, state_at, verify, why
from refold.replay.timeline import timeline
from refold.store.protocol import Store
from support.strategies import scaled

SECONDS = 20
"""The most that one case may take, on a machine that does much else: nearly all take some milliseconds."""
WORDS = 4_000
"""The most characters of an error: whoever reads it has a terminal."""
CODES = (0, 1, 2, 3, 4, 125)


def examples(number: int) -> settings:
    """So many examples by default, fewer or more as the profile says."""
    return settings(max_examples=scaled(number))


@contextmanager
def within(seconds: int = SECONDS) -> Iterator[None]:
    """Fails what takes longer, where the system can interrupt it."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"hangs: not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def dangerous(text: str) -> set[str]:
    """The characters that could act on a terminal, line ends and tabs aside."""
    return {char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - set(
        "\n\t\u200c\u200d"
    )


def assert_sound(ran: Ran) -> None:
    """A command answered, or complained in a few harmless words, with an exit code that means something."""
    assert ran.code in CODES
    assert "bug of refold" not in ran.err, ran.err
    assert "Traceback" not in ran.err, ran.err
    assert set() == dangerous(ran.out + ran.err)
    assert len(ran.err) < WORDS


def refold(*words: str | Path) -> Ran:
    """What a command does in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), within():
        code = main([str(word) for word in words])
    return Ran(code, out.getvalue(), err.getvalue())


def error_of(work: Callable[[], object]) -> RefoldError | None:
    """The error of ours by which something ended, None where it did not; any other fails the test."""
    try:
        work()
    except RefoldError as error:
        return error
    return None


async def told(store: Store, run: str) -> list[RefoldError]:
    """Ask everything that can be asked of a run.

    The errors that came instead of answers; any other fails the test.
    """
    errors = list[RefoldError]()
    for ask in (verify, audit, timeline, state_at, why):
        try:
            await ask(store, run)
        except RefoldError as error:
            errors.append(error)
    assert all(map(str, errors))
    return errors
