"""Where things are on this machine: the store, files, texts, damage, and what the environment says of
them.
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
    """Remember it until the command has answered."""
    _found.append(error)


def forget_damage() -> None:
    """Another command begins."""
    _found.clear()


def first_damage() -> "Damaged | None":
    """What was found first, if anything was."""
    return _found[0] if _found else None


P = ParamSpec("P")
T = TypeVar("T")

STORE, MODEL = "REFOLD_STORE", "REFOLD_MODEL"
DEFAULT_MODEL = "local:smollm2-135m"
LOOKED_THROUGH = 2**30
"""Bytes of a file that every command looks through: a third of a second in memory.

Who judges looks through any.
"""


class StorePlace(msgspec.Struct, frozen=True):
    """A store's file. `chosen` is the word by which it was asked for, "" for the default."""

    path: Path
    chosen: str = ""

    @property
    def option(self) -> str:
        """What to type after a command so that it means this store too: ` --store PATH`, or nothing."""
        if self.chosen != "--store":
            return ""
        return f" --store {shlex.quote(str(self.path))}"


def expand_home(path: Path) -> Path:
    """The path with a home in the place of its `~`; as it was typed, as a shell has it, where there is no
    such user.
    """
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def file_of(typed: str) -> Path | None:
    """The file that a word may name where it may also name a run: it has a folder or an ending. None: it
    names a run.

    A bare word is a run's, whatever lies in the current folder.
    """
    path = Path(typed)
    return expand_home(path) if path.suffix or os.sep in typed else None


def beside(name: str, ending: str) -> Path:
    """A file of the current folder, named for a run where `--out` names none."""
    return Path("".join(each if each.isalnum() or each in "-_." else "_" for each in name) + ending)


def login() -> str:
    """The name of the user, as far as the system knows it."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a process without a name
        return "user"


def store_place(asked: Path | None) -> StorePlace:
    """The store: what was asked for, else `REFOLD_STORE`, else `runs.db` in the user's data directory of
    refold.
    """
    if asked is not None:
        return StorePlace(expand_home(asked), "--store")
    if text := os.environ.get(STORE):
        return StorePlace(expand_home(Path(text)), STORE)
    from platformdirs import user_data_path

    return StorePlace(user_data_path("refold") / "runs.db")


def other_place(place: StorePlace, asked: Path | None) -> StorePlace:
    """The store of a second run: what was asked for, else that of the first."""
    return place if asked is None else store_place(asked)


def model_name(asked: str | None) -> str:
    """The model: what was asked for, else `REFOLD_MODEL`, else the one that needs no key and no network."""
    if asked == "":
        raise WrongUse(f"--model '': expected provider:model, as in {DEFAULT_MODEL}")
    return asked or _variable(MODEL) or DEFAULT_MODEL


def _variable(name: str) -> str:
    value = os.environ.get(name, "")
    if clean(value) != value:
        raise WrongUse(f"{name} {value!a}: is not UTF-8")
    return value


def environment(model: str | None, url: str | None) -> tuple[str, ...]:
    """What the environment set of a run, as it is recorded with it: `model: REFOLD_MODEL`."""
    asked = {MODEL: ("model", model), lookup.BASE_URL: ("base_url", url)}
    return tuple(
        f"{what}: {name}" for name, (what, said) in asked.items() if not said and os.environ.get(name)
    )


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that waits for nothing, as one that only reads a store: no event loop is
    needed for it.
    """
    try:
        awaited = work.send(None)
    except StopIteration as done:
        return cast("T", done.value)
    raise AssertionError(f"{work} waits for {awaited}")


def reads(command: Callable[P, Coroutine[Any, Any, int]]) -> Callable[P, int]:
    """Makes a command of a coroutine that waits for nothing.

    A quarter of the time of a short command is what asyncio loads.
    """

    @wraps(command)
    def done(*args: P.args, **kwargs: P.kwargs) -> int:
        return at_once(command(*args, **kwargs))

    return done


@asynccontextmanager
async def reading(place: StorePlace) -> AsyncGenerator[Store]:
    """The store, to look at: nothing is made, migrated or written, and nothing waited for. See `at_once`.

    A file of up to `LOOKED_THROUGH` bytes is then looked through for what damage may have hidden, of a larger
    one its `-wal`: see `damage`.
    """
    if not place.path.exists() and not place.chosen:
        raise WrongUse(
            f"there are no runs yet: {place.path} does not exist; `refold run TASK` makes it, --store PATH names another"
        )
    try:
        opened = open_here(place.path)
    except NotAStore as error:
        raise _explain(place, error) from error
    async with opened as store:
        try:
            yield store
        except WrongUse:  # such as a run that is not there
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
        raise StoreUnavailable(str(place.path), f"cannot be looked at: {error}") from error


@asynccontextmanager
async def writing(place: StorePlace) -> AsyncGenerator[Store]:
    """The store, to add to: made if there is none; only the default one's folder is made too."""
    if not place.chosen:
        try:
            place.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = f"its folder cannot be made: {error.strerror}; name another place by --store or {STORE}"
            raise StoreUnavailable(str(place.path), problem) from error
    try:
        opened = await open_store(place.path)
    except NotAStore as error:
        raise _explain(place, error) from error
    async with opened as store:
        yield store


def _explain(place: StorePlace, error: NotAStore) -> NotAStore:
    """The error, with the word that led there if it is not on the command line."""
    return NotAStore(error.path, f"{error.problem} (from {STORE})") if place.chosen == STORE else error


@asynccontextmanager
async def changing(place: StorePlace) -> AsyncGenerator[Store]:
    """A store that is there already, to change."""
    if not place.path.exists():
        async with reading(place):  # says so, in the words of the other commands
            pass
    async with writing(place) as store:
        yield store


LARGEST = 1 << 24
"""Bytes of a text that comes from a file or stdin."""


def read_text_argument(typed: str, what: str) -> str:
    """The text that was typed for `what`: of a file for `@FILE`, of stdin for `-`, else the words themselves.

    Raises `WrongUse` for what cannot be read, is no UTF-8, or is too large.
    """
    if typed == "-":
        if sys.stdin is None:
            raise WrongUse(f"{what}: stdin is closed; - reads what stands there")
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
