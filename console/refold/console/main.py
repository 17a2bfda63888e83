"""`refold`, from the words that were typed to the exit code. No error of ours ever shows a traceback, unless
asked.

What only an error needs is imported once there is one: most of what is typed is answered before.
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
"""As a shell has it of who wrote into a closed pipe: nothing failed, and not all was said."""
WRONG_USE = 2
NEEDED = ("click", "rich", "platformdirs")
DIGITS = 10_000
"""A number that a log may hold has up to 4,300 digits (msgspec reads no longer), a sum of such some more."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in `argv` (default: the process's own) and return its exit code:

    0 agrees, or COMPLETED; 1 differs, or ended in another state; 2 wrong use; 3 damaged log; 4 external
    failure; 125 inconclusive; 130 Ctrl-C.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    return run_guarded(lambda: _dispatch(words), words)


def run_guarded(work: Callable[[], int], words: Sequence[str]) -> int:
    """Do `work`, and turn what it raises into a line on stderr and an exit code. See `main`."""
    locations.forget_damage()
    _open_streams()
    try:
        _readable(words)
        with _numbers_written():
            code = work()
        return _report_damage(words) or code
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        return _report_failure(error, words)


def _report_failure(error: Exception, words: Sequence[str]) -> int:
    if isinstance(error, ModuleNotFoundError) and error.name in NEEDED:
        _complain(f"the command line needs {error.name}, not installed here: pip install 'refold[cli]'")
        return WRONG_USE
    from refold.console.screen import OutputClosed
    from refold.reducers.errors import CannotJudge, RefoldError, WorldFailed

    if isinstance(error, OutputClosed) and error.quiet:
        return _report_damage(words) or CLOSED
    if isinstance(error, RefoldError):
        _explain(error, words)
        return _report_damage(words) or error.exit_code
    if isinstance(error, OSError):
        _complain(str(error), words=words)
        return WorldFailed.exit_code
    # Our bug: say so, and judge nothing.
    _trace()
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


def _open_streams() -> None:
    """Where stdout or stderr was closed before we began, what is said there is lost, and nothing else is
    otherwise.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            null = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - open until the process ends
            setattr(sys, name, null)


@contextlib.contextmanager
def _numbers_written() -> Generator[None]:
    # By itself Python writes 4,300 digits, or what an environment variable says: a verdict must not hang on
    # it.
    most = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(DIGITS)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(most)


def _readable(words: Sequence[str]) -> None:
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
    """Say what of the words cannot be read: how the command is used, and then as any other error."""
    said, more = error.format_message().rstrip(".").replace(". Did you mean", ": did you mean"), ""
    context: click.Context | None = getattr(error, "ctx", None)
    if context is not None:
        _say(context.get_usage())
        end = "" if said.endswith("?") else ";"
        more = f"{end} `{context.command_path} -h` says what can be typed"
    _complain(f"{said[:1].lower()}{said[1:]}{more}")


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr)


def _explain(error: "RefoldError", words: Sequence[str]) -> None:
    # What says several lines has them: its class is not asked for, for all that would be loaded with it.
    lines: Sequence[str] = getattr(error, "lines", None) or [str(error)]
    _complain(*lines, words=words)


def _complain(*lines: str, words: Sequence[str] = ()) -> None:
    """Say what is wrong: each text a line, whatever is in it."""
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
    # A provider's complaint about a key may quote it, and what is on a terminal is copied into reports.
    from refold.engine.secrets import redactor_of

    return redactor_of().text(text)


if __name__ == "__main__":
    entry()
