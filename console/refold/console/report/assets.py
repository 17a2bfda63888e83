"""What a page is made of besides its data: our scripts, the vendored ones with their licences, the style."""

import re
from importlib.resources import files

import msgspec

_FOLDER = files("refold.console.report") / "assets"
_MAP = re.compile(r"^//# sourceMappingURL=.*$", re.MULTILINE)  # it would be looked for beside the page

# In the order in which they run: each uses only what stands before it.
VENDORED = ("preact.umd.js", "hooks.umd.js", "htm.umd.js", "uPlot.iife.min.js")
OURS = (
    "visible.js", "figures.js", "sha256.js", "sums.js", "inflate.js", "parts.js", "slices.js", "chain.js", "json.js", "patterns.js", "conditions.js", "filter.js", "texts.js", "arguments.js",
    "model.js", "rows.js", "row.js", "list.js", "spans.js", "strip.js", "steps.js", "summary.js", "about.js", "header.js", "markdown.js", "words.js",
    "edits.js", "inspector.js", "tabs.js", "seen.js", "app.js",
)  # fmt: skip


class Vendored(msgspec.Struct, frozen=True):
    """A package from npm, as it is published: its name there, its version, the file with its licence."""

    package: str
    version: str
    licence: str


PACKAGES = (
    Vendored("preact", "10.29.8", "preact.LICENSE"),
    Vendored("htm", "3.1.1", "htm.LICENSE"),
    Vendored("uplot", "1.6.32", "uPlot.LICENSE"),
)


def scripts() -> list[str]:
    """The scripts of a page, in the order in which they run."""
    vendored = [_MAP.sub("", _read("vendor", name)) for name in VENDORED]
    return [*vendored, *(_read(name) for name in OURS)]


def style() -> str:
    """The style of a page."""
    return _read("vendor", "uPlot.min.css") + "\n" + _read("report.css")


def index_style() -> str:
    """The style of an index of pages."""
    return _read("index.css")


def index_script() -> str:
    """The script of an index of pages."""
    return _read("index.js")


def licences() -> str:
    """Of what is vendored in a page: names, versions, and the full texts."""
    told = (f"{each.package} {each.version}\n\n{_read('vendor', each.licence).strip()}" for each in PACKAGES)
    return "\n\n----\n\n".join(told)


def _read(*parts: str) -> str:
    return _FOLDER.joinpath(*parts).read_text(encoding="utf-8")
