"""Bundles from anywhere: each is whole or refused, by both readers alike, and nothing half-written is
left.
"""

import io
import json
import tracemalloc
from hashlib import sha256
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.asking import assert_sound, error_of, examples, refold, within
from fuzz.conftest import Written
from fuzz.mutations import flipped, texts
from refold.store import SqliteStore, bundles, packer, verify_bundle
from refold.store.unpacking import unpack


class Members(dict[str, bytes]):
    """A bundle by its members, in their order."""

    def __repr__(self) -> str:
        return f"Members({', '.join(self)})"


@pytest.fixture(scope="session")
def packed(written: Written, tmp_path_factory: pytest.TempPathFactory) -> Members:
    folder = tmp_path_factory.mktemp("packed")
    (folder / "runs.db").write_bytes(written.closed)

    async def pack() -> None:
        async with await SqliteStore.open(folder / "runs.db", readonly=True) as store:
            await packer.pack(store, ["aa11", "bb33"], folder / "b.zip")

    anyio.run(pack)
    with ZipFile(folder / "b.zip") as file:
        return Members({name: file.read(name) for name in file.namelist()})


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bundles")


def zipped(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def summed(members: dict[str, bytes]) -> dict[str, bytes]:
    """The members, with a manifest that has their sizes and digests: as a forger would write it."""
    manifest = json.loads(members["manifest.json"])
    for one in manifest["members"]:
        data = members.get(one["name"], b"")
        one |= {"size": len(data), "sha256": sha256(data).hexdigest()}
    return {**members, "manifest.json": json.dumps(manifest).encode()}


@st.composite
def forged(draw: st.DrawFn, members: dict[str, bytes]) -> bytes:
    """The bytes of a bundle with a member changed: a value of it, a line, or its bytes; perhaps with sums
    that agree.
    """
    name = draw(
        st.sampled_from([*members, *[each for each in members if each.endswith((".json", ".jsonl"))] * 3])
    )
    whole = members[name]
    if name.endswith(".jsonl"):
        lines = whole.splitlines(keepends=True)
        place = draw(st.integers(0, len(lines) - 1))
        line = draw(st.one_of(texts(lines[place].rstrip(b"\n")), st.sampled_from(lines), st.just(b"")))
        whole = b"".join([*lines[:place], line + b"\n", *lines[place + 1 :]])
    else:
        whole = draw(texts(whole)) if name.endswith(".json") else draw(flipped(whole))
    changed = {**members, name: whole}
    if draw(st.booleans()):
        extra = draw(
            st.sampled_from(
                [
                    "../evil",
                    "/etc/evil",
                    "a\\b",
                    "runs/000001.jsonl",
                    "runs/",
                    "x" * 300,
                    "é",
                    "manifest.json",
                ]
            )
        )
        changed.setdefault(extra, draw(st.sampled_from(list(members.values()))))
    return zipped(summed(changed) if name != "manifest.json" and draw(st.booleans()) else changed)


def judged(path: Path) -> int:
    """The exit code of both readers of a bundle, which agree; the library's errors are ours."""
    code, said = verify_bundle._check_file(str(path), ())  # what `python verify.py` prints and returns
    assert said
    assert code in (0, 2, 3, 4, 125)
    assert sum(map(len, said)) < 4000
    error = error_of(lambda: read(path))
    assert code == (error.exit_code if error else 0)
    return code


def read(path: Path) -> None:
    with bundles.open_bundle(path) as bundle:
        for run in bundle.runs:
            for _ in bundle.lines(run):
                pass
        bundle.check_rest()


@examples(120)
@given(data=st.data())
def test_any_broken_zip(data: st.DataObject, packed: Members, scratch: Path) -> None:
    """Whatever bytes of a bundle are changed, both readers say the same of it, and neither fails
    otherwise.
    """
    path = scratch / "b.zip"
    path.write_bytes(
        data.draw(st.one_of(flipped(zipped(packed)), st.binary(max_size=100).map(lambda data: b"PK" + data)))
    )
    with within():
        judged(path)


@examples(120)
@given(data=st.data())
def test_any_forged_bundle(data: st.DataObject, packed: Members, scratch: Path) -> None:
    """So they do of one that somebody packed again, and it is unpacked whole or not at all."""
    for each in scratch.iterdir():
        each.unlink()
    path, target = scratch / "b.zip", scratch / "new.db"
    path.write_bytes(data.draw(forged(packed)))
    with within():
        code = judged(path)
        error = error_of(lambda: anyio.run(unpack, path, target))
    assert code == (error.exit_code if error else 0)
    assert (["b.zip", "new.db"] if target.exists() else ["b.zip"]) == sorted(
        each.name for each in scratch.iterdir()
    )
    assert target.exists() == (not code)


@examples(15)
@given(data=st.data(), form=st.sampled_from(["text", "json"]))
def test_the_command(data: st.DataObject, form: str, packed: Members, scratch: Path) -> None:
    """`refold verify FILE` ends by an exit code that means something, and says nothing that acts on a
    terminal.
    """
    path = scratch / "b.zip"
    path.write_bytes(data.draw(forged(packed)))
    assert_sound(refold("verify", path, "-o", form))


def test_memory_is_bounded(packed: Members, tmp_path: Path) -> None:
    """A line that unpacks to more than an event may have is refused, and never more than a few of that size
    are held.
    """
    first, rest = packed["runs/000001.jsonl"].split(b"\n", 1)
    path, most = tmp_path / "b.zip", verify_bundle.MOST_LINE
    path.write_bytes(zipped(summed({**packed, "runs/000001.jsonl": b" " * 2 * most + first + b"\n" + rest})))
    tracemalloc.start()
    try:
        assert 3 == judged(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * most, peak / most
