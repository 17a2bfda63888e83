"""Locations on this machine: the store, files, texts from files, damage found on the way, and the
environment.
"""

import getpass
import os
import re
import shlex
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import msgspec

from refold.engine.models import lookup
from refold.reducers.errors import Damaged, WrongUse
from refold.reducers.text import clean
from refold.store import open_here, open_store, wal
from refold.store.opening import MEMORY, SQLITE, store_address
from refold.store.protocol import DamagedStore, NotAStore, Store, StoreUnavailable
from refold.store.sequential import at_once

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


_SERVER = re.compile(r"\W*postgres(?:ql)?:/", re.IGNORECASE)

P = ParamSpec("P")
T = TypeVar("T")

STORE, MODEL = "REFOLD_STORE", "REFOLD_MODEL"
DEFAULT_MODEL = "local:smollm2-135m"
LOOKED_THROUGH = 2**30
"""Largest file, in bytes, that every command checks for hidden damage (a third of a second in memory).

`verify` and `audit` check files of any size.
"""


class StorePlace(msgspec.Struct, frozen=True):
    """A store's address. `chosen` is the option or variable that named it, "" for the default."""

    address: str
    chosen: str = ""

    @property
    def shown(self) -> str:
        """The address for messages, without passwords."""
        return store_address(self.address).shown

    @property
    def file(self) -> Path | None:
        """The store's file; None for one in a database server."""
        return store_address(self.address).file

    @property
    def is_new(self) -> bool:
        """Whether it is the default store, which nothing has created yet."""
        return not self.chosen and not Path(self.address).exists()

    @property
    def option(self) -> str:
        """The option that makes another command use this store: ` --store ADDRESS`, or nothing."""
        if self.chosen != "--store":
            return ""
        return f" --store {shlex.quote(self.shown)}"


def expand_home(path: Path) -> Path:
    """Expand a leading `~`. Like a shell, keep the path as typed if the user is unknown."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def file_of(typed: str) -> Path | None:
    """Return the file that an argument names, if it has a folder or a suffix; None if it names a run.

    A bare word is a run, even if the current folder has a file of that name. Raises `WrongUse` for the
    address of a store in PostgreSQL, which may have a password.
    """
    if _SERVER.match(typed):
        raise WrongUse("expected a run or a file: name a store in PostgreSQL by --store")
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


def store_place(asked: str | None) -> StorePlace:
    """Return the store: the one asked for, else `REFOLD_STORE`, else `runs.db` in refold's user data
    directory.
    """
    if asked is not None:
        return StorePlace(_expand_address(asked, "--store"), "--store")
    if text := os.environ.get(STORE):
        return StorePlace(_expand_address(text, STORE), STORE)
    from platformdirs import user_data_path

    return StorePlace(str(user_data_path("refold") / "runs.db"))


def _expand_address(text: str, chosen: str) -> str:
    """Check an address, and expand a leading `~` of a path. Raises `WrongUse`."""
    try:
        scheme, path = store_address(text)
    except WrongUse as error:
        raise WrongUse(f"{chosen}: {error}") from error
    if scheme == MEMORY:
        raise WrongUse(f"{chosen}: a store in memory ends with the command: name a file")
    return str(expand_home(Path(path))) if scheme == SQLITE and path == text else text


def other_place(place: StorePlace, asked: str | None) -> StorePlace:
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
    if place.is_new:
        raise WrongUse(
            f"no runs yet: {place.shown} does not exist; `refold run TASK` creates it, --store PATH names another"
        )
    try:
        opened = open_here(place.address)
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
    if (file := place.file) is None:
        return  # a server checks its own pages; each run's row has its last event
    try:
        if file.stat().st_size <= LOOKED_THROUGH:
            await store.check()
        elif lost := wal.wal_problem(file):
            raise DamagedStore(place.shown, lost)
    except Damaged as error:
        keep_damage(error)
    except OSError as error:
        raise StoreUnavailable(place.shown, f"cannot be read: {error}") from error


@asynccontextmanager
async def writing(place: StorePlace) -> AsyncGenerator[Store]:
    """Open the store to add to, and create it if needed. Only the default store's folder is created too."""
    if not place.chosen:
        try:
            Path(place.address).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = (
                f"its folder cannot be created: {error.strerror}; name another place by --store or {STORE}"
            )
            raise StoreUnavailable(place.shown, problem) from error
    try:
        opened = await open_store(place.address)
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
    file = place.file
    if file is None or not file.exists():
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
