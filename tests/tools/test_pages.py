"""Pages of a text file."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.engine.tools import files
from refold.engine.tools.files import page
from refold.engine.tools.root import FileError


def read(data: bytes, offset: int = 1, limit: int = 100, size: int = 100) -> str:
    return page(io.BytesIO(data), "f", offset, limit, size)


@pytest.mark.parametrize(
    ("data", "offset", "limit", "size", "text"),
    [
        pytest.param(b"", 1, 9, 9, "[the file is empty]", id="empty"),
        pytest.param(b"a\nb", 1, 9, 9, "a\nb", id="whole: as it is"),
        pytest.param(b"a\r\nb\r\n", 1, 9, 9, "a\r\nb\r\n", id="line ends are kept"),
        pytest.param(b"a\nb\nc", 2, 1, 9, "b\n[lines 2 to 2 of 3; go on with offset 3]", id="by lines"),
        pytest.param(b"a\nb\nc", 2, 9, 9, "b\nc\n[lines 2 to 3 of 3]", id="to the end"),
        pytest.param(b"aaa\nbbb\n", 1, 9, 7, "aaa\n[lines 1 to 1 of 2; go on with offset 2]", id="by bytes"),
        pytest.param(b"aaa\nbbb\n", 1, 9, 8, "aaa\nbbb\n", id="exactly as many bytes"),
        pytest.param(
            "aé\nb".encode(),
            1,
            9,
            2,
            "a\n[line 1 is 4 bytes long and was cut; search_files finds text in it; lines 1 to 1 of 2; "
            "go on with offset 2]",
            id="a line longer than a page is cut between characters",
        ),
        pytest.param(
            b"a\xff", 1, 9, 9, "a\ufffd\n[bytes that are not UTF-8 are shown as \ufffd]", id="not UTF-8"
        ),
    ],
)
def test_pages(data: bytes, offset: int, limit: int, size: int, text: str) -> None:
    """One row a rule; the id says the rule."""
    assert text == read(data, offset, limit, size)


@pytest.mark.parametrize(
    ("data", "offset", "message"),
    [
        pytest.param(b"\x89PNG\0", 1, "f: is binary", id="binary"),
        pytest.param(b"a\n" * 9000 + b"\0", 9001, "f: is binary from line 9001 on", id="binary further on"),
        pytest.param(b"a\nb\n", 3, "f: the file has 2 lines, so offset 3 is beyond its end", id="beyond"),
    ],
)
def test_refused_pages(data: bytes, offset: int, message: str) -> None:
    """One row a reason; the message names the file and the reason."""
    with pytest.raises(FileError, match=message):
        read(data, offset)


def test_no_more_than_the_bound_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of a file without end costs the bound and says that there is more."""
    monkeypatch.setattr(files, "MAX_SCAN", 64)
    file = io.BytesIO(b"a\n" * 10_000)
    assert "a\na\n[lines 1 to 2 of 32 or more; go on with offset 3]" == page(file, "f", 1, 2, 100)
    assert file.tell() <= 65
    with pytest.raises(FileError, match="the first 64 bytes"):
        page(io.BytesIO(b"a\n" * 10_000), "f", 33, 2, 100)


@given(
    data=st.text(alphabet="aé\n", max_size=60).map(str.encode),
    limit=st.integers(1, 5),
    size=st.integers(6, 30),
)
def test_pages_put_together_are_the_file(data: bytes, limit: int, size: int) -> None:
    """Going on as the notes say visits every line once, if no line is longer than a page."""
    lines = data.splitlines(keepends=True)
    if not data or max(map(len, lines)) > size:
        return
    offset, got = 1, ""
    while True:
        text = read(data, offset, limit, size)
        body = re.sub(r"\n?\[lines [^\n]*\]$", "\n", text)
        got += body
        if not (more := re.search(r"go on with offset (\d+)\]$", text)):
            break
        assert int(more[1]) > offset
        offset = int(more[1])
    assert data.decode().removesuffix("\n") == got.removesuffix("\n")
