"""`refold`, from the words that were typed to the exit code. No error of ours ever shows a traceback, unless asked."""

import contextlib
import importlib.util
import os
import sys
import threading
import traceback
from collections.abc import Callable, Sequence

from refold.reducers.errors import CannotJudge, RefoldError, WorldFailed, WrongUse

INTERRUPTED = 130
NEEDED = ("typer", "rich", "platformdirs")


def main(argv: Sequence[str] | None = None) -> int:
    """Do what `argv` says (without the program's name; by default the process's own). The exit code:

    0 agrees, or COMPLETED; 1 differs, or ended in another state; 2 wrong use; 3 damaged log; 4 the world failed;
    125 cannot be judged; 130 any Ctrl-C.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    return guarded(lambda: _dispatched(words), words)


def guarded(work: Callable[[], int], words: Sequence[str]) -> int:
    """Do `work`, and turn what it raises into a line on stderr and an exit code. See `main`."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        _complain(
            f"the command line needs {', '.join(missing)}, not installed here: pip install 'refold[cli]'"
        )
        return WrongUse.exit_code
    try:
        _readable(words)
        return work()
    except KeyboardInterrupt:
        return INTERRUPTED
    except RefoldError as error:
        _explain(error, words)
        return error.exit_code
    except OSError as error:
        _complain(str(error), words)
        return WorldFailed.exit_code
    except Exception as error:  # our bug: say so, and judge nothing
        traceback.print_exc()
        _complain(
            f"this is a bug of refold ({type(error).__name__}): nothing can be judged; please report what stands above"
        )
        return CannotJudge.exit_code


def entry() -> None:
    """What the command `refold` runs: `main`, and then the end of the process.

    A tool's thread that was cut off is abandoned, not waited for: the interpreter would wait for it.
    """
    code = main()
    others = [one for one in threading.enumerate() if one is not threading.main_thread() and not one.daemon]
    if others:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _readable(words: Sequence[str]) -> None:
    for word in words:
        if not word.isascii() and any("\ud800" <= char <= "\udfff" for char in word):
            raise WrongUse(f"{word!a}: is not UTF-8; type it in the terminal's own encoding")


def _dispatched(words: list[str]) -> int:
    import typer
    from typer.main import get_command

    from refold.console.app import app

    try:
        code: object = get_command(app).main(args=words, prog_name="refold", standalone_mode=False)
    except typer.Abort:
        return INTERRUPTED
    except Exception as error:
        # The parser's own complaint: typer's class for it has moved from one release to the next.
        show = getattr(error, "show", None)
        if isinstance(error, RefoldError) or show is None:
            raise
        show()
        return WrongUse.exit_code
    return code if isinstance(code, int) else 0


def _explain(error: RefoldError, words: Sequence[str]) -> None:
    from refold.console.screen import OutputClosed

    if isinstance(error, OutputClosed) and error.quiet:
        return
    _complain(str(error), words)


def _complain(text: str, words: Sequence[str] = ()) -> None:
    from refold.console.hostile import block

    if "--debug" in words:
        traceback.print_exc()
    with contextlib.suppress(OSError):
        print(f"refold: {block(text)}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    entry()
