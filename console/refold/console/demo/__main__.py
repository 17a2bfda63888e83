"""`python -m refold.console.demo`: the first minute with refold, or with `--preset` the runs of a preset.

Exit code 0: all checks passed.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from refold.console import main as console
from refold.reducers.errors import WrongUse


def main(argv: Sequence[str] | None = None) -> int:
    """Play the demo. Exit code 0 if all checks passed, 1 if one failed, else that of the error."""
    words = argparse.ArgumentParser(prog="python -m refold.console.demo", description=__doc__)
    words.add_argument("--preset", metavar="NAME", help="play the runs of this preset, over files of its own")
    words.add_argument("--store", type=Path, help="with --preset: the store's file (.demo/presets.db)")
    words.add_argument("--root", type=Path, help="with --preset: other files to read")
    options = words.parse_args(argv)
    return console.run_guarded(
        lambda: _play(options.preset, options.store, options.root), sys.argv[1:] if argv is None else argv
    )


def _play(preset: str | None, store: Path | None, root: Path | None) -> int:
    if preset is None:
        if store or root:
            raise WrongUse("--store and --root: only with --preset; the rest of the demo is played in .demo")
        from refold.console.demo.minute import play

        return play(Path(".demo"))
    from refold.console.demo.preset_runs import play_preset

    return play_preset(preset, store or Path(".demo") / "presets.db", root)


if __name__ == "__main__":
    sys.exit(main())
