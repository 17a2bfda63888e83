"""A store with sealed runs, and keys to seal it with."""

from collections.abc import Sequence
from pathlib import Path

from refold.reducers import codec
from refold.reducers.events import ContentErased
from refold.store.files import SigningKey
from refold.store.protocol import Head, Record, Store
from refold.store.seals import SealResult, seal


def signing_key(number: int = 1) -> SigningKey:
    """A key that is the same in every test."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return SigningKey(Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32))


def record(number: int, content: str | None = None) -> Record:
    """A record that a store takes; with content, it has a salt too."""
    said = None if content is None else content.encode()
    return Record(at=number, kind="note_added", body=b'{"n":%d}' % number, content=said, salt=b"salt" * 4)


def records(count: int, first: int = 0) -> list[Record]:
    return [record(n, f'"said {n}"' if n % 2 else None) for n in range(first, first + count)]


async def append(store: Store, run: str, new: Sequence[Record]) -> Head:
    lease = await store.lease(run, holder="test")
    head = await store.append(run, (await store.head(run)).seq, lease, new)
    await store.release(lease)
    return head


def notice(*seqs: int) -> Record:
    """What `refold erase` leaves in the log."""
    encoded = codec.encode(ContentErased(at=99, seqs=seqs, by="ann", why="asked to"))
    return Record(at=99, kind=encoded.kind, body=encoded.body)


async def erase(store: Store, run: str, seq: int, left: Record | None = None) -> None:
    """Erase an event's content, and leave a notice of it, or what is given."""
    lease = await store.lease(run, holder="test")
    await store.erase(run, (await store.head(run)).seq, lease, [seq], left or notice(seq))
    await store.release(lease)


async def sealed(store: Store, *runs: str, count: int = 3, key: SigningKey | None = None) -> SealResult:
    """Append to each of the runs, and seal them."""
    for run in runs:
        await append(store, run, records(count))
    return await seal(store, key or signing_key(), now=10**18)


def write_key(path: Path, key: SigningKey) -> Path:
    """The public key's PEM file."""
    import base64

    data = base64.b64encode(bytes.fromhex("302a300506032b6570032100") + key.public).decode()
    path.write_text(f"-----BEGIN PUBLIC KEY-----\n{data}\n-----END PUBLIC KEY-----\n")
    return path
