#!/usr/bin/env python3
"""Verify a bundle of refold logs. Needs only the standard library of Python 3.9 or newer.

    python verify.py BUNDLE [--key FILE.pub]...

It checks the zip (exactly the expected members, each intact), the hash chain of each run, the inclusion
proofs under the seal (a signed checkpoint; Merkle tree of RFC 9162), and its signature (Ed25519, RFC 8032).
Exit codes: 0 intact, 2 not a bundle, 3 changed, 4 the file cannot be read, 125 inconclusive.

A bundle is untrusted input. So no library reads the zip, and every byte must have a place in the format.
Nothing is unpacked to disk. Members are read in pieces, and everything else has an upper bound.
Each bundle contains a copy of this file. If you do not trust the sender, get this file from another source.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256, sha512
from typing import BinaryIO, NamedTuple, TypeVar, cast

FORMAT = "refold bundle v1"
SEAL = "refold seal v1"
NEWEST = "*"
"""The run id in the last entry of each seal. That entry covers the newest entry of each run."""
PIECE = 2**20
MOST_RUNS = 4096
MOST_BYTES = 2**31 - 1
"""Upper bound on the size of an unpacked member and of a bundle, in bytes. Larger zips need zip64."""
MOST_IN_ALL = 2**33
"""Upper bound on the size of all unpacked members together, in bytes."""
MOST_JSON = {"manifest.json": 2**23, "seals.json": 2**24}
MOST_LINE = 2**25
"""Upper bound on a line of a run (one event as JSON), in bytes. It bounds the memory in use."""
MOST_VALUES = 2**18
"""Upper bound on the values in `manifest.json` or `seals.json`. A value can take two bytes there, and far
more in memory.
"""

_NAME = re.compile(r"README\.txt|verify\.py|manifest\.json|seals\.json|runs/[0-9]{6}\.jsonl")
_HEX = re.compile("(?:[0-9a-f]{2})*")
Parsed = TypeVar("Parsed")
_UNNAMEABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class BundleChanged(Exception):
    """The bundle differs from what was packed."""


class NoBundle(Exception):
    """The file is not a bundle."""


class Unjudged(Exception):
    """The check is inconclusive: the bundle may be intact, but this program cannot tell."""


class ZipMember(NamedTuple):
    """A file in the zip: the offset of its bytes, their count packed and unpacked, and their CRC-32."""

    name: str
    start: int
    packed: int
    size: int
    crc: int
    deflated: bool


class PackedRun(NamedTuple):
    """A run in the bundle: its id, the member with its events, and the number and hash of its last event."""

    id: str
    member: str
    events: int
    head: bytes


class ForkOrigin(NamedTuple):
    """The fork point: event `seq` of `run`, and its hash."""

    run: str
    seq: int
    hash: bytes


class BundleLine(NamedTuple):
    """One event. A digest without content means that the payload was erased. `at` is in ns since 1970."""

    seq: int
    at: int
    kind: str
    body: bytes
    content: bytes | None
    salt: bytes
    content_digest: bytes | None
    hash: bytes

    @property
    def erased(self) -> bool:
        """Whether the payload was erased."""
        return self.content is None and self.content_digest is not None


class SignedTreeHead(NamedTuple):
    """A signed tree head: the root over the first `size` entries of a store's log of heads."""

    size: int
    at: int
    root: bytes
    key: bytes
    signature: bytes


class NewestEntry(NamedTuple):
    """The last entry of the log of heads: a root over the newest entries of `runs` runs, and its path."""

    runs: int
    root: bytes
    path: list[bytes]


class Proof(NamedTuple):
    """Proof that event `seq` of a run, with this hash, is the run's newest entry.

    `place` is its index in `NewestEntry`, from 0, and `path` its inclusion proof there.
    """

    seq: int
    hash: bytes
    place: int
    path: list[bytes]


class Seals(NamedTuple):
    """The contents of `seals.json`."""

    seal: SignedTreeHead
    newest: NewestEntry
    proofs: dict[str, Proof]


# --- hashes, specified in docs/reference/hash-chain.md and bundles.md


def framed(data: bytes) -> bytes:
    """Prefix the bytes with their length, so that they cannot run into the next field."""
    return b"%d:%b" % (len(data), data)


def leaf_hash(run: str, seq: int, head: bytes) -> bytes:
    """Hash an entry of the log of heads: event `seq` of `run` has the hash `head`."""
    return sha256(b"\0" + framed(run.encode()) + framed(b"%d" % seq) + head).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Hash an inner node."""
    return sha256(b"\1" + left + right).digest()


def root_of(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes | None:
    """Compute the root of an inclusion proof; None if the proof has the wrong length.

    `index` counts from 0. Source: RFC 9162, 2.1.3.2.
    """
    place, last, found = index, size - 1, leaf
    for each in path:
        if last == 0:
            return None
        if place & 1 or place == last:
            found = node_hash(each, found)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            found = node_hash(found, each)
        place, last = place >> 1, last >> 1
    return found if last == 0 and 0 <= index < size else None


def seal_message(size: int, at: int, root: bytes) -> bytes:
    """Return the bytes that a seal signs."""
    return b"".join(map(framed, (SEAL.encode(), b"%d" % size, b"%d" % at, root)))


def hash_event(run: str, previous: bytes, line: BundleLine) -> bytes:
    """Hash an event that follows the hash `previous`."""
    fields = ("sha256", run, str(line.seq), str(line.at), line.kind)
    header = b"".join(framed(field.encode()) for field in fields)
    return sha256(previous + header + sha256(line.body).digest() + (line.content_digest or b"")).digest()


# --- Ed25519: points are (X, Y, Z, T) with x = X/Z, y = Y/Z, xy = T/Z

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, P) % P
_D2 = 2 * _D % P
_ROOT = pow(2, (P - 1) // 4, P)  # the square root of -1
Point = tuple[int, int, int, int]


def verify_signature(key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether `signature` is a valid signature of the message by this key.

    Takes about 2 ms. It handles no secrets, so its time may depend on the input.
    Rejects non-canonical values. Source: RFC 8032, 5.1.7.
    """
    point, scalar = _decode_point(key), int.from_bytes(signature[32:], "little")
    if point is None or len(signature) != 64 or scalar >= ORDER:
        return False
    hashed = int.from_bytes(sha512(signature[:32] + key + message).digest(), "little") % ORDER
    x, y, z, t = point
    return _encode_point(_multiply_add(scalar, hashed, (P - x, y, z, P - t))) == signature[:32]


def _decode_point(data: bytes) -> Point | None:
    value = int.from_bytes(data, "little")
    y, sign = value & (2**255 - 1), value >> 255
    if len(data) != 32 or y >= P:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * _ROOT % P
    if (x * x - square) % P or (not x and sign):
        return None
    x = x if x & 1 == sign else P - x
    return x, y, 1, x * y % P


_X, _Y = 0x216936D3CD6E53FEC0A4E231FDD6DC5C692CC7609525A7B2C9562D608F25D51A, 4 * pow(5, -1, P) % P
_BASE: Point = (_X, _Y, 1, _X * _Y % P)


def _encode_point(point: Point) -> bytes:
    inverse = pow(point[2], -1, P)
    x, y = point[0] * inverse % P, point[1] * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _multiply_add(base: int, other: int, point: Point) -> Point:
    """Compute `base` times the base point plus `other` times `point`, both in one pass over the bits."""
    terms = ((0, 1, 1, 0), _BASE, point, _add_points(_BASE, point))
    found: Point = terms[0]
    for bit in range(252, -1, -1):
        found = _add_points(found, found)
        term = (base >> bit & 1) | (other >> bit & 1) << 1
        found = _add_points(found, terms[term]) if term else found
    return found


def _add_points(one: Point, other: Point) -> Point:
    a, b = (one[1] - one[0]) * (other[1] - other[0]) % P, (one[1] + one[0]) * (other[1] + other[0]) % P
    c, d = one[3] * other[3] * _D2 % P, 2 * one[2] * other[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def public_key(text: bytes) -> bytes:
    """Read the 32 bytes of a public Ed25519 key from PEM text. Raises `ValueError`."""
    if b"PRIVATE KEY" in text:
        raise ValueError("is a private key; expected the public key, FILE.pub")
    found = re.fullmatch(rb"\s*-----BEGIN PUBLIC KEY-----\s+(\S[\S\s]*?)\s*-----END PUBLIC KEY-----\s*", text)
    try:
        data = base64.b64decode(b"".join(found[1].split()), validate=True) if found else b""
    except ValueError:
        data = b""
    if len(data) != 44 or not data.startswith(bytes.fromhex("302a300506032b6570032100")):
        raise ValueError("is not a public Ed25519 key in PEM; expected the output of `openssl pkey -pubout`")
    return data[12:]


def key_id(key: bytes) -> str:
    """Return the short name of a key: 16 hex digits."""
    return sha256(key).hexdigest()[:16]


# --- the zip: members without gaps, then the directory, then the end record, and nothing else


def _is_member_name(name: bytes) -> bool:
    return _NAME.fullmatch(name.decode("latin-1")) is not None


def read_directory(file: BinaryIO) -> dict[str, ZipMember]:
    """Read the zip's directory: members by name.

    Raises `NoBundle`, and `BundleChanged` for a zip that differs from the bundle format.
    """
    size = file.seek(0, 2)
    file.seek(0)
    if file.read(4) != b"PK\3\4":
        raise NoBundle("is not a bundle: it does not start like a zip file")
    try:
        return _parse_directory(file, size)
    except BundleChanged as error:
        file.seek(30)
        if file.read(9) == b"verify.py" or b"runs/000001.jsonl" in _read_tail(file, size, 2**19):
            raise
        raise NoBundle(f"is a zip file but not a bundle: {error}") from error


def _read_tail(file: BinaryIO, size: int, most: int) -> bytes:
    file.seek(max(size - most, 0))
    return file.read(most)


def _parse_directory(file: BinaryIO, size: int) -> dict[str, ZipMember]:
    end = _read_tail(file, size, 22)
    if size > MOST_BYTES or len(end) != 22 or end[:4] != b"PK\5\6":
        raise BundleChanged("the zip file has no end record, has data after it, or is larger than 2 GiB")
    disk, disk2, count, total, length, offset, comment = struct.unpack("<4H2LH", end[4:])
    actual = disk, disk2, comment, total, offset + length
    if actual != (0, 0, 0, count, size - 22) or count > MOST_RUNS + 4:
        raise BundleChanged("the zip file's end record is not that of a bundle")
    file.seek(offset)
    central = file.read(length)
    found, place = dict[str, ZipMember](), 0
    for _ in range(count):
        place = _read_entry(file, central, place, found)
    if (place, _end_of_members(found)) != (length, offset) or sum(
        each.size for each in found.values()
    ) > MOST_IN_ALL:
        raise BundleChanged("the zip file has bytes outside its members, or unpacks to more than 8 GiB")
    return found


def _read_entry(file: BinaryIO, central: bytes, place: int, found: dict[str, ZipMember]) -> int:
    """Read the directory entry at `place` and check it against its member's header.

    Returns the place of the next entry.
    """
    if central[place : place + 4] != b"PK\1\2" or len(central) < place + 46:
        raise BundleChanged("the zip file's directory cannot be parsed")
    fields = struct.unpack("<6H3L5H2L", central[place + 4 : place + 46])
    _, _, flags, method, _, _, crc, packed, size, length, extra, comment, disk, _, kind, offset = fields
    raw = central[place + 46 : place + 46 + length]
    if not _is_member_name(raw) or raw.decode() in found:
        raise BundleChanged(f"member {raw[:80]!r} is a duplicate, or not part of a bundle")
    name = raw.decode()
    mode = kind >> 16 & 0o170000
    if any((flags, extra, comment, disk, kind & 0x10)) or method not in (0, 8) or mode not in (0, 0o100000):
        raise BundleChanged(
            f"member {name} is encrypted, a link, or stored in another way that bundles do not use"
        )
    file.seek(offset)
    header = file.read(30 + length)
    start = _end_of_members(found)
    if (offset, header) != (start, b"PK\3\4" + central[place + 6 : place + 32] + raw):
        raise BundleChanged(f"member {name} does not match its entry in the zip file's directory")
    if size > MOST_JSON.get(name, MOST_BYTES):
        raise BundleChanged(f"member {name} declares {size} bytes unpacked, more than a bundle allows")
    found[name] = ZipMember(name, offset + len(header), packed, size, crc, method == 8)
    return place + 46 + len(raw)


def _end_of_members(found: dict[str, ZipMember]) -> int:
    """Return the offset where the last member found so far ends."""
    last = next(reversed(found.values()), None)
    return last.start + last.packed if last else 0


def read_member(file: BinaryIO, member: ZipMember) -> Iterator[bytes]:
    """Yield a member's unpacked bytes, at most `PIECE` at a time.

    Raises `BundleChanged` at the first piece that exceeds the declared size.
    """
    size = crc = 0
    for piece in (_inflate if member.deflated else _read_packed)(file, member):
        size, crc = size + len(piece), zlib.crc32(piece, crc)
        if size > member.size:
            break
        yield piece
    if size != member.size or crc != member.crc:
        raise BundleChanged(
            f"member {member.name} does not unpack to its declared {member.size} bytes and checksum"
        )


def _read_packed(file: BinaryIO, member: ZipMember) -> Iterator[bytes]:
    for start in range(0, member.packed, PIECE):
        file.seek(member.start + start)  # the file position may have moved since the last piece
        yield file.read(min(PIECE, member.packed - start))


def _inflate(file: BinaryIO, member: ZipMember) -> Iterator[bytes]:
    inflate = zlib.decompressobj(-15)
    try:
        for packed in _read_packed(file, member):
            yield inflate.decompress(packed, PIECE)
            while inflate.unconsumed_tail:
                yield inflate.decompress(inflate.unconsumed_tail, PIECE)
            yield inflate.decompress(b"", PIECE)  # the rest of a repetition that exceeded the last piece
    except zlib.error as error:
        raise BundleChanged(f"member {member.name} cannot be unpacked: {error}") from error
    if not inflate.eof or inflate.unused_data:
        raise BundleChanged(f"member {member.name} is truncated, or has data after its end")


# --- JSON, with exactly the expected values


def _decode_json(data: bytes) -> object:
    """Decode JSON text. Each nested value follows a comma or a bracket, so counting these bounds them."""
    if sum(map(data.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise ValueError(f"it has more than {MOST_VALUES} values")
    value: object = _JSON.decode(data.decode())
    return value


def _parse(make: Callable[[bytes], Parsed], data: bytes, what: str) -> Parsed:
    """Parse JSON text with `make`. Raises `BundleChanged` if it is invalid."""
    try:
        return make(data)
    except (ValueError, RecursionError) as error:
        raise BundleChanged(f"{what} is invalid: {str(error)[:200]}") from error


def _reject_duplicates(pairs: list[tuple[str, Parsed]]) -> dict[str, Parsed]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate name in an object")
    return found


def _parse_number(text: str) -> int:
    return int(text) if len(text) <= 20 else int(_reject_number(text))


def _reject_number(text: str) -> str:
    raise ValueError(f"number {text[:20]} is not an integer of at most 20 characters")


_JSON = json.JSONDecoder(
    object_pairs_hook=_reject_duplicates,
    parse_int=_parse_number,
    parse_float=_reject_number,
    parse_constant=_reject_number,
)


def _expect_object(value: object, names: str) -> list[object]:
    """Return the values of an object that has exactly these names, in the order of `names`."""
    fields = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    if fields.keys() != set(names.split()):
        raise ValueError(f"expected an object with {names}")
    return [fields[name] for name in names.split()]


def _expect_list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ValueError("expected a list")
    return cast("list[object]", value)


def _expect_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("expected text")
    value.encode()  # raises for lone surrogates
    return value


def _expect_int(value: object, least: int = 0, most: int = 2**63 - 1) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"expected an integer from {least} to {most}")
    return value


def _expect_hex(value: object, size: int | None = 32) -> bytes:
    text = _expect_text(value)
    if not _HEX.fullmatch(text) or (size is not None and len(text) != 2 * size):
        raise ValueError(f"expected {size or 'some'} bytes as lower-case hex digits")
    return bytes.fromhex(text)


def _expect_run_id(value: object) -> str:
    text = _expect_text(value)
    if not text or _UNNAMEABLE.search(text):
        raise ValueError("expected a run id: one non-empty line of text")
    return text


_FIELDS = "seq at kind hash digest salt body content"
_STARTS = [f'{"," if number else "{"}"{name}":' for number, name in enumerate(_FIELDS.split())]


def _split_values(text: str) -> Iterator[object]:
    """Yield the values of a line in order.

    `json` would build nested values before they could be rejected, so the names are matched as text.
    """
    place = 0
    for start in _STARTS:
        begin = place + len(start)
        if not text.startswith(start, place) or text[begin : begin + 1] in "[{":
            raise ValueError(f"expected an object with {_FIELDS}, in this order, without spaces")
        value, place = cast("tuple[object, int]", _JSON.raw_decode(text, begin))
        yield value
    if text[place:] != "}":
        raise ValueError("unexpected text after the field content")


def _parse_line(data: bytes) -> BundleLine:
    seq, at, kind, hashed, digest, salt, body, content = _split_values(data.decode())
    line = BundleLine(
        seq=_expect_int(seq, 1),
        at=_expect_int(at, -(2**63)),
        kind=_expect_text(kind),
        body=_expect_text(body).encode(),
        content=None if content is None else _expect_text(content).encode(),
        salt=_expect_hex(salt, None),
        content_digest=None if digest is None else _expect_hex(digest),
        hash=_expect_hex(hashed),
    )
    if not (line.kind.isascii() and line.kind.isidentifier()) or 0 in line.body + (line.content or b""):
        raise ValueError("a kind has letters, digits and underscores only, and JSON text no NUL")
    return line


# --- erased payloads


class UnexplainedErasures:
    """Events of a run whose payload is missing and that no erasure record names yet.

    Whoever can write a store can delete payloads without breaking the chain. `refold erase` appends a
    `content_erased` event to the same log, so a missing payload without one was not erased by it. `loose`
    counts the events whose erasure record comes after event `sealed`: an attacker could have appended it.
    """

    def __init__(self, sealed: int = 0) -> None:
        self._kinds = dict[int, str]()
        self._sealed, self.loose = sealed, 0

    def take(self, seq: int, kind: str, body: bytes, *, bare: bool) -> None:
        """Process the next event of the log. `bare`: its payload is missing.

        An erasure record that cannot be read names no events.
        """
        if bare:
            self._kinds[seq] = kind
        if kind == "content_erased":
            for each in _erased_seqs(body):
                self.loose += self._kinds.pop(each, None) is not None and seq > self._sealed

    def notice(self, kind: str, body: bytes, upto: int) -> None:
        """Process a parent's event after the fork point `upto`: it may name events that the fork shares."""
        if kind == "content_erased":
            for each in _erased_seqs(body):
                self.loose += each <= upto and self._kinds.pop(each, None) is not None

    @property
    def first(self) -> tuple[int, str] | None:
        """The first event without an erasure record, by number and kind, or None."""
        return next(iter(self._kinds.items()), None)


def ended_child(body: bytes) -> tuple[str, int, str]:
    """Read a `child_ended` body: the child run, the number of its last event, and that event's hash (hex)."""
    fields = _body_fields(body)
    run, seq, hashed = (fields.get(name) for name in ("run", "head_seq", "head_hash"))
    whole = isinstance(hashed, str) and len(hashed) == 64  # any other value has no bound on its length
    return str(run), seq if isinstance(seq, int) else 0, str(hashed) if whole else ""


def child_differs(run: str, seq: int) -> str:
    """Describe a child's log that does not match its parent's record."""
    return f"it records event {seq} as the end of run {run}, with a hash that is not in that run's log"


def forked_from(line: BundleLine) -> ForkOrigin | None:
    """Return the fork point of the run that starts with this event.

    None if the run starts with event 1 or its body names no valid fork point.
    """
    fields = _body_fields(line.body) if line.kind == "run_forked" and line.seq > 1 else {}
    try:
        origin = ForkOrigin(
            _expect_run_id(fields.get("parent")),
            _expect_int(fields.get("parent_seq"), 1),
            _expect_hex(fields.get("parent_hash")),
        )
    except ValueError:
        return None
    return origin if origin.seq == line.seq - 1 else None


UNNAMED = "its payload is missing, and no erasure record names it"


def loose_erasures(count: int) -> str:
    """Describe what is not proven about `count` erasures."""
    return f"who erased payloads and why: no signed checkpoint covers the erasure records ({count})"


def _erased_seqs(body: bytes) -> list[int]:
    try:
        return [_expect_int(each) for each in _expect_list(_body_fields(body).get("seqs"))]
    except ValueError:
        return []


def _body_fields(body: bytes) -> dict[str, object]:
    """Return the fields of a body, or {} if it cannot be read: other checks report that."""
    try:
        value = _decode_json(body)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


# --- the bundle


def _parse_member(value: object) -> tuple[str, tuple[int, bytes]]:
    name, size, digest = _expect_object(value, "name size sha256")
    return _expect_text(name), (_expect_int(size), _expect_hex(digest))


def _parse_run(value: object) -> PackedRun:
    run, member, events, head = _expect_object(value, "run member events head")
    return PackedRun(_expect_run_id(run), _expect_text(member), _expect_int(events, 1), _expect_hex(head))


def _parse_manifest(data: bytes) -> tuple[str, dict[str, tuple[int, bytes]], list[PackedRun]]:
    value = _decode_json(data)
    fields = cast("dict[str, object]", value if isinstance(value, dict) else {})
    named = fields.get("format")
    if named != FORMAT:
        return _expect_text(named), {}, []
    version, members, runs = _expect_object(fields, "format members runs")
    return (
        _expect_text(version),
        _reject_duplicates([_parse_member(each) for each in _expect_list(members)]),
        [*map(_parse_run, _expect_list(runs))],
    )


def _parse_proof(value: object) -> tuple[str, Proof]:
    run, seq, hashed, index, path = _expect_object(value, "run seq hash index path")
    return _expect_run_id(run), Proof(
        _expect_int(seq, 1), _expect_hex(hashed), _expect_int(index), [*map(_expect_hex, _expect_list(path))]
    )


def _parse_newest(value: object) -> NewestEntry:
    runs, root, path = _expect_object(value, "runs root path")
    return NewestEntry(_expect_int(runs, 1), _expect_hex(root), [*map(_expect_hex, _expect_list(path))])


def _parse_seals(data: bytes) -> Seals:
    seal, newest, runs = _expect_object(_decode_json(data), "seal newest runs")
    size, at, root, key, signature = _expect_object(seal, "size at root key signature")
    made = SignedTreeHead(
        _expect_int(size, 1), _expect_int(at), _expect_hex(root), _expect_hex(key), _expect_hex(signature, 64)
    )
    return Seals(
        made, _parse_newest(newest), _reject_duplicates([_parse_proof(each) for each in _expect_list(runs)])
    )


NOTHING_SEALED = "its signed checkpoint covers none of its runs, so no run is signed"


class Bundle:
    """An open bundle. The constructor checks its directory, manifest, seal and signature, but not its runs.

    `keys` are the keys that may have signed the seal; without keys, any may. `proofs` has the sealed event of
    each run that the seal covers. The counts cover the runs that were read to their end. Raises `NoBundle`,
    `BundleChanged`, and `Unjudged` for another format version, or if `keys` are given and no run is signed.
    """

    def __init__(self, file: BinaryIO, keys: Sequence[bytes] = ()) -> None:
        self._file, self.members = file, read_directory(file)
        self._sums = dict[str, tuple[int, bytes]]()
        self._child_ends = dict[str, tuple[str, int, int, str]]()
        self.events = self.contents = self.erased = self.loose = self.sealed_events = 0
        if "manifest.json" not in self.members:
            lost = any(name.startswith(("runs/", "verify.py")) for name in self.members)
            raise (
                BundleChanged("manifest.json is missing")
                if lost
                else NoBundle("is a zip file but not a bundle")
            )
        version, self._sums, self.runs = _parse(
            _parse_manifest, self._read_whole("manifest.json"), "manifest.json"
        )
        if version != FORMAT:
            raise Unjudged(f"format {version[:40]!a} is unknown; expected {FORMAT}: use a newer verifier")
        self._ids = {run.id: place for place, run in enumerate(self.runs)}
        self._forks = dict[str, list[tuple[str, int, bytes]]]()
        self._reread_bytes = 0
        self._check_members()
        self.seal: SignedTreeHead | None = None
        self.proofs = dict[str, Proof]()
        if "seals.json" in self.members:
            self.seal, newest, self.proofs = _parse(
                _parse_seals, self._read_whole("seals.json"), "seals.json"
            )
            self._check_seal(self.seal, newest)
        self.known = bool(keys)
        if keys:
            self._check_key(keys)

    def lines(self, run: PackedRun) -> Iterator[BundleLine]:
        """Yield the events of a run in order, each checked; after the last, check that none is missing.

        Raises `BundleChanged`.
        """
        origin = self.origin(run)
        previous, before = (origin.hash, origin.seq) if origin else (bytes(32), 0)
        seq = before
        if origin:
            self._forks.setdefault(origin.run, []).append((run.id, origin.seq, origin.hash))
        sealed = self.proofs.get(run.id)
        bare = UnexplainedErasures(sealed.seq if sealed else 0)
        for data in self._split_lines(run.member):
            line = _parse(_parse_line, data, f"{run.member}, line {seq + 1}")
            problem = _find_problem(run.id, seq, previous, line) or _compare_with_seal(line, sealed)
            if problem is not None:
                raise BundleChanged(f"run {run.id} event {line.seq}: {problem}")
            bare.take(line.seq, line.kind, line.body, bare=line.erased)
            self._count(run.id, line)
            previous, seq = line.hash, line.seq
            yield line
        if (seq, previous) != (run.events, run.head):
            raise BundleChanged(
                f"run {run.id}: its end at event {seq} differs from the manifest (event {run.events}, or another hash)"
            )
        if bare.first is not None:
            raise BundleChanged(f"run {run.id} event {bare.first[0]}: {UNNAMED}")
        self.loose += bare.loose
        self.events += seq - before
        self.sealed_events += max(sealed.seq - before, 0) if sealed else 0

    def _count(self, run: str, line: BundleLine) -> None:
        """Count an event's payload, and record the end of a child that is also in the bundle."""
        self.contents += line.content is not None
        self.erased += line.erased
        if line.kind == "child_ended":
            child, last, hashed = ended_child(line.body)
            if child in self._ids:
                self._child_ends[child] = (run, line.seq, last, hashed)

    def origin(self, run: PackedRun) -> ForkOrigin | None:
        """Return a fork's origin, an event of an earlier run in the bundle, or None for other runs.

        Raises `BundleChanged`.
        """
        data = next(self._split_lines(run.member), None)
        origin = forked_from(_parse(_parse_line, data, f"{run.member}, line 1")) if data else None
        if origin and not self._ids.get(origin.run, len(self._ids)) < self._ids[run.id]:
            raise BundleChanged(f"run {run.id} is a fork of run {origin.run}, which does not come before it")
        return origin

    def behind(self, run: PackedRun) -> Iterator[tuple[PackedRun, int, BundleLine]]:
        """Yield the events of a fork's ancestors, the oldest run first, with the last shared event.

        They are not checked here, but by `lines` of their own runs. Raises `BundleChanged`, and `Unjudged` if
        forks of long runs would make the total work too large.
        """
        chain = list[tuple[PackedRun, int]]()
        origin = self.origin(run)
        while origin:
            parent = self.runs[self._ids[origin.run]]
            chain.append((parent, origin.seq))
            origin = self.origin(parent)
        for parent, upto in reversed(chain):
            self._reread_bytes += self.members[parent.member].size
            if self._reread_bytes > MOST_IN_ALL:
                raise Unjudged("its forks share too many bytes with their parents to check each of them")
            for data in self._split_lines(parent.member):
                yield parent, upto, _parse(_parse_line, data, parent.member)

    def check_rest(self) -> None:
        """Check references between runs, and the other members, after all runs were read.

        Raises `BundleChanged`.
        """
        for run in self.runs:
            if run.id in self._child_ends:
                parent, at, seq, hashed = self._child_ends[run.id]
                if self._hashes_at(run, {seq}).get(seq, b"").hex() != hashed:
                    raise BundleChanged(f"run {parent} event {at}: {child_differs(run.id, seq)}")
            forks = self._forks.get(run.id, [])
            found = self._hashes_at(run, {seq for _, seq, _ in forks}) if forks else {}
            for fork, seq, last in forks:
                if found.get(seq) != last:
                    raise BundleChanged(
                        f"run {fork} event {seq + 1}: it records event {seq} of run {run.id} as its fork point, with a "
                        "hash that is not in that run's log"
                    )
        for name in ("README.txt", "verify.py"):
            for _ in self._read_pieces(name):
                pass

    @property
    def verifier(self) -> bytes:
        """The SHA-256 of the bundle's copy of this file, from the manifest; `check_rest` compares it."""
        return self._sums["verify.py"][1]

    def _hashes_at(self, run: PackedRun, seqs: set[int]) -> dict[int, bytes]:
        read = (_parse(_parse_line, data, run.member) for data in self._split_lines(run.member))
        return {line.seq: line.hash for line in read if line.seq in seqs}

    def _check_members(self) -> None:
        """Check that the manifest lists exactly the members present, with their sizes."""
        listed = {name: size for name, (size, _) in self._sums.items()}
        there = {name: each.size for name, each in self.members.items() if name != "manifest.json"}
        if listed != there:
            name, _ = min(listed.items() ^ there.items())
            raise BundleChanged(
                f"member {name[:80]!a} is missing, added, or differs in size from the manifest"
            )
        if missing := [name for name in ("README.txt", "verify.py") if name not in there]:
            raise BundleChanged(f"{missing[0]} is missing")
        self._check_run_members(sorted(name for name in there if name.startswith("runs/")))

    def _check_run_members(self, files: Sequence[str]) -> None:
        if files != sorted(run.member for run in self.runs) or len(self._ids) != len(files):
            raise BundleChanged("the runs in the manifest do not match the files in runs/, one file each")

    def _check_seal(self, seal: SignedTreeHead, newest: NewestEntry) -> None:
        """Check the seal's signature, and that each covered run's event is the newest that was sealed."""
        if not verify_signature(seal.key, seal_message(seal.size, seal.at, seal.root), seal.signature):
            raise BundleChanged(
                f"the signed checkpoint has an invalid signature for its key {key_id(seal.key)}"
            )
        # It must be the last entry: entries of older seals are in the log as well.
        last = leaf_hash(NEWEST, newest.runs, newest.root)
        if root_of(last, seal.size - 1, seal.size, newest.path) != seal.root:
            raise BundleChanged("the proof that the signed checkpoint covers the newest entries is invalid")
        events = {run.id: run.events for run in self.runs}
        for run, proof in self.proofs.items():
            if not 1 <= proof.seq <= events.get(run, 0):
                raise BundleChanged(
                    f"run {run}: event {proof.seq} was sealed, but the bundle has {events.get(run, 0)} events"
                )
            leaf = leaf_hash(run, proof.seq, proof.hash)
            if root_of(leaf, proof.place, newest.runs, proof.path) != newest.root:
                raise BundleChanged(
                    f"run {run}: the proof that event {proof.seq} is the last sealed one is invalid"
                )

    def _check_key(self, keys: Sequence[bytes]) -> None:
        if self.seal is None:
            raise Unjudged("it has no signed checkpoint to check against a key")
        if self.seal.key not in keys:
            wanted = ", ".join(map(key_id, keys))
            raise BundleChanged(f"the signed checkpoint is by key {key_id(self.seal.key)}; expected {wanted}")
        if not self.proofs:
            raise Unjudged(NOTHING_SEALED)

    def _read_pieces(self, name: str) -> Iterator[bytes]:
        hashed = sha256()
        for piece in read_member(self._file, self.members[name]):
            hashed.update(piece)
            yield piece
        if name in self._sums and hashed.digest() != self._sums[name][1]:
            raise BundleChanged(f"member {name} was changed: its SHA-256 differs from the manifest")

    def _read_whole(self, name: str) -> bytes:
        return b"".join(self._read_pieces(name))

    def _split_lines(self, name: str) -> Iterator[bytes]:
        held = list[bytes]()
        for piece in self._read_pieces(name):
            *ends, rest = piece.split(b"\n")
            for end in ends:
                yield b"".join((*held, end))
                held.clear()
            held.append(rest)
            if sum(map(len, held)) > MOST_LINE:
                break
        if any(held):
            raise BundleChanged(f"{name} has an unterminated line, or one of more than {MOST_LINE} bytes")


def _find_problem(run: str, before: int, previous: bytes, line: BundleLine) -> str | None:
    if line.seq != before + 1:
        return f"expected event {before + 1} here"
    if line.content is None and line.salt:
        return "it has a salt but no payload"
    if line.content is not None and sha256(framed(line.salt) + line.content).digest() != line.content_digest:
        return "its payload, salt or digest was changed"
    if hash_event(run, previous, line) != line.hash:
        return "its hash does not match: its header, body, digest or the previous hash was changed"
    return None


def _compare_with_seal(line: BundleLine, sealed: Proof | None) -> str | None:
    if sealed and line.seq == sealed.seq and line.hash != sealed.hash:
        return "its hash differs from the sealed one"
    return None


def unproved(bundle: Bundle) -> list[str]:
    """List what the bundle alone does not prove."""
    lines = list[str]()
    if bundle.seal is None:
        lines.append("that the logs were not recomputed or truncated: the bundle has no signed checkpoint")
    else:
        if not bundle.known:
            lines.append(f"who owns key {key_id(bundle.seal.key)}: pass the expected key with --key")
        if len(bundle.proofs) < len(bundle.runs):
            lines.append(
                f"that runs without a signed checkpoint are intact ({len(bundle.runs) - len(bundle.proofs)})"
            )
        if bundle.sealed_events < bundle.events:
            after = bundle.events - bundle.sealed_events
            lines.append(
                f"that events after the signed checkpoint were not changed or removed: {after} events"
            )
        if bundle.loose:
            lines.append(loose_erasures(bundle.loose))
        lines.append("that the store has no later signed checkpoint and no other runs")
    lines.append("that what was recorded is what happened")
    return lines


def list_results(bundle: Bundle) -> list[tuple[str, str]]:
    """List the results of a complete check, as names and values."""
    erased = f"{bundle.contents + bundle.erased} with payload, {bundle.erased} of them erased"
    rows = [
        ("members", f"{len(bundle.members)}, each intact"),
        ("runs", f"{len(bundle.runs)}, with {bundle.events} events; {erased}"),
    ]
    if bundle.seal is not None:
        at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(bundle.seal.at // 10**9))
        events = f"{bundle.sealed_events} of {bundle.events} events"
        rows += [
            ("sealed", f"{len(bundle.proofs)} of {len(bundle.runs)} runs, {events}"),
            ("seal", f"{bundle.seal.size}:{bundle.seal.root.hex()}, {at}"),
            ("key", key_id(bundle.seal.key) + (", as given" if bundle.known else "")),
        ]
    return rows + [("unproved", each) for each in unproved(bundle)]


def main() -> int:
    """Check the bundle named on the command line and print the result. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Verify a bundle of refold logs, offline.")
    parser.add_argument("bundle")
    parser.add_argument(
        "--key",
        action="append",
        default=[],
        help="public key (PEM) that may have signed the bundle; repeatable",
    )
    arguments = parser.parse_args()
    code, lines = _check_file(arguments.bundle, arguments.key)
    print("\n".join(each.encode("ascii", "backslashreplace").decode() for each in lines))
    return code


def _check_file(path: str, files: Sequence[str]) -> tuple[int, list[str]]:
    try:
        keys = [*map(_read_key, files)]
        with open(path, "rb") as file:
            bundle = Bundle(file, keys)
            for run in bundle.runs:
                for _ in bundle.lines(run):
                    pass
            bundle.check_rest()
            return 0, [f"{path}: intact", *(f"  {name:<8}  {value}" for name, value in list_results(bundle))]
    except BundleChanged as error:
        return 3, [f"{path}: CHANGED", f"  {error}"]
    except NoBundle as error:
        return 2, [f"{path}: {error}"]
    except ValueError as error:
        return 2, [str(error)]
    except OSError as error:
        return 4, [f"{path}: {error}"]
    except Unjudged as error:
        return 125, [f"{path}: inconclusive: {error}"]


def _read_key(path: str) -> bytes:
    with open(path, "rb") as file:
        try:
            return public_key(file.read(PIECE))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
