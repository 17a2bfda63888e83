#!/usr/bin/env python3
"""Check a bundle of refold's logs. The standard library of Python 3.9 or newer is all it takes.

    python verify.py BUNDLE [--key FILE.pub]...

It checks that the zip holds its members, whole and nothing else; that the hash chain of each run holds; that
a seal covers each run up to the event it says (RFC 9162's Merkle tree); and that the seal's signature
(Ed25519, RFC 8032) is good. Exit codes: 0 whole, 2 no bundle, 3 changed, 4 the file cannot be read, 125
cannot be judged.

A bundle is hostile until it was checked. So no library reads the zip: each of its bytes must be one that the
format has a place for. Nothing is unpacked to disk, members are read in pieces, and what is not a piece has a
bound. A copy of this file travels in each bundle. If you do not trust its sender, take this file from
elsewhere.
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
"""Stands for a run's id in the last entry of each seal, which is over the newest entry of each run."""
PIECE = 2**20
MOST_RUNS = 4096
MOST_BYTES = 2**31 - 1
"""The largest member unpacked, and the largest bundle, in bytes: beyond it, a zip is another format (zip64).
"""
MOST_IN_ALL = 2**33
"""The most bytes of all members together, unpacked."""
MOST_JSON = {"manifest.json": 2**23, "seals.json": 2**24}
MOST_LINE = 2**25
"""The longest line of a run, in bytes: one event as JSON. It bounds what is in memory at once."""
MOST_VALUES = 2**18
"""The most values in `manifest.json` or `seals.json`: each takes far more memory than the two bytes it may
have there.
"""

_NAME = re.compile(r"README\.txt|verify\.py|manifest\.json|seals\.json|runs/[0-9]{6}\.jsonl")
_HEX = re.compile("(?:[0-9a-f]{2})*")
Made = TypeVar("Made")
_UNNAMEABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class BundleChanged(Exception):
    """The bundle is not what was packed."""


class NoBundle(Exception):
    """The file is something else."""


class Unjudged(Exception):
    """The bundle may be whole, and this program cannot tell."""


class ZipMember(NamedTuple):
    """A file in the zip: where its bytes begin, how many they are there and unpacked, and their CRC-32."""

    name: str
    start: int
    packed: int
    size: int
    crc: int
    deflated: bool


class PackedRun(NamedTuple):
    """A run in the bundle: its id, the member with its events, the last one's number and hash."""

    id: str
    member: str
    events: int
    head: bytes


class ForkOrigin(NamedTuple):
    """Where a fork goes on from: event `seq` of `run`, with its hash."""

    run: str
    seq: int
    hash: bytes


class BundleLine(NamedTuple):
    """One event. Content None beside a digest: it was erased. `at` is nanoseconds since 1970."""

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
        """Whether its content was erased."""
        return self.content is None and self.content_digest is not None


class Signed(NamedTuple):
    """A signed tree head: the root over the first `size` entries of a store's log of heads."""

    size: int
    at: int
    root: bytes
    key: bytes
    signature: bytes


class Newest(NamedTuple):
    """The last entry of the log of heads: the root over the newest entries of so many runs, and its path."""

    runs: int
    root: bytes
    path: list[bytes]


class Proof(NamedTuple):
    """That event `seq` of a run, with this hash, is its newest entry: at `place` (from 0) of `Newest`, by
    this path.
    """

    seq: int
    hash: bytes
    place: int
    path: list[bytes]


class Seals(NamedTuple):
    """What is in `seals.json`."""

    seal: Signed
    newest: Newest
    proofs: dict[str, Proof]


# --- hashes: docs/reference/hash-chain.md and bundles.md say the same in words


def framed(data: bytes) -> bytes:
    """The bytes with their length before them: no byte can pass for one of the next field."""
    return b"%d:%b" % (len(data), data)


def leaf_hash(run: str, seq: int, head: bytes) -> bytes:
    """The leaf of an entry in the log of heads: event `seq` of `run` has this hash."""
    return sha256(b"\0" + framed(run.encode()) + framed(b"%d" % seq) + head).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of an inner node."""
    return sha256(b"\1" + left + right).digest()


def root_of(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes | None:
    """The root that an inclusion proof leads to, `index` from 0; None if its length is wrong.

    RFC 9162, 2.1.3.2.
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
    """What a seal signs."""
    return b"".join(map(framed, (SEAL.encode(), b"%d" % size, b"%d" % at, root)))


def chained(run: str, previous: bytes, line: BundleLine) -> bytes:
    """The hash that an event has after `previous`."""
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


def signed(key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the signature is this key's over the message. RFC 8032, 5.1.7; whatever is not canonical is
    refused.

    About 2 ms. Nothing here is secret, so nothing needs to take the same time for every input.
    """
    point, scalar = _point(key), int.from_bytes(signature[32:], "little")
    if point is None or len(signature) != 64 or scalar >= ORDER:
        return False
    hashed = int.from_bytes(sha512(signature[:32] + key + message).digest(), "little") % ORDER
    x, y, z, t = point
    return _encoded(_combined(scalar, hashed, (P - x, y, z, P - t))) == signature[:32]


def _point(data: bytes) -> Point | None:
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


def _encoded(point: Point) -> bytes:
    inverse = pow(point[2], -1, P)
    x, y = point[0] * inverse % P, point[1] * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _combined(base: int, other: int, point: Point) -> Point:
    """`base` times the base point plus `other` times `point`, bit by bit, both at once."""
    terms = ((0, 1, 1, 0), _BASE, point, _sum(_BASE, point))
    found: Point = terms[0]
    for bit in range(252, -1, -1):
        found = _sum(found, found)
        term = (base >> bit & 1) | (other >> bit & 1) << 1
        found = _sum(found, terms[term]) if term else found
    return found


def _sum(one: Point, other: Point) -> Point:
    a, b = (one[1] - one[0]) * (other[1] - other[0]) % P, (one[1] + one[0]) * (other[1] + other[0]) % P
    c, d = one[3] * other[3] * _D2 % P, 2 * one[2] * other[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def public_key(text: bytes) -> bytes:
    """The 32 bytes of a public Ed25519 key out of its PEM file. Raises `ValueError`."""
    if b"PRIVATE KEY" in text:
        raise ValueError("is a private key; expected the public one, FILE.pub")
    found = re.fullmatch(rb"\s*-----BEGIN PUBLIC KEY-----\s+(\S[\S\s]*?)\s*-----END PUBLIC KEY-----\s*", text)
    try:
        data = base64.b64decode(b"".join(found[1].split()), validate=True) if found else b""
    except ValueError:
        data = b""
    if len(data) != 44 or not data.startswith(bytes.fromhex("302a300506032b6570032100")):
        raise ValueError("is no public Ed25519 key in PEM, as `openssl pkey -pubout` writes it")
    return data[12:]


def key_id(key: bytes) -> str:
    """The name of a key for people: 16 hex digits."""
    return sha256(key).hexdigest()[:16]


# --- the zip: members that lie one after the other, then the directory, then its end. Nothing else, nowhere


def _ours(name: bytes) -> bool:
    return _NAME.fullmatch(name.decode("latin-1")) is not None


def directory(file: BinaryIO) -> dict[str, ZipMember]:
    """The members by name.

    Raises `NoBundle`, and `BundleChanged` where the zip is not as one of ours is made.
    """
    size = file.seek(0, 2)
    file.seek(0)
    if file.read(4) != b"PK\3\4":
        raise NoBundle("is no bundle: it does not begin as a zip does")
    try:
        return _directory(file, size)
    except BundleChanged as error:
        file.seek(30)
        if file.read(9) == b"verify.py" or b"runs/000001.jsonl" in _tail(file, size, 2**19):
            raise
        raise NoBundle(f"is a zip, but no bundle: {error}") from error


def _tail(file: BinaryIO, size: int, most: int) -> bytes:
    file.seek(max(size - most, 0))
    return file.read(most)


def _directory(file: BinaryIO, size: int) -> dict[str, ZipMember]:
    end = _tail(file, size, 22)
    if size > MOST_BYTES or len(end) != 22 or end[:4] != b"PK\5\6":
        raise BundleChanged("the zip's end is missing, or something stands after it")
    disk, disk2, count, total, length, offset, comment = struct.unpack("<4H2LH", end[4:])
    told = disk, disk2, comment, total, offset + length
    if told != (0, 0, 0, count, size - 22) or count > MOST_RUNS + 4:
        raise BundleChanged("the zip's end is not that of a bundle")
    file.seek(offset)
    central = file.read(length)
    found, place = dict[str, ZipMember](), 0
    for _ in range(count):
        place = _entry(file, central, place, found)
    if (place, _end(found)) != (length, offset) or sum(each.size for each in found.values()) > MOST_IN_ALL:
        raise BundleChanged("bytes of the zip belong to no member, or it unpacks to more than a bundle may")
    return found


def _entry(file: BinaryIO, central: bytes, place: int, found: dict[str, ZipMember]) -> int:
    """Read the directory's entry at `place`, and the header in front of its member's bytes; the next entry's
    place.
    """
    if central[place : place + 4] != b"PK\1\2" or len(central) < place + 46:
        raise BundleChanged("the zip's directory cannot be read")
    fields = struct.unpack("<6H3L5H2L", central[place + 4 : place + 46])
    _, _, flags, method, _, _, crc, packed, size, length, extra, comment, disk, _, kind, offset = fields
    raw = central[place + 46 : place + 46 + length]
    if not _ours(raw) or raw.decode() in found:
        raise BundleChanged(f"member {raw[:80]!r} is doubled, or does not belong in a bundle")
    name = raw.decode()
    mode = kind >> 16 & 0o170000
    if any((flags, extra, comment, disk, kind & 0x10)) or method not in (0, 8) or mode not in (0, 0o100000):
        raise BundleChanged(
            f"member {name} is stored as none of a bundle is: encrypted, a link, or packed otherwise"
        )
    file.seek(offset)
    header = file.read(30 + length)
    start = _end(found)
    if (offset, header) != (start, b"PK\3\4" + central[place + 6 : place + 32] + raw):
        raise BundleChanged(f"member {name} is not where, or not what, the zip's directory says")
    if size > MOST_JSON.get(name, MOST_BYTES):
        raise BundleChanged(f"member {name} says that it unpacks to {size} bytes, more than one may have")
    found[name] = ZipMember(name, offset + len(header), packed, size, crc, method == 8)
    return place + 46 + len(raw)


def _end(found: dict[str, ZipMember]) -> int:
    """Where the members end that were found so far."""
    last = next(reversed(found.values()), None)
    return last.start + last.packed if last else 0


def pieces(file: BinaryIO, member: ZipMember) -> Iterator[bytes]:
    """A member's bytes, unpacked, about a megabyte at a time.

    Raises `BundleChanged` at the first one too many.
    """
    size = crc = 0
    for piece in (_inflated if member.deflated else _packed)(file, member):
        size, crc = size + len(piece), zlib.crc32(piece, crc)
        if size > member.size:
            break
        yield piece
    if size != member.size or crc != member.crc:
        raise BundleChanged(
            f"member {member.name} does not unpack to the {member.size} bytes that were packed"
        )


def _packed(file: BinaryIO, member: ZipMember) -> Iterator[bytes]:
    for start in range(0, member.packed, PIECE):
        file.seek(member.start + start)  # another member may have been read since
        yield file.read(min(PIECE, member.packed - start))


def _inflated(file: BinaryIO, member: ZipMember) -> Iterator[bytes]:
    inflate = zlib.decompressobj(-15)
    try:
        for packed in _packed(file, member):
            yield inflate.decompress(packed, PIECE)
            while inflate.unconsumed_tail:
                yield inflate.decompress(inflate.unconsumed_tail, PIECE)
            yield inflate.decompress(b"", PIECE)  # the rest of a repetition for which there was no room
    except zlib.error as error:
        raise BundleChanged(f"member {member.name} cannot be unpacked: {error}") from error
    if not inflate.eof or inflate.unused_data:
        raise BundleChanged(f"member {member.name} is cut off, or something stands after its end")


# --- JSON, where nothing but the expected is expected


def _decoded(data: bytes) -> object:
    """A JSON text's value. Each value in a list or an object has a comma before it, or the bracket."""
    if sum(map(data.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise ValueError(f"it has more than {MOST_VALUES} values")
    value: object = _JSON.decode(data.decode())
    return value


def _made(make: Callable[[bytes], Made], data: bytes, what: str) -> Made:
    """What `make` makes of a JSON text. Raises `BundleChanged` for whatever has no place there."""
    try:
        return make(data)
    except (ValueError, RecursionError) as error:
        raise BundleChanged(f"{what} is not what was packed: {str(error)[:200]}") from error


def _once(pairs: list[tuple[str, Made]]) -> dict[str, Made]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return found


def _number(text: str) -> int:
    return int(text) if len(text) <= 20 else int(_refused(text))


def _refused(text: str) -> str:
    raise ValueError(f"no place for the number {text[:20]}")


_JSON = json.JSONDecoder(
    object_pairs_hook=_once, parse_int=_number, parse_float=_refused, parse_constant=_refused
)


def _object(value: object, names: str) -> list[object]:
    """The values of an object with exactly these names, in their order."""
    fields = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    if fields.keys() != set(names.split()):
        raise ValueError(f"expected an object with {names}")
    return [fields[name] for name in names.split()]


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ValueError("expected a list")
    return cast("list[object]", value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("expected text")
    value.encode()  # half characters raise
    return value


def _int(value: object, least: int = 0, most: int = 2**63 - 1) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"expected a whole number from {least} to {most}")
    return value


def _hex(value: object, size: int | None = 32) -> bytes:
    text = _text(value)
    if not _HEX.fullmatch(text) or (size is not None and len(text) != 2 * size):
        raise ValueError(f"expected {size or 'some'} bytes in lower-case hexadecimal digits")
    return bytes.fromhex(text)


def _run_id(value: object) -> str:
    text = _text(value)
    if not text or _UNNAMEABLE.search(text):
        raise ValueError("a run's id is one line of text")
    return text


_FIELDS = "seq at kind hash digest salt body content"
_STARTS = [f'{"," if number else "{"}"{name}":' for number, name in enumerate(_FIELDS.split())]


def _flat(text: str) -> Iterator[object]:
    """The values of a line, one after the other: `json` would build whatever is nested before it could be
    refused.
    """
    place = 0
    for start in _STARTS:
        begin = place + len(start)
        if not text.startswith(start, place) or text[begin : begin + 1] in "[{":
            raise ValueError(f"expected an object with {_FIELDS}, in this order, without spaces")
        value, place = cast("tuple[object, int]", _JSON.raw_decode(text, begin))
        yield value
    if text[place:] != "}":
        raise ValueError("something stands after its content")


def _line(data: bytes) -> BundleLine:
    seq, at, kind, hashed, digest, salt, body, content = _flat(data.decode())
    line = BundleLine(
        seq=_int(seq, 1),
        at=_int(at, -(2**63)),
        kind=_text(kind),
        body=_text(body).encode(),
        content=None if content is None else _text(content).encode(),
        salt=_hex(salt, None),
        content_digest=None if digest is None else _hex(digest),
        hash=_hex(hashed),
    )
    if not (line.kind.isascii() and line.kind.isidentifier()) or 0 in line.body + (line.content or b""):
        raise ValueError("a kind is letters, digits and underscores, and JSON text has no NUL")
    return line


# --- what was erased


class Bare:
    """The events of a run whose content is gone, and that no notice has named yet.

    Who may write a store can take contents away, and the chain holds. `refold erase` leaves a notice, later
    in the same log, of kind `content_erased`: an event that has none was not erased by it. `loose` counts the
    events whose notice comes after event `sealed`: who could append to the log could have written it.
    """

    def __init__(self, sealed: int = 0) -> None:
        self._kinds = dict[int, str]()
        self._sealed, self.loose = sealed, 0

    def take(self, seq: int, kind: str, body: bytes, *, bare: bool) -> None:
        """The next event: whether its content is gone; of a notice, what it names.

        One that cannot be read names none.
        """
        if bare:
            self._kinds[seq] = kind
        if kind == "content_erased":
            for each in _named(body):
                self.loose += self._kinds.pop(each, None) is not None and seq > self._sealed

    def notice(self, kind: str, body: bytes, upto: int) -> None:
        """A later event of the log that a fork left after event `upto`: of those before it may name some."""
        if kind == "content_erased":
            for each in _named(body):
                self.loose += each <= upto and self._kinds.pop(each, None) is not None

    @property
    def first(self) -> tuple[int, str] | None:
        """The first of them, by number and kind; None: there is none, or each was named."""
        return next(iter(self._kinds.items()), None)


def ended_child(body: bytes) -> tuple[str, int, str]:
    """What an event of kind `child_ended` says: of which run, at which of its events, with which hash
    (hex).
    """
    fields = _fields(body)
    run, seq, hashed = (fields.get(name) for name in ("run", "head_seq", "head_hash"))
    whole = isinstance(hashed, str) and len(hashed) == 64  # else it could be anything, and long
    return str(run), seq if isinstance(seq, int) else 0, str(hashed) if whole else ""


def child_differs(run: str, seq: int) -> str:
    """What is wrong where a child's log is not what its parent recorded of it."""
    return f"run {run} ended at its event {seq}, it says, with a hash that is not in that run's log"


def forked_from(line: BundleLine) -> ForkOrigin | None:
    """Where a run goes on from whose first event this is; None for one that begins with event 1, or says
    nothing of it.
    """
    fields = _fields(line.body) if line.kind == "run_forked" and line.seq > 1 else {}
    try:
        origin = ForkOrigin(
            _run_id(fields.get("parent")), _int(fields.get("parent_seq"), 1), _hex(fields.get("parent_hash"))
        )
    except ValueError:
        return None
    return origin if origin.seq == line.seq - 1 else None


UNNAMED = "its content is gone, and no notice of an erasure names it"


def loose_erasures(count: int) -> str:
    """What cannot be proved of so many erasures."""
    return f"who erased contents, and why: the records of it are under no seal ({count})"


def _named(body: bytes) -> list[int]:
    try:
        return [_int(each) for each in _list(_fields(body).get("seqs"))]
    except ValueError:
        return []


def _fields(body: bytes) -> dict[str, object]:
    """The fields of a body; none of one that cannot be read, which is for others to judge."""
    try:
        value = _decoded(body)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


# --- the bundle


def _member_sum(value: object) -> tuple[str, tuple[int, bytes]]:
    name, size, digest = _object(value, "name size sha256")
    return _text(name), (_int(size), _hex(digest))


def _run(value: object) -> PackedRun:
    run, member, events, head = _object(value, "run member events head")
    return PackedRun(_run_id(run), _text(member), _int(events, 1), _hex(head))


def _manifest(data: bytes) -> tuple[str, dict[str, tuple[int, bytes]], list[PackedRun]]:
    value = _decoded(data)
    fields = cast("dict[str, object]", value if isinstance(value, dict) else {})
    named = fields.get("format")
    if named != FORMAT:
        return _text(named), {}, []
    version, members, runs = _object(fields, "format members runs")
    return _text(version), _once([_member_sum(each) for each in _list(members)]), [*map(_run, _list(runs))]


def _proof(value: object) -> tuple[str, Proof]:
    run, seq, hashed, index, path = _object(value, "run seq hash index path")
    return _run_id(run), Proof(_int(seq, 1), _hex(hashed), _int(index), [*map(_hex, _list(path))])


def _newest(value: object) -> Newest:
    runs, root, path = _object(value, "runs root path")
    return Newest(_int(runs, 1), _hex(root), [*map(_hex, _list(path))])


def _seals(data: bytes) -> Seals:
    seal, newest, runs = _object(_decoded(data), "seal newest runs")
    size, at, root, key, signature = _object(seal, "size at root key signature")
    made = Signed(_int(size, 1), _int(at), _hex(root), _hex(key), _hex(signature, 64))
    return Seals(made, _newest(newest), _once([_proof(each) for each in _list(runs)]))


NOTHING_SEALED = "its seal covers none of its runs, so nothing in it is under a signature"


class Bundle:
    """A bundle that is open. Its directory, manifest, seal and signature were checked; its runs were not yet.

    `keys` are those by which a seal may be signed; none: any. `proofs` has the sealed event of each run that
    the seal covers. The counts are those of the runs that were read to their end. Raises `NoBundle`,
    `BundleChanged`, and `Unjudged` for another version, or keys where no run is under a signature.
    """

    def __init__(self, file: BinaryIO, keys: Sequence[bytes] = ()) -> None:
        self._file, self.members = file, directory(file)
        self._sums = dict[str, tuple[int, bytes]]()
        self._ended = dict[str, tuple[str, int, int, str]]()
        self.events = self.contents = self.erased = self.loose = self.sealed_events = 0
        if "manifest.json" not in self.members:
            lost = any(name.startswith(("runs/", "verify.py")) for name in self.members)
            raise BundleChanged("manifest.json is missing") if lost else NoBundle("is a zip, but no bundle")
        version, self._sums, self.runs = _made(_manifest, self._whole("manifest.json"), "manifest.json")
        if version != FORMAT:
            raise Unjudged(f"is a {version[:40]!a}, and this program knows {FORMAT}: take a newer one")
        self._ids = {run.id: place for place, run in enumerate(self.runs)}
        self._forked = dict[str, list[tuple[str, int, bytes]]]()
        self._again = 0
        self._match()
        self.seal: Signed | None = None
        self.proofs = dict[str, Proof]()
        if "seals.json" in self.members:
            self.seal, newest, self.proofs = _made(_seals, self._whole("seals.json"), "seals.json")
            self._prove(self.seal, newest)
        self.known = bool(keys)
        if keys:
            self._trust(keys)

    def lines(self, run: PackedRun) -> Iterator[BundleLine]:
        """The events of a run in order, each checked, and at the end that these are all.

        Raises `BundleChanged`.
        """
        origin = self.origin(run)
        previous, before = (origin.hash, origin.seq) if origin else (bytes(32), 0)
        seq = before
        if origin:
            self._forked.setdefault(origin.run, []).append((run.id, origin.seq, origin.hash))
        sealed = self.proofs.get(run.id)
        bare = Bare(sealed.seq if sealed else 0)
        for data in self._split(run.member):
            line = _made(_line, data, f"{run.member}, line {seq + 1}")
            problem = _problem(run.id, seq, previous, line) or _unlike_sealed(line, sealed)
            if problem is not None:
                raise BundleChanged(f"run {run.id} event {line.seq}: {problem}")
            bare.take(line.seq, line.kind, line.body, bare=line.erased)
            self._count(run.id, line)
            previous, seq = line.hash, line.seq
            yield line
        if (seq, previous) != (run.events, run.head):
            raise BundleChanged(
                f"run {run.id} ends at event {seq}, and not as the manifest says, at event {run.events}"
            )
        if bare.first is not None:
            raise BundleChanged(f"run {run.id} event {bare.first[0]}: {UNNAMED}")
        self.loose += bare.loose
        self.events += seq - before
        self.sealed_events += max(sealed.seq - before, 0) if sealed else 0

    def _count(self, run: str, line: BundleLine) -> None:
        """Count an event's content, and remember the end of a child that is in the bundle too."""
        self.contents += line.content is not None
        self.erased += line.erased
        if line.kind == "child_ended":
            child, last, hashed = ended_child(line.body)
            if child in self._ids:
                self._ended[child] = (run, line.seq, last, hashed)

    def origin(self, run: PackedRun) -> ForkOrigin | None:
        """Where a fork goes on from: an event of a run that stands before it. None for any other run.

        Raises `BundleChanged`.
        """
        data = next(self._split(run.member), None)
        origin = forked_from(_made(_line, data, f"{run.member}, line 1")) if data else None
        if origin and not self._ids.get(origin.run, len(self._ids)) < self._ids[run.id]:
            raise BundleChanged(f"run {run.id} goes on from run {origin.run}, which does not stand before it")
        return origin

    def behind(self, run: PackedRun) -> Iterator[tuple[PackedRun, int, BundleLine]]:
        """The events of the runs behind a fork, the oldest run first, and up to which event they are the
        fork's too.

        They are read, and not checked: `lines` of their own runs does that. Raises `BundleChanged`, and
        `Unjudged` where so many forks stand on so long runs that it would take for ever.
        """
        chain = list[tuple[PackedRun, int]]()
        origin = self.origin(run)
        while origin:
            parent = self.runs[self._ids[origin.run]]
            chain.append((parent, origin.seq))
            origin = self.origin(parent)
        for parent, upto in reversed(chain):
            self._again += self.members[parent.member].size
            if self._again > MOST_IN_ALL:
                raise Unjudged("its forks stand on too many bytes of other runs to be looked at one by one")
            for data in self._split(parent.member):
                yield parent, upto, _made(_line, data, parent.member)

    def check_rest(self) -> None:
        """Check, once all runs were read, what they say of each other, and the other members.

        Raises `BundleChanged`.
        """
        for run in self.runs:
            if run.id in self._ended:
                parent, at, seq, hashed = self._ended[run.id]
                if self._hashes_at(run, {seq}).get(seq, b"").hex() != hashed:
                    raise BundleChanged(f"run {parent} event {at}: {child_differs(run.id, seq)}")
            forks = self._forked.get(run.id, [])
            found = self._hashes_at(run, {seq for _, seq, _ in forks}) if forks else {}
            for fork, seq, last in forks:
                if found.get(seq) != last:
                    raise BundleChanged(
                        f"run {fork} event {seq + 1}: it goes on from event {seq} of run {run.id}, it says, with a hash "
                        "that is not in that run's own log"
                    )
        for name in ("README.txt", "verify.py"):
            for _ in self._pieces(name):
                pass

    @property
    def verifier(self) -> bytes:
        """The SHA-256 of the copy of this file that travels in it, as the manifest has it; `check_rest`
        compares that.
        """
        return self._sums["verify.py"][1]

    def _hashes_at(self, run: PackedRun, seqs: set[int]) -> dict[int, bytes]:
        read = (_made(_line, data, run.member) for data in self._split(run.member))
        return {line.seq: line.hash for line in read if line.seq in seqs}

    def _match(self) -> None:
        """Each member is listed with its size, each run has one, and there are no others."""
        listed = {name: size for name, (size, _) in self._sums.items()}
        there = {name: each.size for name, each in self.members.items() if name != "manifest.json"}
        if listed != there:
            name, _ = min(listed.items() ^ there.items())
            raise BundleChanged(
                f"member {name[:80]!a} is missing, added, or of another size than the manifest says"
            )
        if missing := [name for name in ("README.txt", "verify.py") if name not in there]:
            raise BundleChanged(f"{missing[0]} is missing")
        self._match_runs(sorted(name for name in there if name.startswith("runs/")))

    def _match_runs(self, files: Sequence[str]) -> None:
        if files != sorted(run.member for run in self.runs) or len(self._ids) != len(files):
            raise BundleChanged("the manifest's runs are not those that are there, one file each")

    def _prove(self, seal: Signed, newest: Newest) -> None:
        """The seal is signed by its key, and of each run that it is said to cover, no later event is under
        it.
        """
        if not signed(seal.key, seal_message(seal.size, seal.at, seal.root), seal.signature):
            raise BundleChanged(f"the seal's signature is not by its key {key_id(seal.key)}")
        # Last: an entry of an older seal, which is there too, would pass for the newest.
        last = leaf_hash(NEWEST, newest.runs, newest.root)
        if root_of(last, seal.size - 1, seal.size, newest.path) != seal.root:
            raise BundleChanged(
                "that the seal covers the newest entries it has does not follow from their proof"
            )
        events = {run.id: run.events for run in self.runs}
        for run, proof in self.proofs.items():
            if not 1 <= proof.seq <= events.get(run, 0):
                raise BundleChanged(
                    f"run {run} was sealed at event {proof.seq}, and the bundle has {events.get(run, 0)}"
                )
            leaf = leaf_hash(run, proof.seq, proof.hash)
            if root_of(leaf, proof.place, newest.runs, proof.path) != newest.root:
                raise BundleChanged(
                    f"run {run}: that its event {proof.seq} is the last that was sealed does not follow from its proof"
                )

    def _trust(self, keys: Sequence[bytes]) -> None:
        if self.seal is None:
            raise Unjudged("no seal is in it, so there is no signature to hold against a key")
        if self.seal.key not in keys:
            wanted = ", ".join(map(key_id, keys))
            raise BundleChanged(
                f"the seal is signed by another key, {key_id(self.seal.key)}, not by {wanted}"
            )
        if not self.proofs:
            raise Unjudged(NOTHING_SEALED)

    def _pieces(self, name: str) -> Iterator[bytes]:
        hashed = sha256()
        for piece in pieces(self._file, self.members[name]):
            hashed.update(piece)
            yield piece
        if name in self._sums and hashed.digest() != self._sums[name][1]:
            raise BundleChanged(f"member {name} was changed: its SHA-256 is not the one in the manifest")

    def _whole(self, name: str) -> bytes:
        return b"".join(self._pieces(name))

    def _split(self, name: str) -> Iterator[bytes]:
        held = list[bytes]()
        for piece in self._pieces(name):
            *ends, rest = piece.split(b"\n")
            for end in ends:
                yield b"".join((*held, end))
                held.clear()
            held.append(rest)
            if sum(map(len, held)) > MOST_LINE:
                break
        if any(held):
            raise BundleChanged(f"{name} has a line without an end, or one of more than {MOST_LINE} bytes")


def _problem(run: str, before: int, previous: bytes, line: BundleLine) -> str | None:
    if line.seq != before + 1:
        return f"it stands after event {before}"
    if line.content is None and line.salt:
        return "it has a salt but no content"
    if line.content is not None and sha256(framed(line.salt) + line.content).digest() != line.content_digest:
        return "its content, salt or digest was changed"
    if chained(run, previous, line) != line.hash:
        return (
            "its hash does not follow from the event before it, its header, body and digest: one was changed"
        )
    return None


def _unlike_sealed(line: BundleLine, sealed: Proof | None) -> str | None:
    if sealed and line.seq == sealed.seq and line.hash != sealed.hash:
        return "its hash is not the one that was sealed"
    return None


def unproved(bundle: Bundle) -> list[str]:
    """What cannot be known from the bundle alone."""
    said = list[str]()
    if bundle.seal is None:
        said.append("that no chain was computed anew as a whole, and no tail cut off: it has no seal")
    else:
        if not bundle.known:
            said.append(f"whose key {key_id(bundle.seal.key)} is: give the right one by --key")
        if len(bundle.proofs) < len(bundle.runs):
            said.append(
                f"that the runs which no seal covers are whole ({len(bundle.runs) - len(bundle.proofs)})"
            )
        if bundle.sealed_events < bundle.events:
            after = bundle.events - bundle.sealed_events
            said.append(f"that what came after the seal was neither changed nor cut off: {after} events")
        if bundle.loose:
            said.append(loose_erasures(bundle.loose))
        said.append("that the store has no later seal, and no other runs")
    said.append("that what was recorded is what happened")
    return said


def told(bundle: Bundle) -> list[tuple[str, str]]:
    """What was checked and found, once all of it was: names and values."""
    erased = f"{bundle.contents + bundle.erased} with content, {bundle.erased} of them erased"
    said = [
        ("members", f"{len(bundle.members)}, each whole"),
        ("runs", f"{len(bundle.runs)}, with {bundle.events} events; {erased}"),
    ]
    if bundle.seal is not None:
        at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(bundle.seal.at // 10**9))
        events = f"{bundle.sealed_events} of {bundle.events} events"
        said += [
            ("sealed", f"{len(bundle.proofs)} of {len(bundle.runs)} runs, {events}"),
            ("seal", f"{bundle.seal.size}:{bundle.seal.root.hex()}, {at}"),
            ("key", key_id(bundle.seal.key) + (", as given" if bundle.known else "")),
        ]
    return said + [("unproved", each) for each in unproved(bundle)]


def main() -> int:
    """Check the bundle that was named, and say what was found. The exit code."""
    parser = argparse.ArgumentParser(description="Check a bundle of refold's logs, offline.")
    parser.add_argument("bundle")
    parser.add_argument(
        "--key", action="append", default=[], help="public key in PEM, by which it may be signed"
    )
    typed = parser.parse_args()
    code, said = _judged(typed.bundle, typed.key)
    print("\n".join(each.encode("ascii", "backslashreplace").decode() for each in said))
    return code


def _judged(path: str, files: Sequence[str]) -> tuple[int, list[str]]:
    try:
        keys = [*map(_key, files)]
        with open(path, "rb") as file:
            bundle = Bundle(file, keys)
            for run in bundle.runs:
                for _ in bundle.lines(run):
                    pass
            bundle.check_rest()
            return 0, [f"{path}: whole", *(f"  {name:<8}  {value}" for name, value in told(bundle))]
    except BundleChanged as error:
        return 3, [f"{path}: DAMAGED", f"  {error}"]
    except NoBundle as error:
        return 2, [f"{path}: {error}"]
    except ValueError as error:
        return 2, [str(error)]
    except OSError as error:
        return 4, [f"{path}: {error}"]
    except Unjudged as error:
        return 125, [f"{path}: cannot be judged: {error}"]


def _key(path: str) -> bytes:
    with open(path, "rb") as file:
        try:
            return public_key(file.read(PIECE))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
