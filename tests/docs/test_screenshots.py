"""The command that takes pictures of the page: each of them is there, as large as its screen."""

import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from scripts.docs import screenshots

from support.browsing import chromium


@pytest.mark.slow
def test_each_page_has_its_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run of our own, an imported one, a damaged one and the index there are pictures of the size of a
    telephone, and the README's.
    """
    monkeypatch.setenv("REFOLD_CHROMIUM", chromium())
    monkeypatch.setattr(screenshots, "SIZES", {"telephone": screenshots.TELEPHONE})
    monkeypatch.setattr(screenshots, "SCHEMES", ("dark",))
    with ThreadPoolExecutor(1) as pool:  # a browser's driver has an event loop in its thread
        pool.submit(screenshots.main, tmp_path / "all", tmp_path / "page.png").result()
    sizes = {path.stem: struct.unpack(">II", path.read_bytes()[16:24]) for path in tmp_path.rglob("*.png")}
    assert (1200, 760) == sizes.pop("page")
    wanted = {f"{name}-telephone-dark" for name in ("own", "edit", "seen", "imported", "damaged", "index")}
    assert wanted <= {*sizes}
    assert {(390, 844)} == {*sizes.values()}
