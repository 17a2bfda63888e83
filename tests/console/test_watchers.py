"""The last lines of a terminal on which a run is watched: the call that is still written, and for how long
nothing came.
"""

import io
from collections.abc import Iterator

import pytest
from rich.console import Console

from refold.console.screen import Screen
from refold.console.watchers import LiveWatcher
from refold.engine import Recorded, Streamed
from refold.engine.models.protocol import CallDelta, TextDelta
from support.scenario import Scenario

RUN = Scenario({})


class Clock:
    """Stands still until it is told."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watcher(clock: Clock) -> Iterator[LiveWatcher]:
    """A watcher of a run that has asked its model."""
    screen = Screen()
    screen.rich = Console(file=io.StringIO(), force_terminal=True, width=120)
    made = LiveWatcher(screen, clock)
    made.take(Recorded(seq=len(RUN.log), event=RUN.log[-1]), RUN.state)
    yield made
    made.close()


def bottom(watcher: LiveWatcher) -> list[str]:
    """The last lines as they stand on a wide terminal."""
    console = Console(file=io.StringIO(), width=400)
    with console.capture() as shown:
        console.print(watcher.bottom())
    return [line.strip() for line in shown.get().splitlines()]


def stream(watcher: LiveWatcher, *pieces: CallDelta | TextDelta) -> None:
    for piece in pieces:
        watcher.take(Streamed(request=2, delta=piece), RUN.state)


def test_a_call_that_is_still_written(watcher: LiveWatcher) -> None:
    """The tool stands there, and its main argument as far as it is there: no JSON."""
    stream(watcher, CallDelta(0, "Bash"))
    assert "calling Bash" == bottom(watcher)[0]
    stream(watcher, CallDelta(0, "", '{"description": "Push it.", "comm'), CallDelta(0, "", 'and": "git pu'))
    assert "calling Bash  git pu" == bottom(watcher)[0]
    stream(watcher, CallDelta(1, "Read", '{"file_path": "/a'))
    assert "calling Read  /a" == bottom(watcher)[0]
    watcher.take(Recorded(seq=3, event=RUN.log[-1]), RUN.state)
    assert 1 == len(bottom(watcher))


def test_what_a_model_writes_does_not_act_on_the_terminal(watcher: LiveWatcher) -> None:
    """Neither in a name nor in arguments."""
    stream(watcher, CallDelta(0, "Ba\x1b[2Jsh", '{"command": "\\u001b[2J'))
    assert "\x1b" not in bottom(watcher)[0]


def test_seconds_of_silence(watcher: LiveWatcher, clock: Clock) -> None:
    """They are counted while nothing comes, and until something does."""
    assert "silent" not in bottom(watcher)[-1]
    clock.now += 12
    assert bottom(watcher)[-1].endswith("silent for 12 s")
    stream(watcher, TextDelta("a"))
    assert "silent" not in bottom(watcher)[-1]
