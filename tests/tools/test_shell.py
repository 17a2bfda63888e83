"""Commands, run for real."""

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.engine import CallContext, shell
from refold.engine.tools.shell import HeadTail, ShellError
from refold.reducers.errors import WrongUse
from refold.reducers.vocabulary import Replay

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(os.name != "posix", reason="process groups are POSIX's")]

CALL = CallContext(run="r", call="c1", key="k1")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path.resolve()


async def run(root: Path, command: str, timeout: float = 20.0) -> str:
    (run_command,) = shell(root, timeout=timeout)
    return str(await run_command.run(json.dumps({"command": command}), CALL))


@pytest.mark.parametrize(
    ("command", "output"),
    [
        pytest.param(
            "echo out; echo err >&2; echo out", "out\nerr\nout\n[exit code 0]", id="both streams, in order"
        ),
        pytest.param("printf x; exit 3", "x\n[exit code 3]", id="an exit code is no failure"),
        pytest.param("cat", "[exit code 0]", id="there is no input"),
        pytest.param("kill -TERM $$", "[killed by SIGTERM]", id="a signal"),
        pytest.param("printf 'a\\377'", "a\ufffd\n[exit code 0]", id="what is not UTF-8"),
        pytest.param(
            "sleep 60 & echo left", "left\n[exit code 0]", id="nothing in the background is waited for"
        ),
    ],
)
async def test_commands(tmp_path: Path, command: str, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row a rule; the id says the rule."""
    monkeypatch.setattr(sys.modules["refold.engine.tools.shell"], "_DRAIN", 60.0)
    with anyio.fail_after(10):
        assert output == await run(tmp_path, command)


async def test_the_environment_holds_no_secrets(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command sees PATH, HOME and LANG, what sh itself sets, and nothing of ours."""
    monkeypatch.setenv("SOME_API_KEY", "secret")
    lines = (await run(root, "env")).splitlines()[:-1]
    names = {line.partition("=")[0] for line in lines}
    assert {"PATH", "HOME", "LANG"} <= names <= {"PATH", "HOME", "LANG", "PWD", "OLDPWD", "SHLVL", "_"}
    assert f"HOME={root}" in lines
    assert f"{root}\n[exit code 0]" == await run(root, "pwd")


async def alive(reader: int) -> bool:
    """Whether anybody still holds the other end of the pipe; a moment is given to a process that is being
    killed.
    """
    for _ in range(400):
        try:
            if not os.read(reader, 100):
                return False
        except BlockingIOError:
            pass
        await anyio.sleep(0.005)
    return True


@pytest.mark.parametrize("way", ["timeout", "cancelled", "ended"])
async def test_no_process_of_the_group_outlives_the_call(tmp_path: Path, way: str) -> None:
    """However a call ends, the child of a child of the command is dead soon after."""
    os.mkfifo(tmp_path / "alive")
    reader = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    try:
        background = "sh -c 'trap \"\" TERM HUP; sleep 60 & wait' > alive &"
        if way == "ended":
            assert "[exit code 0]" == await run(tmp_path, background)
        elif way == "timeout":
            output = await run(tmp_path, f"{background} echo said; exec sleep 60", timeout=0.2)
            assert "said\n[killed after 0.2 seconds, with all that it had started]" == output
        else:
            with anyio.move_on_after(0.2) as scope:
                await run(tmp_path, f"{background} exec sleep 60")
            assert scope.cancelled_caught
        assert not await alive(reader)
    finally:
        os.close(reader)


ENGINE = """
import json, sys
import anyio
from refold.engine import CallContext, shell
(tool,) = shell(sys.argv[1])
anyio.run(tool.run, json.dumps({"command": sys.argv[2]}), CallContext(run="r", call="c1", key="k1"), backend=sys.argv[3])
"""


async def test_no_process_of_the_group_outlives_the_engine(tmp_path: Path, anyio_backend_name: str) -> None:
    """After a SIGKILL of the engine the command and the child of its child are dead soon after."""
    os.mkfifo(tmp_path / "alive")
    reader = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    command = "sh -c 'trap \"\" TERM HUP; sleep 60 & echo begun; wait' > alive & exec sleep 60 > alive"
    args = [sys.executable, "-c", ENGINE, str(tmp_path), command, anyio_backend_name]
    async with await anyio.open_process(args, stdout=None, stderr=None) as engine:
        try:
            assert await begun(reader)
            engine.kill()
            await engine.wait()
            assert not await alive(reader)
        finally:
            os.close(reader)


async def begun(reader: int) -> bool:
    """Whether somebody has written to the pipe, within some seconds."""
    for _ in range(4000):
        with contextlib.suppress(BlockingIOError):
            if os.read(reader, 100):
                return True
        await anyio.sleep(0.005)
    return False


@pytest.mark.skipif(shutil.which("setsid") is None, reason="needs setsid")
async def test_one_who_left_the_group_does_not_hold_us_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that left the group and keeps the pipe open delays the result by a moment only."""
    monkeypatch.setattr(sys.modules["refold.engine.tools.shell"], "_DRAIN", 0.05)
    began = time.monotonic()
    output = await run(
        tmp_path, "setsid sh -c 'echo $$ > pid; exec sleep 20' & while [ ! -s pid ]; do :; done"
    )
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert "[exit code 0]" == output
    assert time.monotonic() - began < 10


async def test_much_output_is_bounded(tmp_path: Path) -> None:
    """Of a large output the beginning and the end are kept, and what is between is counted."""
    output = await run(tmp_path, "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end")
    assert output.startswith("xxx")
    assert output.endswith("x\nend\n[exit code 0]")
    assert f"\n[{3_000_005 - 2 * 131_072} bytes of 3000005 were left out here]\n" in output


@pytest.mark.parametrize(
    ("command", "message"),
    [
        pytest.param("a\0b", "a NUL or an unpaired surrogate", id="a zero byte"),
        pytest.param("x" * 3_000_000, "could not be started: Argument list too long", id="too long"),
    ],
)
async def test_a_command_that_cannot_start(tmp_path: Path, command: str, message: str) -> None:
    """It raises, and says why without saying where."""
    with pytest.raises(ShellError, match=message) as caught:
        await run(tmp_path, command)
    assert str(tmp_path) not in str(caught.value)


def test_what_cannot_be_a_shell(tmp_path: Path) -> None:
    """A root that is no directory and a timeout that is none are refused before any run."""
    with pytest.raises(WrongUse, match="is not a directory"):
        shell(tmp_path / "none")
    with pytest.raises(WrongUse, match="timeout"):
        shell(tmp_path, timeout=0)
    assert Replay.AT_MOST_ONCE == shell(tmp_path)[0].manifest.replay


@given(pieces=st.lists(st.binary(max_size=12), max_size=12), each=st.integers(1, 8))
def test_head_and_tail(pieces: list[bytes], each: int) -> None:
    """What is kept is the first and the last bytes, whatever the pieces, and never more than thrice the
    bound.
    """
    data = b"".join(piece.hex().encode() for piece in pieces)
    kept = HeadTail(each)
    for piece in pieces:
        kept.add(piece.hex().encode())
    left_out = len(data) - 2 * each
    if left_out <= 0:
        assert data.decode() == kept.text()
    else:
        note = f"\n[{left_out} bytes of {len(data)} were left out here]\n"
        assert data[:each].decode() + note + data[-each:].decode() == kept.text()
