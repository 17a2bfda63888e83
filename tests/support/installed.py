"""Packages as an installer leaves them, without one: a folder on the path with their modules and entry
points.
"""

from pathlib import Path
from typing import Any


def install(site: Path, project: dict[str, Any]) -> None:
    """Write the metadata of a `[project]` table into the folder."""
    folder = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    folder.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (folder / "METADATA").write_text(metadata, encoding="utf-8")
    points = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (folder / "entry_points.txt").write_text("\n".join(points), encoding="utf-8")
