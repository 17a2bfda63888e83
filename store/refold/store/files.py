"""Files that are written whole or not at all, and Ed25519 keys in PEM files.

Signing needs `cryptography`, which is imported here and late. Checking a signature does not: see
`verify_bundle`.
"""

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from refold.reducers.errors import WorldFailed, WrongUse
from refold.store.protocol import FileProblem
from refold.store.verify_bundle import public_key

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


_TRAILS = ("", "-wal", "-shm", "-journal")  # what SQLite leaves beside its file when it is stopped half-way


@contextmanager
def written_beside(path: Path, *, force: bool = False) -> Generator[Path]:
    """A path to write at, which becomes `path` if all goes well; else nothing is left of it.

    Raises `WrongUse` where `path` is there already, at the beginning or at the end; with `force` only where
    it is no file. Raises `WorldFailed` where it cannot be written.
    """
    check_free(path, force=force)
    # A name that cannot be guessed: a link that was put there would be followed.
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    try:
        yield partial
        if force:
            partial.replace(path)
        else:
            _named(partial, path)
    except OSError as error:
        raise WorldFailed(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        for trail in _TRAILS:
            with suppress(FileNotFoundError):
                partial.with_name(partial.name + trail).unlink()


def check_free(path: Path, *, force: bool = False) -> None:
    """Refuse a path that is taken. Raises `WrongUse`."""
    if not os.path.lexists(path) or (force and path.is_file()):
        return
    raise (
        WrongUse(f"{path}: is no file that could be written over: choose another name")
        if force
        else _taken(path)
    )


def _named(partial: Path, path: Path) -> None:
    # A link never replaces a file that came meanwhile. Not every file system has them.
    try:
        path.hardlink_to(partial)
    except FileExistsError as error:
        raise _taken(path) from error
    except OSError:
        partial.rename(path)


def _taken(path: Path) -> WrongUse:
    return WrongUse(
        f"{path}: is there already, and is not written over: choose another name, or --force where there is one"
    )


_MOST = 2**16  # bytes of a file that may be a key


class BadKey(FileProblem, WrongUse):
    """A file that is no key for this, or that may not become one."""

    def __str__(self) -> str:
        return f"key {self.path}: {self.problem}"


class SigningKey:
    """A private key. `public` are the 32 bytes of the one that goes with it."""

    def __init__(self, key: "Ed25519PrivateKey") -> None:
        self._key = key
        self.public = key.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """The signature, 64 bytes; always the same for a message."""
        return self._key.sign(message)


def read_signing_key(path: Path) -> SigningKey:
    """The private key in a PEM file. Raises `BadKey`, and `WrongUse` where `cryptography` is not
    installed.
    """
    _need()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    text = _read(path)
    if b"PUBLIC KEY" in text and b"PRIVATE KEY" not in text:
        raise BadKey(str(path), "is a public key; signing needs the private one")
    try:
        key = load_pem_private_key(text, password=None)
    except TypeError as error:  # what `cryptography` raises for a password that is missing
        problem = (
            "is encrypted, and no password can be typed here; `openssl pkey -in FILE -out PLAIN` decrypts it"
        )
        raise BadKey(str(path), problem) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadKey(str(path), "is no private key in PEM; `refold keygen FILE` makes one") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise BadKey(str(path), "is a key of another kind than Ed25519; `refold keygen FILE` makes one")
    return SigningKey(key)


def read_public_key(path: Path) -> bytes:
    """The 32 bytes of the public key in a PEM file. Raises `BadKey`."""
    try:
        return public_key(_read(path))
    except ValueError as error:
        raise BadKey(str(path), str(error)) from error


def make_key(path: Path) -> bytes:
    """Write a new private key to `path`, for its owner's eyes only, and the public one beside it as
    `path`.pub.

    Returns the public key, 32 bytes. Nothing is ever written over: raises `BadKey`.
    """
    _need()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    public = public_path(path)
    for each in (path, public):
        if os.path.lexists(each):
            raise BadKey(str(each), "is there already, and a key is never written over: choose another name")
    key = Ed25519PrivateKey.generate()
    private_text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public_text = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    _write(path, private_text, 0o600)
    _write(public, public_text, 0o644)
    return key.public_key().public_bytes_raw()


def public_path(path: Path) -> Path:
    """Where the public key lies that goes with a private one."""
    return path.with_name(f"{path.name}.pub")


def _need() -> None:
    if find_spec("cryptography") is None:
        raise WrongUse("signing needs `cryptography`, not installed here: pip install 'refold[seal]'")


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MOST)
    except OSError as error:
        raise BadKey(str(path), f"cannot be read: {error.strerror}") from error


def _write(path: Path, text: bytes, mode: int) -> None:
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(text)
    except OSError as error:
        raise BadKey(str(path), f"cannot be written: {error.strerror}") from error
