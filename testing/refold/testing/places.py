"""Where recordings of tests are."""

from pathlib import Path

FOLDER = "recordings"
"""The folder beside test files. It has a folder for each of them, with a file for each recording."""

READ: set[str] = set()
"""The paths of recordings that were read in this process."""


def recordings_of(test_file: Path) -> Path:
    """Return the folder with the recordings of a test file's tests."""
    return test_file.parent / FOLDER / test_file.stem
