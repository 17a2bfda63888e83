"""Atomic writing of files, and Ed25519 keys in PEM files.

Signing needs `cryptography`, which is imported in the functions that use it. Checking a signature does not:
see `verify_bundle`.
"""

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from refold.reducers.errors import ExternalFailure, WrongUse
from refold.store.protocol import FileProblem
from refold.store.verify_bundle import public_key

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


_TRAILS = ("", "-wal", "-shm", "-journal")  # files that an interrupted SQLite leaves beside its database


@contextmanager
def write_atomically(path: Path, *, force: bool = False) -> Generator[Path]:
    """Yield a temporary path that is renamed to `path` on success and deleted on failure.

    Raises `WrongUse` if `path` exists on entry or at the end; with `force` only if it is not a regular file.
    Raises `ExternalFailure` if it cannot be written.
    """
    check_free(path, force=force)
    # The name must not be guessable: an attacker's link with that name would be followed.
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    try:
        yield partial
        if force:
            partial.replace(path)
        else:
            _put_in_place(partial, path)
    except OSError as error:
        raise ExternalFailure(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        for trail in _TRAILS:
            with suppress(FileNotFoundError):
                partial.with_name(partial.name + trail).unlink()


def check_free(path: Path, *, force: bool = False) -> None:
    """Raise `WrongUse` if something exists at `path` that may not be replaced."""
    if not os.path.lexists(path) or (force and path.is_file()):
        return
    raise (
        WrongUse(f"{path}: is not a regular file and cannot be overwritten: choose another name")
        if force
        else _exists_error(path)
    )


def _put_in_place(partial: Path, path: Path) -> None:
    # A link never replaces a file created meanwhile. Some file systems do not support links.
    try:
        path.hardlink_to(partial)
    except FileExistsError as error:
        raise _exists_error(path) from error
    except OSError:
        partial.rename(path)


def _exists_error(path: Path) -> WrongUse:
    return WrongUse(
        f"{path}: exists and is not overwritten: choose another name (some commands have --force)"
    )


_MOST = 2**16  # maximum bytes of a key file


class BadKey(FileProblem, WrongUse):
    """A file that is not a usable key, or a path where no key may be written."""

    def __str__(self) -> str:
        return f"key {self.path}: {self.problem}"


class SigningKey:
    """A private key. `public` is its public key, 32 bytes."""

    def __init__(self, key: "Ed25519PrivateKey") -> None:
        self._key = key
        self.public = key.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """Return the signature, 64 bytes. It is deterministic."""
        return self._key.sign(message)


def read_signing_key(path: Path) -> SigningKey:
    """Read a private key from a PEM file.

    Raises `BadKey`, or `WrongUse` if `cryptography` is not installed.
    """
    _require_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    text = _read(path)
    if b"PUBLIC KEY" in text and b"PRIVATE KEY" not in text:
        raise BadKey(str(path), "is a public key; signing needs the private one")
    try:
        key = load_pem_private_key(text, password=None)
    except TypeError as error:  # `cryptography` raises it for a missing password
        problem = (
            "is encrypted, and passwords are not supported; `openssl pkey -in FILE -out PLAIN` decrypts it"
        )
        raise BadKey(str(path), problem) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadKey(str(path), "is not a private key in PEM; `refold keygen FILE` creates one") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise BadKey(str(path), "is not an Ed25519 key; `refold keygen FILE` creates one")
    return SigningKey(key)


def read_public_key(path: Path) -> bytes:
    """Read a public key, 32 bytes, from a PEM file. Raises `BadKey`."""
    try:
        return public_key(_read(path))
    except ValueError as error:
        raise BadKey(str(path), str(error)) from error


def make_key(path: Path) -> bytes:
    """Write a new private key to `path`, readable by its owner only, and the public key to `path`.pub.

    Returns the public key, 32 bytes. Raises `BadKey` if one of the files exists.
    """
    _require_cryptography()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    public = public_path(path)
    for each in (path, public):
        if os.path.lexists(each):
            raise BadKey(str(each), "exists, and keys are never overwritten: choose another name")
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
    """Return the path of the public key that belongs to a private key file."""
    return path.with_name(f"{path.name}.pub")


def _require_cryptography() -> None:
    if find_spec("cryptography") is None:
        raise WrongUse("signing needs `cryptography`, which is not installed: pip install 'refold[seal]'")


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
