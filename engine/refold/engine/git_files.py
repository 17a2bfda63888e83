"""Files at revisions of a git repository, read with the git program.

The directory may be one that a transcript names, and so its configuration may be hostile. git only lists
commits and reads objects: without filters, hooks, signatures, a pager, or fetching what is missing.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from refold.engine.policy_files import PolicyFileError

_TIMEOUT = 5  # seconds
_SAFE = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "--no-pager", "--no-optional-locks")
_ENVIRONMENT = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}


def read_at(path: Path, revision: str, max_bytes: int) -> bytes:
    """Return the bytes of a file at a revision of its repository. Raises `PolicyFileError`."""
    named = f"{path} at {revision}"
    if revision.startswith("-") or not revision.strip():
        raise PolicyFileError(named, f"expected a git revision, as main or HEAD~1; got {revision!r}")
    commit = _git(path, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if commit is None:
        problem = (
            "is in no git repository"
            if _git(path, "rev-parse", "--git-dir") is None
            else (f"{revision!r} is no revision of its git repository")
        )
        raise PolicyFileError(named, f"cannot be read: {problem}")
    blob = f"{commit.decode().strip()}:./{path.name}"
    size = _git(path, "cat-file", "-s", blob)
    if size is None:
        raise PolicyFileError(named, "cannot be read: the file does not exist in this revision")
    if int(size) > max_bytes:
        raise PolicyFileError(named, f"is larger than {max_bytes} bytes")
    return _git(path, "cat-file", "blob", blob) or b""


def was_committed(folder: Path, name: str) -> bool:
    """Return whether a file of a folder, as `./name`, has a history in a git repository."""
    return bool(_git(folder / "x", "rev-list", "--max-count=1", "HEAD", "--", name))


def list_versions(path: Path, max_bytes: int) -> list[tuple[int, str]] | None:
    """Return the commits that changed a file, oldest first: seconds since 1970, and the commit.

    Returns None if the file is in no repository, or has changes that are not committed.
    """
    name = f"./{path.name}"
    if path.stat().st_size > max_bytes or (size := _git(path, "cat-file", "-s", f"HEAD:{name}")) is None:
        return None
    if int(size) > max_bytes:
        return None
    committed = _git(path, "cat-file", "blob", f"HEAD:{name}")
    listed = _git(path, "rev-list", "--timestamp", "HEAD", "--", name)
    if not listed or committed is None or committed != path.read_bytes():
        return None
    lines = (line.split() for line in listed.decode().splitlines())
    return sorted((int(seconds), commit) for seconds, commit in lines)


def _git(path: Path, *words: str) -> bytes | None:
    """Return the output of git in the file's directory; None if it failed."""
    command: Sequence[str] = ("git", *_SAFE, *words)
    try:
        done = subprocess.run(  # noqa: S603 - a fixed program; revisions are checked above
            command, cwd=path.parent, capture_output=True, check=False, timeout=_TIMEOUT,
            stdin=subprocess.DEVNULL, env=os.environ | _ENVIRONMENT,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None
