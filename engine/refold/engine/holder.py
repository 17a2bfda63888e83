"""Who holds a lease: a name that tells engines apart, and by which a dead one's can be told on the same machine.

A lease runs out by itself. But a restart of what was killed should not have to wait for that, and a machine
knows which of its processes are gone: by process id and the instant it was started, in one boot and one namespace
of process ids. Where that cannot be known (another machine or container, another system than Linux), nobody is
taken for dead.
"""

import os
import secrets
import socket
from functools import cache
from pathlib import Path

_PROC = Path("/proc")


def this_process() -> str:
    """A name for this process: `host:pid:birth`. `birth` is "" where a process has none."""
    return _name(os.getpid())


def new_holder() -> str:
    """A name for one engine of this process: `host:pid:birth:nonce`."""
    return f"{this_process()}:{secrets.token_hex(4)}"


def is_gone(holder: str) -> bool:
    """Whether the process of this holder surely runs no more. False where that cannot be known, as of a name without a birth."""
    host, pid, birth = (*holder.rpartition(":")[0].rsplit(":", 2), "", "")[:3]
    if host != _host() or not birth or not pid.isdecimal() or birth.split(".")[0] != _era():
        return False
    now = _birth(int(pid))
    return not _runs(int(pid)) if now is None else now != birth


def _runs(pid: int) -> bool:
    """Whether there is a process of this id, where its files cannot be read."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # another user's
    return True


@cache  # by the id: a process that was forked has another
def _name(pid: int) -> str:
    return f"{_host()}:{pid}:{_birth(pid) or ''}"


@cache
def _host() -> str:
    return socket.gethostname()


def _birth(pid: int) -> str | None:
    """When a process was started, within its era; "" if it is over, None if that cannot be known."""
    era = _era()
    try:
        # The name of the program stands in brackets, and may hold anything: what follows the last one is fields.
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    # Field 22 of proc(5); after the brackets the third is the first. A zombie holds nothing any more.
    return f"{era}.{fields[19]}" if era and len(fields) > 19 and fields[0] not in "ZX" else ""


@cache
def _era() -> str:
    """This boot of this machine, and the namespace in which process ids mean something."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot[:8]}-{(_PROC / 'self/ns/pid').stat().st_ino}"
    except OSError:
        return ""
