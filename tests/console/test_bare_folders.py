"""Folders of which nothing is imported."""

from pathlib import Path

import pytest

from console.conftest import Refold
from support.sessions import session


@pytest.mark.parametrize("holds", [[], ["notes.md"], [".hidden.jsonl"]])
@pytest.mark.parametrize("options", [[], ["--dry-run"], ["-o", "json"]])
def test_a_folder_without_a_transcript_is_no_success(
    refold: Refold, store: Path, tmp_path: Path, holds: list[str], options: list[str]
) -> None:
    """It was named, and nothing of it was imported: that is said, and is wrong use; what else was named is
    imported.
    """
    (tmp_path / "bare").mkdir()
    for name in holds:
        (tmp_path / "bare" / name).write_text("# notes")
    (tmp_path / "a.jsonl").write_text(session("one"))
    alone = refold("import", tmp_path / "bare", *options, "--store", store)
    assert 2 == alone.code
    assert f"{tmp_path / 'bare'}: no transcript in this folder" in alone.err
    both = refold("import", tmp_path / "a.jsonl", tmp_path / "bare", *options, "--store", store)
    assert (2, alone.err.splitlines()[-1]) == (both.code, both.err.splitlines()[-1])
    assert 0 == refold("import", tmp_path / "a.jsonl", *options, "--store", store).code
