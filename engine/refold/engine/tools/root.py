"""One directory that tools may see, and no way out of it.

A path of a model is taken apart by us and walked one name at a time. Each directory on the way is opened
relative to the one before (`dir_fd`) and without following symbolic links (`O_NOFOLLOW`), so no process can
swap a directory for a link between a check and its use: there is no check apart from the use. Rules:

- `..` is resolved on the text. No link is ever followed, so that is where it leads, and above the root it is
  refused.
- Absolute paths are refused, and so is every symbolic link, one that points inside the root too: to tell the
  two apart safely one must follow it.
- Only regular files are opened, never pipes, sockets or devices, and nothing here can block on one.
- A file is replaced whole, by a rename within its directory: a reader sees the old text or the new.
- A hard link to a file elsewhere looks like any file and is read as one; it is never written through, for a
  rename replaces it. Something mounted inside the root belongs to the root.

Where the system has no `dir_fd` (Windows) the same walk checks each name and then opens by path. A process
that swaps directories for links at the right moment can win against that; the tools themselves make no links.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Generator
from pathlib import Path

from refold.reducers.errors import WrongUse

HAS_DESCRIPTORS = {
    os.open,
    os.stat,
    os.mkdir,
    os.unlink,
    os.rename,
} <= os.supports_dir_fd and os.listdir in os.supports_fd
MAX_PATH = 4096  # characters; what Linux takes at once
MAX_DEPTH = 100  # names in a path: deeper than people go, and not so deep that what cleans up afterwards cannot follow

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_DIRECTORY = os.O_RDONLY | _NOFOLLOW | getattr(os, "O_DIRECTORY", 0)
# Should the file have become a pipe or a terminal since we looked: do not wait for it, do not be governed by
# it.
_FILE = os.O_RDONLY | _NOFOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW

_REASONS = {
    errno.ENOENT: "does not exist; list_files shows what there is",
    errno.ENOTDIR: "a part of it is a file, not a directory",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ENOSPC: "the disk is full; nothing was changed",
    errno.EROFS: "the file system is read-only",
}
_WINDOWS_LINKS = {0xA000000C, 0xA0000003}  # IO_REPARSE_TAG_SYMLINK, and a junction's _MOUNT_POINT
_WINDOWS_DEVICES = {"con", "prn", "aux", "nul", "conin$", "conout$"} | {
    f"{port}{digit}" for port in ("com", "lpt") for digit in "0123456789¹²³"
}


class FileError(Exception):
    """A file tool cannot do what it was asked.

    The message is for the model: the path as given, and a way out.
    """


def shown(name: str) -> str:
    """A name as one harmless line: unprintable ones (line ends, bytes that are not UTF-8) in escapes, long
    ones cut.
    """
    text = name if name.isprintable() else ascii(name)
    return text if len(text) <= 300 else text[:300] + "…"


def names(path: str) -> tuple[str, ...]:
    """The names to walk from the root, none for the root itself. Pure.

    Raises `FileError` for a path that leaves it.
    """
    walked: list[str] = []
    if len(path) > MAX_PATH:
        raise FileError(f"{shown(path)}: a path has at most {MAX_PATH} characters")
    if os.name == "nt":
        path = path.replace("\\", "/")
    if path.startswith("/"):
        relative = shown(path.lstrip("/")) or "."
        raise FileError(f"{shown(path)}: absolute paths are not allowed; from the root on that is {relative}")
    for name in path.split("/"):
        if name == "..":
            if not walked:
                raise FileError(f"{shown(path)}: leaves the root, and only files below it can be reached")
            walked.pop()
        elif name not in {"", "."}:
            walked.append(_checked(name, path))
    if len(walked) > MAX_DEPTH:
        raise FileError(f"{shown(path)}: a path has at most {MAX_DEPTH} names")
    return tuple(walked)


def _checked(name: str, path: str) -> str:
    """A name that the system will take for a name, and for nothing more."""
    if "\0" in name or any("\ud800" <= char <= "\udfff" for char in name):
        raise FileError(f"{shown(path)}: not a file name")
    # On Windows a colon names a drive or a stream, and some names are devices in every directory.
    device = name.partition(".")[0].rstrip(" ").lower() in _WINDOWS_DEVICES
    if os.name == "nt" and (":" in name or name[-1] in ". " or device):
        raise FileError(f"{shown(path)}: not a file name on Windows")
    return name


class Directory:
    """An open directory. Each method takes one name in it, never a path, and follows no link.

    `descriptor` is None where the system has no `dir_fd`; `path` is then what counts. Methods raise
    `OSError`.
    """

    def __init__(self, path: str, descriptor: int | None) -> None:
        self.path, self.descriptor = path, descriptor

    def _at(self, name: str) -> str:
        return os.path.join(self.path, name) if self.descriptor is None else name

    def close(self) -> None:
        """Let go of the descriptor."""
        if self.descriptor is not None:
            os.close(self.descriptor)

    def stat(self, name: str) -> os.stat_result:
        """What a name is; of a link, the link."""
        return os.stat(self._at(name), dir_fd=self.descriptor, follow_symlinks=False)

    def names(self) -> list[str]:
        """Every name in it, in code point order."""
        return sorted(os.listdir(self.path if self.descriptor is None else self.descriptor))

    def directory(self, name: str) -> "Directory":
        """Open a directory in it. The caller closes it."""
        path = os.path.join(self.path, name)
        if self.descriptor is None:
            if not stat.S_ISDIR(self.stat(name).st_mode) or is_link(self.stat(name)):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", name)
            return Directory(path, None)
        return Directory(path, os.open(name, _DIRECTORY, dir_fd=self.descriptor))

    def create(self, name: str) -> "Directory":
        """Open a directory in it, made if it is not there."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._at(name), dir_fd=self.descriptor)
        return self.directory(name)

    def file(self, name: str) -> int:
        """A descriptor to read a regular file by; the caller closes it.

        Anything else is an `OSError`, EINVAL.
        """
        if not is_file(self.stat(name)):  # before opening it, which alone makes some devices act
            raise OSError(errno.EINVAL, "not a regular file", name)
        descriptor = os.open(self._at(name), _FILE, dir_fd=self.descriptor)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # and after, when it cannot be swapped any more
            os.close(descriptor)
            raise OSError(errno.EINVAL, "not a regular file", name)
        return descriptor

    def replace(self, name: str, data: bytes, mode: int | None) -> None:
        """Put a file of these bytes in place of `name`, all or nothing, on disk when this returns.

        `mode` is its permission bits, None for what the umask leaves.
        """
        temporary = f".refold-{secrets.token_hex(8)}.tmp"
        descriptor = os.open(self._at(temporary), _NEW, 0o666, dir_fd=self.descriptor)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                if mode is not None and hasattr(os, "fchmod"):
                    os.fchmod(descriptor, mode)
                os.fsync(descriptor)
            os.replace(
                self._at(temporary), self._at(name), src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor
            )
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(self._at(temporary), dir_fd=self.descriptor)
            raise
        if self.descriptor is not None:
            with contextlib.suppress(OSError):  # done it is; some file systems cannot sync a directory
                os.fsync(self.descriptor)


def is_file(status: os.stat_result) -> bool:
    """Whether that is a regular file, reached without a link."""
    return stat.S_ISREG(status.st_mode) and not is_link(status)


def is_link(status: os.stat_result) -> bool:
    """Whether that is a symbolic link, or what Windows has of the kind (a junction)."""
    return stat.S_ISLNK(status.st_mode) or getattr(status, "st_reparse_tag", 0) in _WINDOWS_LINKS


class Root:
    """The directory that the tools may see. Raises `WrongUse` if there is none at `path`.

    Links in `path` itself are the caller's own and are followed once, here. `descriptors=False` forces the
    walk of a system without `dir_fd`.
    """

    def __init__(self, path: str | os.PathLike[str], *, descriptors: bool = HAS_DESCRIPTORS) -> None:
        try:
            self._path = str(Path(path).resolve(strict=True))
        except (OSError, ValueError, RuntimeError) as error:
            raise WrongUse(
                f"root {os.fspath(path)!r}: cannot be opened: give a directory that exists"
            ) from error
        if not Path(self._path).is_dir():
            raise WrongUse(f"root {os.fspath(path)!r}: is not a directory: give the one that holds the files")
        self._descriptors = descriptors

    @contextlib.contextmanager
    def directory(self, path: str, *, create: bool = False) -> Generator[Directory, None, None]:
        """An open directory of the root, by the path of a model. `create` makes the ones that are missing.

        Every `OSError`, of the body too, becomes a `FileError` that names the path as it was given and says
        nothing of where the root is.
        """
        with self._walked(path, names(path), create=create) as directory:
            yield directory

    @contextlib.contextmanager
    def parent(self, path: str, *, create: bool = False) -> Generator[tuple[Directory, str], None, None]:
        """The open directory that holds (or would hold) the file of that path, and the file's name in it."""
        walked = names(path)
        if not walked:
            raise FileError(f"{shown(path)}: is the root directory, not a file; name a file in it")
        with self._walked(path, walked[:-1], create=create) as directory:
            yield directory, walked[-1]

    @contextlib.contextmanager
    def _walked(
        self, path: str, walked: tuple[str, ...], *, create: bool
    ) -> Generator[Directory, None, None]:
        here = None
        try:
            here = Directory(self._path, os.open(self._path, _DIRECTORY) if self._descriptors else None)
            for name in walked:
                # One open at a time, however deep: many calls side by side must not use up the descriptors.
                above, here = here, None
                with contextlib.closing(above):
                    here = _entered(above, name, path, create=create)
            yield here
        except OSError as error:
            raise FileError(f"{shown(path)}: {reason(error)}") from error
        finally:
            if here is not None:
                here.close()


def _entered(here: Directory, name: str, path: str, *, create: bool) -> Directory:
    try:
        return here.create(name) if create else here.directory(name)
    except OSError:
        # Only now, to find the words: whatever a name has become, it was not entered.
        with contextlib.suppress(OSError):
            refuse_link(here.stat(name), path)
        raise


def refuse_link(status: os.stat_result, path: str) -> None:
    """Raise `FileError` if that is a symbolic link."""
    if is_link(status):
        raise FileError(
            f"{shown(path)}: is or goes through a symbolic link, which is never followed; use the real path"
        )


def reason(error: OSError) -> str:
    """What an `OSError` says to a model: the system's words without the place, which is ours."""
    return _REASONS.get(error.errno or 0) or (os.strerror(error.errno) if error.errno else "cannot be used")
