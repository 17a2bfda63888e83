"""Check that a site is self-contained: `python -m scripts.docs.check DIR` exits 1 and prints problems."""

import re
import sys
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

# Attributes whose addresses a browser loads automatically. Links are not among them and may lead anywhere.
LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("source", "srcset"),
          ("video", "src"), ("audio", "src"), ("object", "data"), ("use", "href")}  # fmt: skip
_ELSEWHERE = re.compile(r"(?:[a-z]+:)?//", re.IGNORECASE)
_IN_STYLE = re.compile(r"""(?:url\(|@import\s+)['"]?\s*((?:https?:)?//[^'")]+)""")


class Page(HTMLParser):
    """Resources, links and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = _IN_STYLE.findall(text)
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect addresses and anchors of an element, including empty elements."""
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            if (tag, name) in LOADED and value and ("rel", "canonical") not in attrs:
                self.loaded.append(value)
            if (tag, name) == ("a", "href") and value:
                self.links.append(value)


def complaints(site: Path) -> Iterator[str]:
    """Yield what a reader of `site` without a network would miss, one sentence each."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    if not pages:
        yield f"{site} has no page"
    if not (site / "search.js").is_file():
        yield "search.js is missing: a page that is opened from disk cannot read search.json"
    for style in sorted(site.rglob("*.css")):
        for address in _IN_STYLE.findall(style.read_text(encoding="utf-8")):
            yield f"{style.relative_to(site)} loads {address}"
    for path, page in pages.items():
        for address in page.loaded:
            if _ELSEWHERE.match(address):
                yield f"{path.relative_to(site)} loads {address}"
        for address in (*page.loaded, *page.links):
            if not re.match(r"[a-z]+:|//", address) and (problem := _missing(path, address, pages)):
                yield f"{path.relative_to(site)}: {address} {problem}"


def _missing(path: Path, address: str, pages: Mapping[Path, Page]) -> str:
    """Return what is wrong with an address on a page, or ""."""
    name, _, anchor = unquote(address).partition("#")
    name = name.partition("?")[0]
    there = (path.parent / name).resolve() if name else path
    if there.is_dir():
        return "is a folder, which a browser lists instead of a page"
    if not there.is_file():
        return "does not exist"
    return "has no such heading" if anchor and there in pages and anchor not in pages[there].anchors else ""


def main(folder: str) -> int:
    """Print the problems of the site in `folder`; return 1 if there are any."""
    found = list(complaints(Path(folder).resolve()))
    print("\n".join(found), end="\n" if found else "", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
