"""Bundles whose zip plays games: read otherwise by others, unpacking to more than it says, or growing in
memory.
"""
# ruff: noqa: ASYNC240 - the files are small

import io
import json
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from refold.store import verify_bundle as reader
from refold.store.bundles import DamagedBundle
from support.bundles import KEY, Members, check, listed, members_of, zipped

pytestmark = pytest.mark.anyio


def patched(at: Callable[[bytes], int], *new: int) -> Callable[[bytes], bytes]:
    """A zip with other bytes at a place."""
    return lambda data: data[: at(data)] + bytes(new) + data[at(data) + len(new) :]


def central(data: bytes, number: int = 0) -> int:
    """Where the directory's entry of a member begins."""
    place = -1
    for _ in range(number + 1):
        place = data.index(b"PK\1\2", place + 1)
    return place


def two_ends(data: bytes) -> bytes:
    return data + data[-22:]


def other_ratio(data: bytes) -> bytes:
    """The third member says everywhere that it unpacks to one byte more than it does."""
    place = central(data, 2)
    size = struct.unpack("<L", data[place + 24 : place + 28])[0]
    local = struct.unpack("<L", data[place + 42 : place + 46])[0]
    new = struct.pack("<L", size + 1)
    data = data[: place + 24] + new + data[place + 28 :]
    return data[: local + 22] + new + data[local + 26 :]


def something_between(data: bytes) -> bytes:
    """Bytes between the first member and the second, with every offset as it must be then."""
    second = struct.unpack("<L", data[central(data, 1) + 42 : central(data, 1) + 46])[0]
    junk, count = b"something else", data.count(b"PK\1\2")
    for number in range(1, count):
        place = central(data, number) + 42
        offset = struct.unpack("<L", data[place : place + 4])[0]
        data = data[:place] + struct.pack("<L", offset + len(junk)) + data[place + 4 :]
    start = struct.unpack("<L", data[-6:-2])[0]
    data = data[:-6] + struct.pack("<L", start + len(junk)) + data[-2:]
    return data[:second] + junk + data[second:]


GAMES = [
    ("something between members", something_between),
    ("truncated", lambda data: data[:-1]),
    ("cut in half", lambda data: data[: len(data) // 2]),
    ("trailing byte", lambda data: data + b"\0"),
    ("two ends", two_ends),
    ("a comment", patched(lambda data: len(data) - 2, 1, 0)),
    ("zip64 sizes", patched(lambda data: central(data) + 20, *[255] * 8)),
    ("zip64 end", patched(lambda data: len(data) - 14, 255, 255, 255, 255)),
    ("fewer members", patched(lambda data: len(data) - 14, 5, 0, 5, 0)),
    ("more members", patched(lambda data: len(data) - 14, 7, 0, 7, 0)),
    ("encrypted", patched(lambda data: central(data) + 8, 1)),
    ("streamed", patched(lambda data: central(data) + 8, 8)),
    ("another method", patched(lambda data: central(data) + 10, 12)),
    ("a symlink", patched(lambda data: central(data) + 41, 0xA1)),
    ("a device", patched(lambda data: central(data) + 41, 0x61)),
    ("a folder", patched(lambda data: central(data) + 38, 0x10)),
    ("another offset", patched(lambda data: central(data, 1) + 42, 0, 0)),
    ("another name in front", patched(lambda data: 30, 88)),
    ("another CRC", patched(lambda data: central(data, 2) + 16, 0, 0, 0, 0)),
    ("another CRC in front", patched(lambda data: 14, 0, 0, 0, 0)),
    ("declared a byte longer", other_ratio),
]  # fmt: skip


@pytest.mark.parametrize("game", [pytest.param(game, id=what) for what, game in GAMES])
async def test_a_zip_that_plays_games(game: Callable[[bytes], bytes], bundle: Path, tmp_path: Path) -> None:
    """Whatever another program might read otherwise is no bundle of ours."""
    path = tmp_path / "changed.zip"
    path.write_bytes(game(bundle.read_bytes()))
    with pytest.raises(DamagedBundle):
        check(path, KEY)


async def test_a_member_twice(bundle: Path, tmp_path: Path) -> None:
    """A name that is there twice is refused, whatever stands under it."""
    path = zipped(tmp_path / "changed.zip", members_of(bundle))
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(path, "a") as file:
        file.writestr("runs/000001.jsonl", b"x")
    with pytest.raises(DamagedBundle, match="duplicate"):
        check(path)


def deflated(size: int) -> tuple[bytes, int]:
    """So many zeros as a deflate stream, and their CRC."""
    compress, zeros, crc, packed = zlib.compressobj(9, zlib.DEFLATED, -15), bytes(2**20), 0, b""
    for start in range(0, size, 2**20):
        piece = zeros[: size - start]
        crc, packed = zlib.crc32(piece, crc), packed + compress.compress(piece)
    return packed + compress.flush(), crc


def handmade(members: Members, name: str, packed: bytes, crc: int, size: int) -> bytes:
    """A bundle in which a member's bytes, as they are packed, and what is said of them are given by hand."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for each, data in members.items():
            file.writestr(zipfile.ZipInfo(each), packed if each == name else data)
    data = buffer.getvalue()
    place = central(data, [*members].index(name))
    local = struct.unpack("<L", data[place + 42 : place + 46])[0]
    fields = struct.pack("<LLL", crc, len(packed), size)
    for method, at in ((place + 10, place + 16), (local + 8, local + 14)):
        data = data[:method] + b"\x08\0" + data[method + 2 : at] + fields + data[at + 12 :]
    return data


def deflate(data: bytes) -> bytes:
    compress = zlib.compressobj(9, zlib.DEFLATED, -15)
    return compress.compress(data) + compress.flush()


@pytest.mark.parametrize(
    ("pack", "problem"),
    [
        pytest.param(deflate, None, id="as it should be"),
        pytest.param(lambda data: deflate(data) + b"hidden", "has data after its end", id="something behind"),
        pytest.param(lambda data: deflate(data)[:-3], "truncated", id="truncated"),
        pytest.param(lambda data: b"\xff" * 30, "cannot be unpacked", id="no deflate stream"),
        pytest.param(lambda data: deflate(data + b"x"), "does not unpack to its", id="more than declared"),
        pytest.param(lambda data: b"", "truncated", id="nothing"),
    ],
)
async def test_a_member_that_unpacks_otherwise(
    pack: Callable[[bytes], bytes], problem: str | None, bundle: Path, tmp_path: Path
) -> None:
    """A deflate stream ends where its member ends, and gives as many bytes as were declared."""
    members, name, path = members_of(bundle), "runs/000002.jsonl", tmp_path / "made.zip"
    data = members[name]
    path.write_bytes(handmade(members, name, pack(data), zlib.crc32(data), len(data)))
    if problem is None:
        check(path)
        return
    with pytest.raises(DamagedBundle, match=problem):
        check(path)


async def test_a_wrong_checksum(bundle: Path, tmp_path: Path) -> None:
    """A member whose CRC is not its own would be refused by other programs; it is refused here, the manifest
    too.
    """
    members, path = members_of(bundle), tmp_path / "made.zip"
    for name, data in members.items():
        path.write_bytes(handmade(members, name, deflate(data), zlib.crc32(data) ^ 1, len(data)))
        with pytest.raises(DamagedBundle, match="does not unpack to its"):
            check(path)


def test_nothing_is_unpacked_beyond_what_is_declared() -> None:
    """A member that declares ten bytes and unpacks to 64 MB is left with its first piece."""
    packed, crc = deflated(2**26)
    member = reader.ZipMember("verify.py", 0, len(packed), 10, crc, deflated=True)
    file, read = io.BytesIO(packed), list[int]()
    with pytest.raises(reader.BundleChanged):
        read += [len(piece) for piece in reader.read_member(file, member)]
    assert [] == read
    assert file.tell() == len(packed) < reader.PIECE  # one piece of packed bytes was read, and not unpacked


@pytest.mark.parametrize("declared", [pytest.param("as it is", marks=pytest.mark.slow), "as small"])
async def test_a_bomb(declared: str, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that unpacks to 64 MB is left at the longest line that there may be, or at the size that it
    declares.
    """
    monkeypatch.setattr(reader, "MOST_LINE", 2**22)
    size, members, path = 2**26, members_of(bundle), tmp_path / "bomb.zip"
    packed, crc = deflated(size)
    assert len(packed) < 2**19
    name = "runs/000001.jsonl"
    if declared == "as small":
        data = handmade({**members, name: bytes(2**12)}, name, packed, crc, len(members[name]))
    else:
        manifest = json.loads(members["manifest.json"])
        manifest["members"][2]["size"] = size
        data = handmade({**members, "manifest.json": json.dumps(manifest).encode()}, name, packed, crc, size)
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(DamagedBundle):
            check(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * 2**22


@pytest.mark.parametrize(
    ("name", "data"),
    [
        pytest.param("runs/000001.jsonl", b'{"seq":[' + b"[]," * 2**20 + b"[]]}\n", id="a line of lists"),
        pytest.param(
            "runs/000001.jsonl", b'{"seq":{' + b'"":{},' * 2**19 + b'"":0}}\n', id="a line of names"
        ),
        pytest.param("seals.json", b"[" + b"{}," * 2**20 + b"{}]", id="a seal of objects"),
        pytest.param("seals.json", b"[" + b"[]," * 2**20 + b"[]]", id="a seal of lists"),
        pytest.param("manifest.json", b"[" + b"0," * 2**20 + b"0]", id="a manifest of numbers"),
        pytest.param("notice", b'{"seqs":[' + b"[]," * 2**20 + b"[]]}", id="a notice of lists"),
    ],
)
async def test_what_would_grow(name: str, data: bytes, bundle: Path, tmp_path: Path) -> None:
    """Few bytes of JSON become many in memory where they nest; no member takes more than a few times its own
    size.
    """
    path = tmp_path / "grown.zip"
    if name != "notice":
        zipped(path, listed({**members_of(bundle), name: data}) | ({name: data} if name[0] == "m" else {}))
    tracemalloc.start()
    try:
        if name == "notice":
            reader.UnexplainedErasures().take(1, "content_erased", data, bare=False)
        else:
            with pytest.raises(DamagedBundle, match="is invalid"):
                check(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * len(data) + 2**20


async def test_too_much_in_all(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sizes that a zip declares are added up before anything is unpacked."""
    monkeypatch.setattr(reader, "MOST_IN_ALL", 1000)
    with pytest.raises(DamagedBundle, match="or unpacks to more than"):
        check(bundle)
