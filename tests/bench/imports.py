"""What importing costs: CPU time and peak memory of fresh interpreters, everything compiled before."""

import os
import subprocess
import sys
import tempfile
from statistics import median

# The peak is the kernel's for this very program. `getrusage` would do elsewhere, but it counts what the
# process was before it became Python: a copy of the one that measures, with all its logs.
_SCRIPT = """
import time
begun = time.process_time()
{statement}
taken = time.process_time() - begun
peak = 0
try:
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) * 1024
except OSError:
    pass
print(taken, peak)
"""

STATEMENTS = {
    "nothing": "pass",
    "msgspec": "import msgspec",
    "refold.reducers": "import refold.reducers",
}


def imported(rounds: int = 7) -> dict[str, tuple[float, int]]:
    """Median CPU seconds of the import, and median peak memory in bytes, of each statement; rounds
    interleaved.

    The peak is 0 where there is no /proc to ask.
    """
    taken: dict[str, list[tuple[float, int]]] = {name: [] for name in STATEMENTS}
    with tempfile.TemporaryDirectory() as compiled:
        for statement in STATEMENTS.values():
            _once(statement, compiled)
        for _ in range(rounds):
            for name, statement in STATEMENTS.items():
                taken[name].append(_once(statement, compiled))
    return {
        name: (median(seconds for seconds, _ in once), int(median(peak for _, peak in once)))
        for name, once in taken.items()
    }


def _once(statement: str, compiled: str) -> tuple[float, int]:
    script = _SCRIPT.format(statement=statement)
    printed = subprocess.run(
        [sys.executable, "-X", f"pycache_prefix={compiled}", "-c", script],
        env={name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    seconds, peak = printed.split()
    return float(seconds), int(peak)
