"""Zip archives of strangers are read bounded, whole or cut."""

import contextlib
import io
import struct
import sys
import zipfile
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.importers import source
from refold.importers.source import Archive, BadMember, Member, is_archive

# Python's own packs Zstandard from 3.14 on.
zstd_zip = zipfile if sys.version_info >= (3, 14) else pytest.importorskip("backports.zstd.zipfile")

TEXT = b'{"k": "some text, some text, some text"}'


def packed(*members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zstd_zip.ZipFile(file, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return file.getvalue()


@pytest.mark.parametrize("method", [0, 8, 93], ids=["stored", "deflated", "Zstandard"])
def test_reads_each_method(method: int) -> None:
    """What was packed comes out, byte for byte."""
    data = packed(("a.json", TEXT), ("b.json", b"[]"), method=method)
    archive = Archive(io.BytesIO(data))
    assert is_archive(data)
    assert (["a.json", "b.json"], "") == (list(archive.members), archive.problem)
    assert TEXT == archive.read("a.json")


@pytest.mark.parametrize("method", [0, 8, 93], ids=["stored", "deflated", "Zstandard"])
def test_without_its_directory_members_are_found_one_by_one(method: int) -> None:
    """A recorder that died left members and no directory: each whole one is read."""
    data = packed(("a.json", TEXT), ("b.json", TEXT), method=method)
    cut = data[: data.index(b"PK\x01\x02")]
    archive = Archive(io.BytesIO(cut))
    assert "no directory" in archive.problem
    assert TEXT == archive.read("a.json") == archive.read("b.json")
    half = Archive(io.BytesIO(cut[:-3]))
    assert TEXT == half.read("a.json")
    with pytest.raises(BadMember, match="truncated"):
        half.read("b.json")


def test_several_frames_are_one_member() -> None:
    """A recorder that flushes ends a Zstandard frame and begins another."""
    zstd = pytest.importorskip("backports.zstd")
    frames = zstd.compress(b"one ") + zstd.compress(b"two")
    member = Member(name="a", offset=0, packed=len(frames), method=93)
    header = struct.pack("<4s5H3I2H", b"PK\x03\x04", 20, 0, 93, 0, 0, 0, len(frames), 7, 1, 0)
    archive = Archive(io.BytesIO(header + b"a" + frames))
    assert {"a": member} == archive.members
    assert b"one two" == archive.read("a")


def test_frames_without_number_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member of more frames than any recorder flushes is not unpacked."""
    monkeypatch.setattr(source, "MOST_FRAMES", 100)
    frames = pytest.importorskip("backports.zstd").compress(b"") * 5000
    header = struct.pack("<4s5H3I2H", b"PK\x03\x04", 45, 0, 93, 0, 0, 0, len(frames), 8, 1, 0)
    with pytest.raises(BadMember, match="more than 100 compressed frames"):
        Archive(io.BytesIO(header + b"a" + frames)).read("a")


def test_a_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """More bytes than the bound are refused, whatever the header says of their number."""
    monkeypatch.setattr(source, "_SMALL", 10)
    monkeypatch.setattr(source, "MOST_RATIO", 3)
    for method in (8, 93):
        archive = Archive(io.BytesIO(packed(("a", bytes(100_000)), method=method)))
        with pytest.raises(BadMember, match="when decompressed"):
            archive.read("a")


def test_the_bound_is_in_proportion() -> None:
    """A few bytes cannot hold eight megabytes, though a large member may have as many."""
    pytest.importorskip("backports.zstd")
    archive = Archive(io.BytesIO(packed(("a", bytes(8 << 20)), method=93)))
    with pytest.raises(BadMember, match="when decompressed"):
        archive.read("a")


def test_members_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive of very many members is read up to the bound, and says so."""
    monkeypatch.setattr(source, "MOST_MEMBERS", 2)
    archive = Archive(io.BytesIO(packed(*[(f"{n}", b"") for n in range(5)])))
    assert (2, True) == (len(archive.members), "not read" in archive.problem)


def test_of_two_members_of_a_name_the_last_counts() -> None:
    """Inspect writes its header anew at the end."""
    with pytest.warns(UserWarning, match="Duplicate"):
        data = packed(("a", b"old"), ("a", b"new"))
    assert b"new" == Archive(io.BytesIO(data)).read("a")


def test_damage_and_unknown_methods_are_told() -> None:
    """A member that cannot be unpacked says why."""
    data = bytearray(packed(("a", zlib.compress(TEXT) * 9)))
    start = data.index(b"a", 26) + 1
    data[start : start + 8] = b"\xff" * 8
    with pytest.raises(BadMember, match="damaged"):
        Archive(io.BytesIO(bytes(data))).read("a")
    lzma = packed(("a", TEXT), method=zipfile.ZIP_LZMA)
    with pytest.raises(BadMember, match="method 14"):
        Archive(io.BytesIO(lzma)).read("a")


@given(cut=st.integers(0, 400), flip=st.integers(0, 400), byte=st.integers(0, 255))
def test_no_archive_breaks_the_reader(cut: int, flip: int, byte: int) -> None:
    """Cut and changed anywhere, each member is read or refused."""
    data = bytearray(packed(("samples/a.json", TEXT), ("header.json", TEXT)))
    data[flip % len(data)] = byte
    archive = Archive(io.BytesIO(bytes(data[: len(data) - cut % len(data)])))
    for name in archive.members:
        with contextlib.suppress(BadMember):
            archive.read(name)
