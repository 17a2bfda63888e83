"""`refold`: run a command line and return its exit code. Errors of refold show a traceback only with
`--debug`.

Modules for errors are imported when one occurs, because most commands succeed.
"""

import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING

from refold.console import locations

if TYPE_CHECKING:
    import click

    from refold.reducers.errors import RefoldError


INTERRUPTED = 130
CLOSED = 141
"""The exit code that a shell reports for a write to a closed pipe: nothing failed, but output was lost."""
WRONG_USE = 2
NEEDED = ("click", "rich", "platformdirs")
DIGITS = 10_000
"""Largest number of digits that Python may print: msgspec reads numbers of up to 4,300, and their sums
have a few more.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in `argv` (default: the process's own) and return its exit code:

    0 agrees, or COMPLETED; 1 differs, or ended in another state; 2 wrong use; 3 damaged log; 4 external
    failure; 125 inconclusive; 130 Ctrl-C.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    return run_guarded(lambda: _dispatch(words), words)


def run_guarded(work: Callable[[], int], words: Sequence[str]) -> int:
    """Run `work`, and turn errors into a line on stderr and an exit code. See `main`."""
    locations.forget_damage()
    _open_streams()
    try:
        _check_encoding(words)
        with _allow_long_numbers():
            code = work()
        return _report_damage(words) or code
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        return _report_failure(error, words)


def _report_failure(error: Exception, words: Sequence[str]) -> int:
    if isinstance(error, ModuleNotFoundError) and error.name in NEEDED:
        _complain(f"the command line needs the package {error.name}: pip install 'refold[cli]'")
        return WRONG_USE
    from refold.console.screen import OutputClosed
    from refold.reducers.errors import ExternalFailure, Inconclusive, RefoldError

    if isinstance(error, OutputClosed) and error.quiet:
        return _report_damage(words) or CLOSED
    if isinstance(error, RefoldError):
        _explain(error, words)
        return _report_damage(words) or error.exit_code
    if isinstance(error, OSError):
        _complain(str(error), words=words)
        return ExternalFailure.exit_code
    # A bug of refold: the result is inconclusive.
    _trace()
    _complain(
        f"this is a bug in refold ({type(error).__name__}), and the result is inconclusive; please report the lines above"
    )
    return Inconclusive.exit_code


def entry() -> None:
    """Run `main` and end the process: the entry point of `refold`.

    A tool's thread that was cut off is abandoned: the interpreter would wait for it at exit.
    """
    code = main()
    others = [one for one in threading.enumerate() if one is not threading.main_thread() and not one.daemon]
    if others:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _open_streams() -> None:
    """Replace a closed stdout or stderr by the null device, so that commands work as usual."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            null = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - open until the process ends
            setattr(sys, name, null)


@contextlib.contextmanager
def _allow_long_numbers() -> Generator[None]:
    # Python's limit is 4,300 digits, or set by an environment variable: verdicts must not depend on it.
    most = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(DIGITS)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(most)


def _check_encoding(words: Sequence[str]) -> None:
    if all(map(str.isascii, words)):
        return
    from refold.reducers.errors import WrongUse
    from refold.reducers.text import clean

    for before, word in zip(["", *words], words, strict=False):
        option, equals, value = word.partition("=") if word.startswith("--") else (before, "", word)
        if clean(word) != word:
            named = f"{option} " if equals or option.startswith("-") else ""
            raise WrongUse(f"{named}{value or word!a}: is not UTF-8; type it in the terminal's own encoding")


def _report_damage(words: Sequence[str]) -> int:
    found = locations.first_damage()
    if found is None:
        return 0
    _explain(found, words)
    return found.exit_code


def _dispatch(words: list[str]) -> int:
    import click

    from refold.console.app import app

    try:
        code: object = app.main(args=words, prog_name="refold", standalone_mode=False)
    except click.Abort:
        return INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        _say(error.format_message())
        return WRONG_USE
    except click.ClickException as error:
        _report_misuse(error)
        return WRONG_USE
    return code if isinstance(code, int) else 0


def _report_misuse(error: "click.ClickException") -> None:
    """Print the usage of the command and what is wrong with the arguments."""
    said, more = error.format_message().rstrip(".").replace(". Did you mean", ": did you mean"), ""
    context: click.Context | None = getattr(error, "ctx", None)
    if context is not None:
        _say(context.get_usage())
        end = "" if said.endswith("?") else ";"
        more = f"{end} `{context.command_path} -h` lists what is accepted"
    _complain(f"{said[:1].lower()}{said[1:]}{more}")


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr)


def _explain(error: "RefoldError", words: Sequence[str]) -> None:
    # Checked by attribute, because importing the classes would load many modules.
    lines: Sequence[str] = getattr(error, "lines", None) or [str(error)]
    _complain(*lines, words=words)


def _complain(*lines: str, words: Sequence[str] = ()) -> None:
    """Print an error, each text as one line."""
    from refold.console.descriptions import line

    if "--debug" in words:
        _trace()
    told = "\n".join(line(_redact(text)) for text in lines)
    with contextlib.suppress(OSError):
        print(f"refold: {told}", file=sys.stderr, flush=True)


def _trace() -> None:
    from refold.console.descriptions import block

    with contextlib.suppress(OSError):
        print(indent(block(_redact(traceback.format_exc())), "  "), file=sys.stderr, flush=True)


def _redact(text: str) -> str:
    # A provider's error may quote a key, and users copy terminal output into reports.
    from refold.engine.secrets import redactor_of

    return redactor_of().text(text)


if __name__ == "__main__":
    entry()
