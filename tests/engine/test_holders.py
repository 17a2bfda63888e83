"""Whether the process that has a lease is surely gone: never believed of a name that does not say so."""

import os
import subprocess
import sys

import pytest

from refold.engine.tenure import is_gone, new_holder

LINUX = sys.platform.startswith("linux")
SCRIPT = "from refold.engine.tenure import new_holder; print(new_holder())"


@pytest.fixture
def dead() -> str:
    """The holder's name of a process that has ended."""
    return subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.parametrize(
    "form",
    [
        pytest.param("elsewhere:{pid}:{birth}:{nonce}", id="of another machine"),
        pytest.param("{host}:{pid}::{nonce}", id="without a birth"),
        pytest.param("{host}::{birth}:{nonce}", id="without a process id"),
        pytest.param("{host}:x{pid}:{birth}:{nonce}", id="with a process id that is no number"),
        pytest.param("{host}:{pid}:another{birth}:{nonce}", id="of another boot"),
        pytest.param("{host}", id="of a machine alone"),
    ],
)
def test_a_name_that_does_not_say_that_it_is_gone(form: str, dead: str) -> None:
    """A process is gone where its machine, boot, id and birth are all there and no such process runs; else it
    may run.
    """
    host, pid, birth, nonce = dead.rsplit(":", 3)
    assert is_gone(dead) is LINUX
    assert not is_gone(form.format(host=host, pid=pid, birth=birth, nonce=nonce))


@pytest.mark.skipif(not LINUX, reason="needs /proc")
def test_a_process_that_has_ended_and_that_nobody_waited_for() -> None:
    """A zombie has its id and its birth still, and drives nothing any more: it is gone."""
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        holder = process.stdout.read().strip()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert is_gone(holder)
    assert not is_gone(new_holder())
