"""The verifier that travels in a bundle: one file, an old Python, nothing installed."""
# ruff: noqa: ASYNC240 - the files are small

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from refold.store import MemoryStore
from refold.store import verify_bundle as reader
from refold.store.bundles import open_bundle
from refold.store.packer import pack
from support.sealing import append, records, sealed, signing_key, write_key

pytestmark = pytest.mark.anyio

SOURCE = Path(reader.__file__)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def bundle(tmp_path: Path) -> Path:
    async with MemoryStore() as store:
        await sealed(store, "a\u202e", "b", count=4)
        await append(store, "b", records(1))
        await pack(store, ["a\u202e", "b"], tmp_path / "b.zip")
    return tmp_path / "b.zip"


def verify(folder: Path, *words: str) -> tuple[int, str]:
    """What the file in a bundle says, run by itself: no installed package, no environment, another folder."""
    script = folder / "verify.py"
    script.write_bytes(SOURCE.read_bytes())
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-W", "error", "verify.py", *words],
        cwd=folder, capture_output=True, check=False, env={"PYTHONIOENCODING": "ascii"}, timeout=60,
    )  # fmt: skip
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done.returncode, done.stdout.decode("ascii")


async def test_it_runs_alone(bundle: Path, tmp_path: Path) -> None:
    """Without refold it says what was checked, what the seal covers and what cannot be proved, as `told`
    does.
    """
    write_key(tmp_path / "k.pub", signing_key())
    code, said = verify(tmp_path, "b.zip", "--key", "k.pub")
    with open_bundle(bundle, [signing_key().public]) as opened:
        for run in opened.runs:
            for _ in opened.lines(run):
                pass
        opened.check_rest()
    expected = [f"  {name:<8}  {value}" for name, value in reader.list_results(opened)]
    assert (0, ["b.zip: intact", *expected]) == (code, said.splitlines())
    assert "8 of 9 events" in said


CHANGES: list[tuple[str, Callable[[bytes], bytes], list[str], int, str]] = [
    ("no seal's key", lambda data: data, [], 0, "who owns key"),
    ("a byte changed", lambda data: data.replace(b"PK\1\2", b"PK\1\3", 1), [], 3, "b.zip: CHANGED"),
    ("truncated", lambda data: data[:-40], [], 3, "b.zip: CHANGED"),
    ("another key", lambda data: data, ["--key", "other.pub"], 3, "checkpoint is by key"),
    ("no key", lambda data: data, ["--key", "b.zip"], 2, "not a public Ed25519 key"),
    ("no file", lambda data: data, ["--key", "none.pub"], 4, "none.pub"),
    ("no bundle", lambda data: b"x", [], 2, "is not a bundle"),
]


@pytest.mark.parametrize(
    ("change", "words", "code", "said"), [pytest.param(*row, id=what) for what, *row in CHANGES]
)
async def test_its_exit_codes(
    change: Callable[[bytes], bytes], words: list[str], code: int, said: str, bundle: Path, tmp_path: Path
) -> None:
    """Changed is 3, wrong use 2, a file that cannot be read 4; the first line names the file."""
    write_key(tmp_path / "other.pub", signing_key(2))
    bundle.write_bytes(change(bundle.read_bytes()))
    got, text = verify(tmp_path, "b.zip", *words)
    assert (code, "b.zip: ") == (got, text[:7])
    assert said in text


async def test_nothing_signed_to_hold_against_a_key(tmp_path: Path) -> None:
    """A key, and no seal: it inconclusive."""
    write_key(tmp_path / "k.pub", signing_key())
    async with MemoryStore() as store:
        await append(store, "a", records(1))
        await pack(store, ["a"], tmp_path / "b.zip")
    assert 125 == verify(tmp_path, "b.zip", "--key", "k.pub")[0]
    assert 0 == verify(tmp_path, "b.zip")[0]


def test_it_is_an_old_python() -> None:
    """The file has no syntax and no call that Python 3.9 lacks."""
    text = SOURCE.read_text(encoding="utf-8")
    tree = ast.parse(text, feature_version=(3, 9))
    calls = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    newer = {"aiter", "anext", "zip"}  # `zip` without `strict` hides a mistake, and 3.9 has no `strict`
    assert set() == calls & newer
    assert "from __future__ import annotations" in text
    assert not re.search(r"\bmatch \w+:|datetime\.UTC|\bStrEnum\b|\.bit_count\(|slots=True", text)


def test_it_needs_the_standard_library_only() -> None:
    """What it imports has been there since Python 3.9."""
    imported = set[str]()
    for node in ast.walk(ast.parse(SOURCE.read_bytes())):
        if isinstance(node, ast.Import):
            imported |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
    assert imported == {
        "__future__", "argparse", "base64", "collections.abc", "hashlib", "json", "re", "struct", "sys", "time", "typing", "zlib",
    }  # fmt: skip
