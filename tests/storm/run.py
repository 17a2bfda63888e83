"""Let workers be killed and suspended for a while, and count: `python tests/storm/run.py --seconds 60`.

With `--postgres` the runs are in a PostgreSQL server of their own, whose sessions and processes are hit too.

Exits with 0 if every promise was kept, 1 if not. The last line has the figures.
"""

import argparse
import random
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))  # a script's own folder is on the path, not the one above it

from storm.places import SYNCED, HitServer  # noqa: E402
from storm.raging import Figures, storm  # noqa: E402
from support.postgres import PostgresServer  # noqa: E402


def main() -> int:
    """Rage, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--keep", type=Path, help="an empty folder for what is written; else it is deleted")
    parser.add_argument("--postgres", action="store_true", help="over a PostgreSQL server, which is hit too")
    asked = parser.parse_args()
    print(
        f"seed {asked.seed}, {asked.runs} runs, {asked.workers} workers, killed and suspended for {asked.seconds:g} s"
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        server = PostgresServer(SYNCED) if asked.postgres else None
        try:
            figures = _rage(asked, folder, HitServer(server.start()) if server else None)
        finally:
            if server:
                server.remove()
        errors = (folder / "stderr").read_text(errors="replace")
    if errors:
        print(errors[-4000:], file=sys.stderr)
    print(", ".join(f"{name} {getattr(figures, name)}" for name in figures.__struct_fields__))
    return 1 if figures.violations else 0


def _rage(asked: argparse.Namespace, folder: Path, server: HitServer | None) -> Figures:
    return storm(
        folder,
        runs=asked.runs,
        workers=asked.workers,
        steps=asked.steps,
        seconds=asked.seconds,
        seed=asked.seed,
        server=server,
    )


if __name__ == "__main__":
    sys.exit(main())
