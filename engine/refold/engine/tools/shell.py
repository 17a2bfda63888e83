"""Commands of a shell, for those who ask for it. No sandbox: a command can do what the user can.

A call is a process group of its own. When the command ends, runs out of time or is cancelled, or when the
engine dies by whatever signal, the whole group is killed, so what it started in the background ends with it;
only what left the group on purpose (`setsid`) gets away.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
from anyio.abc import Process

from refold.engine.tools.decorator import tool
from refold.engine.tools.protocol import Tool
from refold.reducers.errors import WrongUse

KEPT = (
    128 * 1024
)  # bytes of output kept from the beginning, and as many from the end: all the memory it can cost
_DRAIN = (
    1.0  # seconds to read what is left in the pipe, should a process outside the group still hold it open
)
_GRACE = 10.0  # seconds beyond our own timeout before the engine's strikes, which would lose the output

_SUPERVISED = (
    'exec 3<&0 </dev/null; { read -r _ <&3; kill -KILL 0; } >/dev/null 2>&1 & exec 3<&-; exec /bin/sh -c "$1"'
)
"""Beside the command a shell reads from a pipe whose other end only the engine holds. When the engine dies,
the kernel closes that end, and the shell kills the group. Linux's parent-death signal would do so for one
process, not for its children, and on the end of a thread, not of the process.
"""


class ShellError(Exception):
    """A command could not be started. The message is for the model."""


class HeadTail:
    """The first bytes of a stream and the last, and how many there were."""

    def __init__(self, each: int) -> None:
        self.each, self.size = each, 0
        self._head, self._tail = bytearray(), bytearray()

    def add(self, data: bytes) -> None:
        """Take the next bytes."""
        self.size += len(data)
        room = self.each - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self.each:  # now and then: each byte is moved once, not once a read
            del self._tail[: -self.each]

    def text(self) -> str:
        """What was kept, a note in between if that is not all; what is not UTF-8 as U+FFFD."""
        tail = self._tail[-self.each :]
        left_out = self.size - len(self._head) - len(tail)
        if not left_out:
            return (self._head + tail).decode(errors="replace")
        note = f"\n[{left_out} bytes of {self.size} were left out here]\n"
        return self._head.decode(errors="replace") + note + tail.decode(errors="replace")


def shell(root: str | os.PathLike[str], *, timeout: float = 120.0) -> list[Tool]:
    """The tool `run_command`: a line for `/bin/sh`, run in `root`, for `timeout` seconds at most.

    The command gets no input and an environment of `PATH`, `HOME` (the root) and `LANG` only, so no secret of
    ours leaks by it. What it writes, errors among it in their order, is the output; a last line tells the
    exit code, or that it was killed. An exit code is no failure of the tool. Raises `WrongUse` if `root` is
    no directory, or where there are no process groups (Windows).
    """
    if os.name != "posix":
        raise WrongUse("shell: needs a POSIX system, to kill all that a command started: leave it out here")
    place = Path(root).resolve()
    if not place.is_dir():
        raise WrongUse(f"root {os.fspath(root)!r}: is not a directory: give the one to run commands in")
    if not 0 < timeout < float("inf"):
        raise WrongUse(f"timeout: expected seconds above 0, got {timeout!r}")

    @tool(timeout=timeout + _GRACE)
    async def run_command(command: str) -> str:
        """Run a shell command and give its output and exit code. It gets no input and is killed after a time.

        Args:
            command: the command line, for sh
        """
        return await _run(command, place, timeout)

    return [run_command]


async def _run(command: str, place: Path, timeout: float) -> str:
    output = HeadTail(KEPT)
    async with _started(command, place) as process:
        with anyio.move_on_after(timeout):
            await _follow(process, output)
        code = process.returncode
    text = output.text()
    ended = f"killed after {timeout:g} seconds, with all that it had started" if code is None else _exit(code)
    return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}[{ended}]"


@contextlib.asynccontextmanager
async def _started(command: str, place: Path) -> AsyncGenerator[Process, None]:
    """The command's process; it and its group are dead when this is left, by whatever way."""
    with anyio.CancelScope(shield=True) as scope:  # cancelled half-way, it would run unknown to us
        process = await _start(command, place)
        scope.shield = False
        try:
            yield process
        finally:
            scope.shield = True
            _kill_group(process)
            await process.aclose()


async def _start(command: str, place: Path) -> Process:
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(place),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
    }
    try:
        return await anyio.open_process(
            ["/bin/sh", "-c", _SUPERVISED, "sh", command],
            stdin=subprocess.PIPE,  # never written to: see `_SUPERVISED`
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=place,
            env=environment,
            start_new_session=True,
        )
    except ValueError as error:  # a zero byte, half a character
        raise ShellError("the command holds a character that no command can hold") from error
    except OSError as error:
        raise ShellError(f"the command could not be started: {os.strerror(error.errno or 0)}") from error


async def _follow(process: Process, output: HeadTail) -> None:
    """Read until the command ends, then what is left."""
    async with anyio.create_task_group() as reading:
        reading.start_soon(_read, process, output)
        await process.wait()
        _kill_group(process)  # else what it left in the background would hold the pipe open, and us
        reading.cancel_scope.deadline = anyio.current_time() + _DRAIN


async def _read(process: Process, output: HeadTail) -> None:
    if process.stdout is not None:
        async for data in process.stdout:
            output.add(data)


def _kill_group(process: Process) -> None:
    # The group bears the command's number for as long as a process is in it. Empty, it is gone, or, on macOS,
    # not ours.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
