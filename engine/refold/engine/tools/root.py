"""Access to one directory for tools, without a way to leave it.

A model's path is split here and walked one name at a time. Each directory is opened relative to the one
before (`dir_fd`) and without following symbolic links (`O_NOFOLLOW`). Opening is the check, so no process can
replace a directory by a link between check and use. Rules:

- `..` is resolved in the text, which is correct because links are not followed. Above the root it is refused.
- Absolute paths are refused, and so are symbolic links, even those that point inside the root: finding out
  where one points safely would require following it.
- Only regular files are opened, never pipes, sockets or devices, which could block.
- A file is replaced atomically, by a rename within its directory: a reader sees the old text or the new.
- A hard link to a file elsewhere cannot be recognised and is read like any file. It is never written through,
  because a rename replaces it. A file system mounted inside the root belongs to the root.

Without `dir_fd` (Windows), the same walk checks each name and then opens it by path. A process that replaces
directories by links at the right moment can defeat that; the tools themselves create no links.
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
MAX_PATH = 4096  # characters; Linux's limit
MAX_DEPTH = 100  # names in a path: deeper trees are hard to delete for other programs

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_DIRECTORY = os.O_RDONLY | _NOFOLLOW | getattr(os, "O_DIRECTORY", 0)
# If the file was replaced by a pipe or a terminal meanwhile: do not wait for it, and do not make it the
# controlling terminal.
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
    """A file tool's failure. The message is for the model: the path as given, and what to do."""


def shown(name: str) -> str:
    """Return a name as one safe line: escaped if unprintable (line ends, bytes that are not UTF-8), cut if
    long.
    """
    text = name if name.isprintable() else ascii(name)
    return text if len(text) <= 300 else text[:300] + "…"


def names(path: str) -> tuple[str, ...]:
    """Return the names to walk from the root, () for the root itself. Pure.

    Raises `FileError` for a path that leaves the root or is not valid.
    """
    walked: list[str] = []
    if len(path) > MAX_PATH:
        raise FileError(f"{shown(path)}: a path has at most {MAX_PATH} characters")
    if os.name == "nt":
        path = path.replace("\\", "/")
    if path.startswith("/"):
        relative = shown(path.lstrip("/")) or "."
        raise FileError(
            f"{shown(path)}: absolute paths are not allowed; relative to the root, that is {relative}"
        )
    for name in path.split("/"):
        if name == "..":
            if not walked:
                raise FileError(f"{shown(path)}: leaves the root, and only files below it can be reached")
            walked.pop()
        elif name not in {"", "."}:
            walked.append(_check_name(name, path))
    if len(walked) > MAX_DEPTH:
        raise FileError(f"{shown(path)}: a path has at most {MAX_DEPTH} names")
    return tuple(walked)


def _check_name(name: str, path: str) -> str:
    """Return the name. Raises `FileError` if the system would not treat it as a plain file name."""
    if "\0" in name or any("\ud800" <= char <= "\udfff" for char in name):
        raise FileError(f"{shown(path)}: not a file name")
    # On Windows a colon names a drive or a stream, and some names are devices in every directory.
    device = name.partition(".")[0].rstrip(" ").lower() in _WINDOWS_DEVICES
    if os.name == "nt" and (":" in name or name[-1] in ". " or device):
        raise FileError(f"{shown(path)}: not a file name on Windows")
    return name


class Directory:
    """An open directory. Each method takes one name in it, never a path, and follows no link.

    `descriptor` is None on systems without `dir_fd`; `path` is used then. Methods raise `OSError`.
    """

    def __init__(self, path: str, descriptor: int | None) -> None:
        self.path, self.descriptor = path, descriptor

    def _at(self, name: str) -> str:
        return os.path.join(self.path, name) if self.descriptor is None else name

    def close(self) -> None:
        """Close the descriptor."""
        if self.descriptor is not None:
            os.close(self.descriptor)

    def stat(self, name: str) -> os.stat_result:
        """Return the status of a name; for a link, that of the link."""
        return os.stat(self._at(name), dir_fd=self.descriptor, follow_symlinks=False)

    def names(self) -> list[str]:
        """Return all names in it, sorted by code points."""
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
        """Open a directory in it; create it if it does not exist."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._at(name), dir_fd=self.descriptor)
        return self.directory(name)

    def file(self, name: str) -> int:
        """Open a regular file for reading and return its descriptor; the caller closes it.

        Raises `OSError` (EINVAL) for anything else.
        """
        if not is_file(self.stat(name)):  # checked before opening: opening alone triggers some devices
            raise OSError(errno.EINVAL, "not a regular file", name)
        descriptor = os.open(self._at(name), _FILE, dir_fd=self.descriptor)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # checked again: now it cannot be replaced
            os.close(descriptor)
            raise OSError(errno.EINVAL, "not a regular file", name)
        return descriptor

    def replace(self, name: str, data: bytes, mode: int | None) -> None:
        """Replace `name` by a file of these bytes, atomically; it is on disk when this returns.

        `mode` is its permission bits, None for the umask's default.
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
            with contextlib.suppress(
                OSError
            ):  # the file is written; some file systems cannot sync a directory
                os.fsync(self.descriptor)


def is_file(status: os.stat_result) -> bool:
    """Return whether this is the status of a regular file, not of a link."""
    return stat.S_ISREG(status.st_mode) and not is_link(status)


def is_link(status: os.stat_result) -> bool:
    """Return whether this is the status of a symbolic link or, on Windows, a junction."""
    return stat.S_ISLNK(status.st_mode) or getattr(status, "st_reparse_tag", 0) in _WINDOWS_LINKS


class Root:
    """The directory that the tools may access. Raises `WrongUse` if `path` is not a directory.

    Links in `path` itself are trusted and followed once, here. `descriptors=False` forces the walk for
    systems without `dir_fd`.
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
        """Open a directory below the root by a model's path. With `create`, missing ones are created.

        Every `OSError`, also from the `with` block, becomes a `FileError` with the path as given and without
        the root's location.
        """
        with self._walk(path, names(path), create=create) as directory:
            yield directory

    @contextlib.contextmanager
    def parent(self, path: str, *, create: bool = False) -> Generator[tuple[Directory, str], None, None]:
        """Open the directory that contains (or would contain) a path's file; yield it and the file's name."""
        walked = names(path)
        if not walked:
            raise FileError(f"{shown(path)}: is the root directory, not a file; name a file in it")
        with self._walk(path, walked[:-1], create=create) as directory:
            yield directory, walked[-1]

    @contextlib.contextmanager
    def _walk(self, path: str, walked: tuple[str, ...], *, create: bool) -> Generator[Directory, None, None]:
        here = None
        try:
            here = Directory(self._path, os.open(self._path, _DIRECTORY) if self._descriptors else None)
            for name in walked:
                # One descriptor at a time: many concurrent calls must not exhaust the descriptors.
                above, here = here, None
                with contextlib.closing(above):
                    here = _enter(above, name, path, create=create)
            yield here
        except OSError as error:
            raise FileError(f"{shown(path)}: {reason(error)}") from error
        finally:
            if here is not None:
                here.close()


def _enter(here: Directory, name: str, path: str, *, create: bool) -> Directory:
    try:
        return here.create(name) if create else here.directory(name)
    except OSError:
        # Only for the error message: the name was not entered.
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
    """Return the message of an `OSError` for a model, without the path on this machine."""
    return _REASONS.get(error.errno or 0) or (os.strerror(error.errno) if error.errno else "cannot be used")
