"""An optional tool for shell commands. There is no sandbox: a command can do what the user can.

Each call has its own process group. When the command ends, times out or is cancelled, or when the engine is
killed by any signal, the complete group is killed, including background processes. Only processes that left
the group deliberately (`setsid`) survive.
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
)  # bytes of output stored from the beginning, and as many from the end, which bounds the memory
_DRAIN = 1.0  # seconds to read the rest of the pipe if a process outside the group still has it open
_GRACE = 10.0  # seconds from our own timeout to the engine's, which would lose the output

_SUPERVISED = (
    'exec 3<&0 </dev/null; { read -r _ <&3; kill -KILL 0; } >/dev/null 2>&1 & exec 3<&-; exec /bin/sh -c "$1"'
)
"""A second shell in the group reads from a pipe whose other end only the engine has. When the engine dies,
the kernel closes that end, and the shell kills the group. Linux's parent-death signal would kill one process
without its children, and at the end of a thread instead of the process.
"""


class ShellError(Exception):
    """A command could not be started. The message is for the model."""


class HeadTail:
    """The first and last bytes of a stream, and its size."""

    def __init__(self, each: int) -> None:
        self.each, self.size = each, 0
        self._head, self._tail = bytearray(), bytearray()

    def add(self, data: bytes) -> None:
        """Add the next bytes."""
        self.size += len(data)
        room = self.each - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self.each:  # not at every read, so that each byte is moved only once
            del self._tail[: -self.each]

    def text(self) -> str:
        """Return the stored text, with a note in the middle if bytes are missing; invalid UTF-8 is U+FFFD."""
        tail = self._tail[-self.each :]
        left_out = self.size - len(self._head) - len(tail)
        if not left_out:
            return (self._head + tail).decode(errors="replace")
        note = f"\n[{left_out} bytes of {self.size} were left out here]\n"
        return self._head.decode(errors="replace") + note + tail.decode(errors="replace")


def shell(root: str | os.PathLike[str], *, timeout: float = 120.0) -> list[Tool]:
    """Make the tool `run_command`: a command line for `/bin/sh`, run in `root` for at most `timeout` seconds.

    The command gets no input, and its environment has only `PATH`, `HOME` (the root) and `LANG`, so that it
    contains no secrets. The result is its stdout and stderr in order, and a last line with the exit code or
    that it was killed. A non-zero exit code is not a failure of the tool. Raises `WrongUse` if `root` is not
    a directory, or on systems without process groups (Windows).
    """
    if os.name != "posix":
        raise WrongUse(
            "shell: needs a POSIX system, to kill all processes of a command: remove it on this system"
        )
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
    async with _running(command, place) as process:
        with anyio.move_on_after(timeout):
            await _follow(process, output)
        code = process.returncode
    text = output.text()
    ended = f"killed after {timeout:g} seconds, with all that it had started" if code is None else _exit(code)
    return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}[{ended}]"


@contextlib.asynccontextmanager
async def _running(command: str, place: Path) -> AsyncGenerator[Process, None]:
    """Start the command and yield its process; kill it and its group on exit."""
    with anyio.CancelScope(shield=True) as scope:  # a cancelled start would leave an unknown process running
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
            stdin=subprocess.PIPE,  # not written to: see `_SUPERVISED`
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=place,
            env=environment,
            start_new_session=True,
        )
    except ValueError as error:  # a zero byte, half a character
        raise ShellError("the command contains a NUL or an unpaired surrogate") from error
    except OSError as error:
        raise ShellError(f"the command could not be started: {os.strerror(error.errno or 0)}") from error


async def _follow(process: Process, output: HeadTail) -> None:
    """Read output until the command ends, then the rest."""
    async with anyio.create_task_group() as reading:
        reading.start_soon(_read, process, output)
        await process.wait()
        _kill_group(process)  # else its background processes would keep the pipe open
        reading.cancel_scope.deadline = anyio.current_time() + _DRAIN


async def _read(process: Process, output: HeadTail) -> None:
    if process.stdout is not None:
        async for data in process.stdout:
            output.add(data)


def _kill_group(process: Process) -> None:
    # The group has the command's process id while a process is in it. An empty group does not exist or, on
    # macOS, raises PermissionError.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
