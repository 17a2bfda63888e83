"""`make big`: can a run of 340,000 events and 1 GB be opened, shown, judged, within 500 MB of memory?

    python tests/bench/big.py [--messages N] [--folder FOLDER] [--keep]

The run is made by the real reducers and appended by the real store; then each command runs in a process of
its own, whose seconds and peak resident memory are printed. Exit code 1 if one fails or needs more memory
than it may.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

MESSAGES = 130_000
BYTES_A_MESSAGE = 25_000
"""Of free disk that making one needs, its log and what commands print of it included: generous."""
ALLOWED = 500 * 10**6
COMMANDS = (
    "show RUN",
    "show RUN -o json",
    "show RUN --all",
    "show RUN --raw",
    "verify RUN",
    "verify RUN -o json",
    "audit RUN",
    "audit RUN -o json",
    "state RUN",
    "state RUN -o json",
    "state RUN@t40000",
    "view RUN",
    "view RUN@t40000 -o json",
    "why RUN",
    "why RUN -o json",
    "ls",
)


class Ran(NamedTuple):
    """What a process took: seconds by the clock, and of a processor; its peak resident memory; bytes that it
    printed.
    """

    seconds: float
    processor: float
    peak: int
    printed: int


def main() -> int:
    """Make the run, do everything to it, print the figures. The exit code."""
    options = _options()
    free, needed = shutil.disk_usage(options.folder).free, options.messages * BYTES_A_MESSAGE
    if free < needed:
        print(f"{options.folder}: {needed // 10**6} MB are needed, {free // 10**6} are free", file=sys.stderr)
        return 4
    folder = Path(tempfile.mkdtemp(prefix="refold-big-", dir=options.folder))
    try:
        return _measured(folder, options.messages)
    finally:
        if options.keep:
            print(f"kept in {folder}")
        else:
            shutil.rmtree(folder)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure every command on a run of a gigabyte.")
    parser.add_argument("--messages", type=int, default=MESSAGES, metavar="N", help="length of the run")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where to put it")
    parser.add_argument("--keep", action="store_true", help="do not delete it")
    return parser.parse_args()


def _measured(folder: Path, messages: int) -> int:
    store, printed = folder / "runs.db", folder / "printed"
    print(f"{'':28} {'seconds':>8} {'CPU s':>8} {'peak MB':>8} {'printed MB':>10}", flush=True)
    made = _ran([str(HERE / "big_run.py"), str(store), str(messages)], printed)
    _print("make the run", made)
    print(f"{printed.read_text().strip()}, {store.stat().st_size / 10**6:,.0f} MB on disk")
    opening = [str(HERE / "resume.py"), str(store)]
    ran: dict[str, Ran] = {}
    for name, words in (
        ("without a snapshot", opening),
        ("and save one", [*opening, "--save"]),
        ("with it", opening),
    ):
        ran[name] = _ran(words, printed)
        _print(f"open {name}", ran[name])
        print(f"  {printed.read_text().strip()}")
    for command in COMMANDS:
        words = command.replace("RUN", "bench").replace("40000", str(messages // 4)).split()
        ran[command] = _ran(["-m", "refold.console", *words, "--store", str(store)], printed)
        _print(f"refold {command}", ran[command])
    worst = max(ran, key=lambda name: ran[name].peak)
    print(f"most memory: {ran[worst].peak / 10**6:.0f} MB ({worst}); allowed are {ALLOWED // 10**6}")
    return int(ran[worst].peak > ALLOWED)


def _ran(words: list[str], printed: Path) -> Ran:
    """Run Python with these words, its output in the file `printed`. Exits with 1 where it fails."""
    with printed.open("wb") as output:
        begun = time.perf_counter()
        child = subprocess.Popen([sys.executable, *words], stdout=output, cwd=ROOT)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - begun
    if child.returncode:
        sys.exit(f"{' '.join(words)}: exit code {child.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024
    processor = used.ru_utime + used.ru_stime
    return Ran(seconds, processor, used.ru_maxrss * unit, printed.stat().st_size)


def _print(name: str, ran: Ran) -> None:
    print(
        f"{name:28} {ran.seconds:8.1f} {ran.processor:8.1f} {ran.peak / 10**6:8.0f} {ran.printed / 10**6:10.1f}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
