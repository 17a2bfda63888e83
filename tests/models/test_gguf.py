"""Whether a file is a whole GGUF, or what is wrong with it."""

import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.engine.models import local_server
from refold.reducers.errors import WrongUse


def small_gguf(path: Path, *, size: int = 64, claims: int = 64, version: int = 3) -> Path:
    key, name = b"general.name", b"t"
    header = b"GGUF" + struct.pack("<IQQ", version, 1, 1)
    header += struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, 1) + b"x"
    header += struct.pack("<Q", len(name)) + name + struct.pack("<IQIQ", 1, claims // 4, 0, 0)
    path.write_bytes(header + bytes(-len(header) % 32) + bytes(size))
    return path


def test_a_whole_gguf_passes(tmp_path: Path) -> None:
    """A GGUF that holds what it lists is not refused."""
    local_server.check_weights(small_gguf(tmp_path / "x.gguf"))


@pytest.mark.parametrize(("content", "message"), [
    pytest.param(b"", "it is not a GGUF file", id="empty"),
    pytest.param(b"PK\x03\x04 a zip", "it is not a GGUF file: it begins with b'PK", id="another format"),
    pytest.param(b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "GGUF version 1", id="an obsolete version"),
    pytest.param(b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "GGUF version 50331648", id="big-endian"),
    pytest.param(b"GGUF\x03", "truncated", id="cut in the version"),
    pytest.param(b"GGUF" + struct.pack("<I", 3), "truncated", id="cut after the version"),
    pytest.param(b"GGUF" + struct.pack("<IQQ", 3, 2**63, 0), "truncated or damaged", id="more tensors than bytes"),
    pytest.param(b"GGUF" + struct.pack("<IQQ", 3, 0, 2**63), "truncated or damaged", id="more pairs than bytes"),
    pytest.param(b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**62) + bytes(20), "truncated", id="a key without end"),
    pytest.param(b"GGUF" + struct.pack("<IQQQI", 3, 0, 1, 0, 99) + bytes(20), "type 99", id="an unknown type"),
])  # fmt: skip
def test_what_is_no_gguf_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    """A file that is no whole GGUF is refused with its path and what is wrong."""
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(WrongUse, match=message) as caught:
        local_server.check_weights(path)
    assert str(path) in str(caught.value)


def test_a_truncated_gguf_is_refused(tmp_path: Path) -> None:
    """A file without the last byte of its last tensor is refused."""
    with pytest.raises(
        local_server.BadWeights, match=r"truncated or damaged: it has 159 bytes and needs 160"
    ):
        local_server.check_weights(small_gguf(tmp_path / "x.gguf", size=63))


@given(tail=st.binary(max_size=300))
def test_no_header_crashes_the_check(tmp_path_factory: pytest.TempPathFactory, tail: bytes) -> None:
    """Whatever follows a right beginning, the check passes or says what is wrong."""
    path = tmp_path_factory.getbasetemp() / "random.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<I", 3) + tail)
    with suppress(local_server.BadWeights):
        local_server.check_weights(path)
