"""Check the files in a wheel: `wheel.py FILE.whl` prints every problem, and exits 1 if there are any."""

import sys
from collections.abc import Iterator
from pathlib import PurePosixPath
from zipfile import ZipFile

PACKAGES = ("console", "engine", "importers", "reducers", "replay", "store")


def complaints(names: frozenset[str]) -> Iterator[str]:
    """Yield the problems of a wheel with these files, one sentence each."""
    for package in PACKAGES:
        for needed in ("__init__.py", "py.typed"):
            if f"refold/{package}/{needed}" not in names:
                yield f"refold/{package}/{needed} is missing"
    # It would hide parts of `refold` that are installed elsewhere.
    if "refold/__init__.py" in names:
        yield "refold/__init__.py must not exist: refold is a namespace package"
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        yield "the licence is missing"
    for name in sorted(names):
        path = PurePosixPath(name)
        if path.parts[0] != "refold" and not path.parts[0].endswith(".dist-info"):
            yield f"{name} is outside of refold"
        if "tests" in path.parts or path.name.startswith(("test_", "conftest")) or path.suffix == ".pyc":
            yield f"{name} does not belong in a wheel"


def main(wheel: str) -> int:
    """Print the problems of `wheel`; return 1 if there are any."""
    with ZipFile(wheel) as archive:
        found = list(complaints(frozenset(archive.namelist())))
    for complaint in found:
        print(f"{wheel}: {complaint}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
