"""Build the documentation site, which opens from disk: `python -m scripts.docs.build [FOLDER]` (site/).

GitHub shows the same files, so they contain nothing specific to the site. Zensical renders a copy of them
with these additions:

- the pages of docs/reference/api, from the code; the table of public names links to them;
- the changelog and the contributing guide;
- diagrams as pictures, so that no script is loaded for them;
- no links to source files, which are not in the site.

Exits 1 if a page is missing in the navigation, or if the site is not self-contained: see `check.py`.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from scripts.docs import api, check

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = Path(__file__).with_name("zensical.toml")
# Pages of the site that lie outside of docs/.
MORE = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
_DIAGRAM = re.compile(r"^```mermaid\n(.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_ROW = re.compile(r"^\| `(\w+)` \| ", re.MULTILINE)


def main(site: Path) -> int:
    """Replace `site` by a new site; print its problems, and return 1 if there are any."""
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch).resolve()
        for name, text in files():
            (work / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
            (work / "docs" / name).write_text(text, encoding="utf-8")
        for picture in (ROOT / "docs").rglob("*.png"):
            shutil.copy(picture, work / "docs" / picture.relative_to(ROOT / "docs"))
        shutil.copy(SETTINGS, work)
        for name in ("site.css", "iframe-worker.js"):
            shutil.copy(SETTINGS.with_name(name), work / "docs")
        missing = not_in_navigation(
            {path.relative_to(work / "docs").as_posix() for path in work.rglob("*.md")}
        )
        if missing:
            print(missing, file=sys.stderr)
            return 1
        tool("zensical", "build", "--strict", folder=work)
        for name in ("404.html", "sitemap.xml"):  # only needed on servers
            (work / "site" / name).unlink(missing_ok=True)
        shutil.rmtree(site, ignore_errors=True)
        shutil.move(work / "site", site)
    return check.main(str(site))


def files() -> Iterator[tuple[str, str]]:
    """Yield the name under docs/ and the text of each page (Markdown) and diagram (SVG)."""
    for path in sorted((ROOT / "docs").rglob("*.md")):
        name = path.relative_to(ROOT / "docs").as_posix()
        text = inside(path, path.read_text(encoding="utf-8"))
        for number, fence in enumerate(_DIAGRAM.findall(text), start=1):
            picture = f"{Path(name).stem}-{number}.svg"
            yield f"{Path(name).parent}/{picture}", drawn(fence)
            text = _DIAGRAM.sub(f"![Diagram]({picture}){{ .diagram }}", text, count=1)
        yield name, linked(text) if name == "reference/python.md" else text
    for file, name in MORE.items():
        yield name, inside(ROOT / file, (ROOT / file).read_text(encoding="utf-8"))
    for package in api.PACKAGES:
        yield f"reference/api/{package}.md", api.page(package)


def drawn(diagram: str) -> str:
    """Render a diagram as SVG, with a common font that is narrower than the font it was measured with."""
    svg = tool("mmdr", "--format", "svg", "--output", "-", given=diagram)
    return svg.replace("Recursive Variable", "Arial").replace("font-size:14px", "font-size:12px")


def tool(name: str, *words: str, folder: Path = ROOT, given: str = "") -> str:
    """Run a module and return its output. It is not imported, so type checks work without it."""
    done = subprocess.run(
        [sys.executable, "-m", name, *words],
        cwd=folder,
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{name}: {done.stdout}{done.stderr}")
    return done.stdout


def inside(path: Path, text: str) -> str:
    """Return a page with links adapted to the site; links to source files become plain text."""
    here = MORE.get(path.relative_to(ROOT).as_posix())
    page = ROOT / "docs" / here if here else path

    def lead(link: re.Match[str]) -> str:
        words, address, anchor = link[1], link[2], link[3] or ""
        if re.match(r"[a-z]+:", address):
            return link[0]
        target = (path.parent / address).resolve()
        more = MORE.get(target.relative_to(ROOT).as_posix())
        there = ROOT / "docs" / more if more else target
        if not there.is_relative_to(ROOT / "docs"):
            return words
        return f"[{words}]({os.path.relpath(there, page.parent)}{anchor})"

    return _LINK.sub(lead, text)


def linked(text: str) -> str:
    """Link each public name to its entry."""
    parts = re.split(r"^(## `refold\.(\w+)`)$", text, flags=re.MULTILINE)
    for at in range(1, len(parts), 3):
        package, known = parts[at + 1], set(api.described(parts[at + 1]))
        parts[at + 1] = ""
        parts[at + 2] = _ROW.sub(
            lambda row, package=package, known=known: (
                f"| [`{row[1]}`](api/{package}.md#{row[1].lower()}) | " if row[1] in known else row[0]
            ),
            parts[at + 2],
        )
    return "".join(parts)


def not_in_navigation(names: set[str]) -> str:
    """Return an error that names pages missing in the navigation, or ""."""
    listed = set(re.findall(r'"([\w/-]+\.md)"', SETTINGS.read_text(encoding="utf-8")))
    left = sorted(names - listed)
    return f"{SETTINGS.name}: its nav lacks {', '.join(left)}" if left else ""


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "site").resolve()))
