"""Locations on this machine: the store, files, texts from files, damage found on the way, and the
environment.
"""

import getpass
import os
import shlex
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import msgspec

from refold.engine.models import lookup
from refold.reducers.errors import Damaged, WrongUse
from refold.reducers.text import clean
from refold.store import open_here, open_store, wal
from refold.store.protocol import DamagedStore, NotAStore, Store, StoreUnavailable

_found: list[Damaged] = []


def keep_damage(error: Damaged) -> None:
    """Remember damage until the command has printed its results."""
    _found.append(error)


def forget_damage() -> None:
    """Clear remembered damage before another command."""
    _found.clear()


def first_damage() -> "Damaged | None":
    """Return the damage that was found first, if any."""
    return _found[0] if _found else None


P = ParamSpec("P")
T = TypeVar("T")

STORE, MODEL = "REFOLD_STORE", "REFOLD_MODEL"
DEFAULT_MODEL = "local:smollm2-135m"
LOOKED_THROUGH = 2**30
"""Largest file, in bytes, that every command checks for hidden damage (a third of a second in memory).

`verify` and `audit` check files of any size.
"""


class StorePlace(msgspec.Struct, frozen=True):
    """A store's file. `chosen` is the option or variable that named it, "" for the default."""

    path: Path
    chosen: str = ""

    @property
    def option(self) -> str:
        """The option that makes another command use this store: ` --store PATH`, or nothing."""
        if self.chosen != "--store":
            return ""
        return f" --store {shlex.quote(str(self.path))}"


def expand_home(path: Path) -> Path:
    """Expand a leading `~`. Like a shell, keep the path as typed if the user is unknown."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def file_of(typed: str) -> Path | None:
    """Return the file that an argument names, if it has a folder or a suffix; None if it names a run.

    A bare word is a run, even if the current folder has a file of that name.
    """
    path = Path(typed)
    return expand_home(path) if path.suffix or os.sep in typed else None


def default_file(name: str, ending: str) -> Path:
    """Return a file name in the current folder for a run, for commands without `--out`."""
    return Path("".join(each if each.isalnum() or each in "-_." else "_" for each in name) + ending)


def login() -> str:
    """Return the user's login name, or "user" if the system does not know it."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # the process's user has no name
        return "user"


def store_place(asked: Path | None) -> StorePlace:
    """Return the store: the one asked for, else `REFOLD_STORE`, else `runs.db` in refold's user data
    directory.
    """
    if asked is not None:
        return StorePlace(expand_home(asked), "--store")
    if text := os.environ.get(STORE):
        return StorePlace(expand_home(Path(text)), STORE)
    from platformdirs import user_data_path

    return StorePlace(user_data_path("refold") / "runs.db")


def other_place(place: StorePlace, asked: Path | None) -> StorePlace:
    """Return the store of a second run: the one asked for, else that of the first."""
    return place if asked is None else store_place(asked)


def model_name(asked: str | None) -> str:
    """Return the model's name: the one asked for, else `REFOLD_MODEL`, else the default, which needs no key
    and no network.
    """
    if asked == "":
        raise WrongUse(f"--model '': expected provider:model, as in {DEFAULT_MODEL}")
    return asked or _variable(MODEL) or DEFAULT_MODEL


def _variable(name: str) -> str:
    value = os.environ.get(name, "")
    if clean(value) != value:
        raise WrongUse(f"{name} {value!a}: is not UTF-8")
    return value


def environment(model: str | None, url: str | None) -> tuple[str, ...]:
    """Return which settings the environment provides, as recorded with a run: `model: REFOLD_MODEL`."""
    asked = {MODEL: ("model", model), lookup.BASE_URL: ("base_url", url)}
    return tuple(
        f"{what}: {name}" for name, (what, said) in asked.items() if not said and os.environ.get(name)
    )


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits, such as one that only reads a store, without an
    event loop.
    """
    try:
        awaited = work.send(None)
    except StopIteration as done:
        return cast("T", done.value)
    raise AssertionError(f"{work} waits for {awaited}")


def without_event_loop(command: Callable[P, Coroutine[Any, Any, int]]) -> Callable[P, int]:
    """Turn a coroutine function that never waits into a command.

    Importing asyncio would take a quarter of a short command's time.
    """

    @wraps(command)
    def done(*args: P.args, **kwargs: P.kwargs) -> int:
        return at_once(command(*args, **kwargs))

    return done


@asynccontextmanager
async def reading(place: StorePlace) -> AsyncGenerator[Store]:
    """Open the store read-only, without creating, migrating, writing or waiting. See `at_once`.

    Afterwards, files of at most `LOOKED_THROUGH` bytes are checked for hidden damage; of larger ones only the
    write-ahead log is. Damage is kept by `keep_damage`.
    """
    if not place.path.exists() and not place.chosen:
        raise WrongUse(
            f"no runs yet: {place.path} does not exist; `refold run TASK` creates it, --store PATH names another"
        )
    try:
        opened = open_here(place.path)
    except NotAStore as error:
        raise _explain(place, error) from error
    async with opened as store:
        try:
            yield store
        except WrongUse:  # such as an unknown run, which damage may hide
            await _look_through(place, store)
            raise
        await _look_through(place, store)


async def _look_through(place: StorePlace, store: Store) -> None:
    try:
        if place.path.stat().st_size <= LOOKED_THROUGH:
            await store.check()
        elif lost := wal.wal_problem(place.path):
            raise DamagedStore(str(place.path), lost)
    except Damaged as error:
        keep_damage(error)
    except OSError as error:
        raise StoreUnavailable(str(place.path), f"cannot be read: {error}") from error


@asynccontextmanager
async def writing(place: StorePlace) -> AsyncGenerator[Store]:
    """Open the store to add to, and create it if needed. Only the default store's folder is created too."""
    if not place.chosen:
        try:
            place.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = (
                f"its folder cannot be created: {error.strerror}; name another place by --store or {STORE}"
            )
            raise StoreUnavailable(str(place.path), problem) from error
    try:
        opened = await open_store(place.path)
    except NotAStore as error:
        raise _explain(place, error) from error
    async with opened as store:
        yield store


def _explain(place: StorePlace, error: NotAStore) -> NotAStore:
    """Add `REFOLD_STORE` to the error if that variable named the store."""
    return NotAStore(error.path, f"{error.problem} (from {STORE})") if place.chosen == STORE else error


@asynccontextmanager
async def changing(place: StorePlace) -> AsyncGenerator[Store]:
    """Open an existing store to change."""
    if not place.path.exists():
        async with reading(place):  # raises the same error as other commands
            pass
    async with writing(place) as store:
        yield store


LARGEST = 1 << 24
"""Largest text, in bytes, that is read from a file or stdin."""


def read_text_argument(typed: str, what: str) -> str:
    """Return the text typed for `what`: from a file for `@FILE`, from stdin for `-`, else as typed.

    Raises `WrongUse` if it cannot be read, is not UTF-8, or is too large.
    """
    if typed == "-":
        if sys.stdin is None:
            raise WrongUse(f"{what}: stdin is closed, and - reads from it")
        return _decode(sys.stdin.buffer.read(LARGEST + 1), what, "stdin")
    if typed.startswith("@"):
        return _decode(_of_file(expand_home(Path(typed[1:])), what), what, typed[1:])
    return typed


def _of_file(path: Path, what: str) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        raise WrongUse(f"{what}: {path} cannot be read: {error}; @ names a file") from error


def _decode(data: bytes, what: str, where: str) -> str:
    if len(data) > LARGEST:
        raise WrongUse(f"{what}: {where} is larger than {LARGEST} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise WrongUse(f"{what}: {where} is not UTF-8 at byte {error.start}") from error
