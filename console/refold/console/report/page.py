"""HTML pages: of a run, and the index of a folder of them.

The content-security policy allows only the page's own scripts and style, by their SHA-256: no network, no
images, no scripts in attributes. The log's texts are data: JSON or packed JSON in elements that browsers do
not execute, and text nodes once displayed.
"""

import base64
import hashlib
import html
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from urllib.parse import quote

import msgspec

from refold.console import descriptions
from refold.console.report.data import ENCODER, PackedValues, Report
from refold.reducers.machine import SUCCESSFUL
from refold.replay import figures, known
from refold.replay.summary import RunSummary
from refold.replay.timeline import Effects

_FOLDER = files("refold.console.report") / "assets"
_MAP = re.compile(r"^//# sourceMappingURL=.*$", re.MULTILINE)  # browsers would look for it beside the page

# In order of execution: each script uses only earlier ones.
VENDORED = ("preact.umd.js", "hooks.umd.js", "htm.umd.js", "uPlot.iife.min.js")
OURS = (
    "visible.js", "figures.js", "sha256.js", "sums.js", "inflate.js", "parts.js", "slices.js", "chain.js", "json.js", "patterns.js", "conditions.js", "filter.js", "texts.js", "arguments.js",
    "model.js", "rows.js", "row.js", "list.js", "spans.js", "strip.js", "steps.js", "summary.js", "about.js", "header.js", "markdown.js", "words.js",
    "edits.js", "inspector.js", "tabs.js", "seen.js", "app.js",
)  # fmt: skip


class Vendored(msgspec.Struct, frozen=True):
    """A package from npm, as published: its name, its version, and the file of its licence."""

    package: str
    version: str
    licence: str


PACKAGES = (
    Vendored("preact", "10.29.8", "preact.LICENSE"),
    Vendored("htm", "3.1.1", "htm.LICENSE"),
    Vendored("uplot", "1.6.32", "uPlot.LICENSE"),
)


def page_scripts() -> list[str]:
    """Return the scripts of a page, in order of execution."""
    vendored = [_MAP.sub("", _read_template("vendor", name)) for name in VENDORED]
    return [*vendored, *(_read_template(name) for name in OURS)]


def page_style() -> str:
    """Return the style of a page."""
    return _read_template("vendor", "uPlot.min.css") + "\n" + _read_template("report.css")


def index_style() -> str:
    """Return the style of an index of pages."""
    return _read_template("index.css")


def index_script() -> str:
    """Return the script of an index of pages."""
    return _read_template("index.js")


def licences() -> str:
    """Return names, versions and full licence texts of the packages in a page."""
    told = (
        f"{each.package} {each.version}\n\n{_read_template('vendor', each.licence).strip()}"
        for each in PACKAGES
    )
    return "\n\n----\n\n".join(told)


def _read_template(*parts: str) -> str:
    return _FOLDER.joinpath(*parts).read_text(encoding="utf-8")


_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<div id="app"><noscript><p>This page needs JavaScript. `refold show` shows the run in a terminal.</p></noscript></div>
<script type="text/plain" id="licences">{licences}</script>
<script type="application/json" id="data">"""
_FOOT = """{scripts}
</body>
</html>
"""

_TITLE = 80


def page(report: Report) -> str:
    """Return the HTML text of a report. The same report gives the same text."""
    return "".join(pieces(report))


def pieces(report: Report) -> Iterator[str]:
    """Yield the text of `page` in pieces, to save memory for long runs."""
    style, scripts = page_style(), page_scripts()
    policy = {
        "default-src": "'none'",
        "script-src": " ".join(map(_hash, scripts)),
        "style-src": _hash(style),
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    yield _HEAD.format(
        policy="; ".join(f"{name} {value}" for name, value in policy.items()),
        title=html.escape(_title(report)),
        style=style,
        licences=licences(),
    )
    data = _embed_json(_data(report))
    yield data
    yield f'</script>\n<script type="text/plain" id="sum">{_sum(data)}</script>\n'
    for name, text in _parts(report):
        yield f'<script type="application/octet-stream" id="{name}">{text}</script>\n'
    yield _FOOT.format(scripts="\n".join(f"<script>{script}</script>" for script in scripts))


def _data(report: Report) -> bytes:
    """Return the report as JSON text: for packed data only the counts of its parts; `sums` are the digests
    of the parts.
    """
    fields: dict[str, object] = {name: getattr(report, name) for name in report.__struct_fields__}
    told = {
        name: value.counts if isinstance(value, PackedValues) else value for name, value in fields.items()
    }
    return ENCODER.encode(told | {"sums": {name: _sum(text) for name, text in _parts(report)}})


def _parts(report: Report) -> Iterator[tuple[str, str]]:
    """Yield packed data by the names of its parts, in base64, which cannot contain markup."""
    for name in report.__struct_fields__:
        value: object = getattr(report, name)
        for place, part in enumerate(value.parts if isinstance(value, PackedValues) else ()):
            yield f"{name}-{place}", base64.b64encode(part).decode()


def _embed_json(data: bytes) -> str:
    """Escape JSON text for HTML: it cannot end its element, and contains no invisible characters."""
    text = descriptions.json_text(data.decode())
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _title(report: Report) -> str:
    about = report.about
    return f"{descriptions.line(about.run, _TITLE)} · {about.agent_state} · refold"


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


NAME = "index.html"
_TASK = 160
_DEEPEST = 4  # levels of nested rows that the style supports
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST = 100  # characters of a run's id in the name of a file

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src {script_hash}; style-src {hash}; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title} · refold</title>
<style>{style}</style>
</head>
<body>
{alarm}<h1>{title}</h1>
<form hidden><input id="search" type="search" placeholder="search: words of a task, a tool, a model, a run" aria-label="search">
<select id="state" aria-label="how it ended"><option value="">any end</option>{states}</select>
<label><input id="failed" type="checkbox"> failed calls, errors or damage only</label> <span id="counted"></span></form>
<table>
<thead><tr>{heads}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
<script>{script}</script>
</body>
</html>
"""
_COLUMNS = ("ended", "task", "run", "model", "began (UTC)")
_NUMBERS = ("turns", "failed", "changes", "tokens", "cost")


class IndexEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the index. `wrong`: what is wrong with its log; `file`: its page's name, or ""; `did`: what it
    did.

    `failed`: the number of failed calls, None if some are unknown; `changes`: what the calls changed.
    """

    about: RunSummary
    did: str = ""
    failed: int | None = None
    changes: Effects | None = None
    wrong: str = ""
    file: str = ""


def page_name(run: str) -> str:
    """Return the file name of a run's page.

    Two runs never share one, even on a case-insensitive file system.
    """
    safe = _UNSAFE.sub("-", run).strip("-")[:_LONGEST]
    if run and safe == run and run == run.lower() and f"{run}.html" != NAME:
        return f"{run}.html"
    return f"{safe or 'run'}-{hashlib.sha256(run.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}.html"


def index(entries: Sequence[IndexEntry]) -> str:
    """Return the HTML text of an index: damaged runs first, child runs below their parents, else in the
    given order.
    """
    wrong = sum(bool(entry.wrong) for entry in entries)
    pages = {entry.about.run: entry.file for entry in entries if entry.file}
    alarm = (
        f'<p class="alarm">{figures.quantity(wrong, "run")} damaged or not fully readable</p>\n'
        if wrong
        else ""
    )
    style, script = index_style(), index_script()
    rows = (_row(entry, depth, pages) for entry, depth in _order_entries(entries))
    states = sorted({_state(entry) for entry in entries})
    heads = [f"<th><button>{name}</button></th>" for name in _COLUMNS]
    heads += [f'<th class="number"><button>{name}</button></th>' for name in _NUMBERS]
    return _PAGE.format(
        hash=_hash(style),
        script_hash=_hash(script),
        script=script,
        heads="".join(heads),
        states="".join(f"<option>{html.escape(state)}</option>" for state in states),
        title=figures.quantity(len(entries), "run"),
        style=style,
        alarm=alarm,
        rows="\n".join(rows),
    )


def _order_entries(entries: Sequence[IndexEntry]) -> Iterator[tuple[IndexEntry, int]]:
    """Yield the entries with their depth below their parents."""
    below = _group_entries(entries)
    waiting = [(entry, 0) for entry in sorted(below.pop("", []), key=lambda each: not each.wrong)][::-1]
    while waiting:
        entry, depth = waiting.pop()
        yield entry, depth
        waiting += [(child, depth + 1) for child in below.pop(entry.about.run, [])[::-1]]
    # A log may claim anything, even that two runs started each other.
    yield from ((entry, 0) for left in below.values() for entry in left)


def _group_entries(entries: Sequence[IndexEntry]) -> dict[str, list[IndexEntry]]:
    """Group the entries by their parent, if it is among them, else by ""."""
    here = {entry.about.run for entry in entries if not entry.wrong}
    below: dict[str, list[IndexEntry]] = {}
    for entry in entries:
        parent = entry.about.parent.run if entry.about.parent else ""
        below.setdefault("" if entry.wrong or parent not in here else parent, []).append(entry)
    return below


def _row(entry: IndexEntry, depth: int, pages: Mapping[str, str]) -> str:
    about = entry.about
    task = _link(descriptions.task(about.task, _TASK), entry.file) + _kin(about, pages)
    changed = f"changed {entry.changes}" if entry.changes and entry.changes.calls else ""
    task += _paragraph("did", entry.did, 200) + _paragraph("did", changed, 600)
    task += _paragraph("did", _where(about), 300) + _paragraph("wrong", entry.wrong, 400)
    state = html.escape(_state(entry))
    cells = (
        f'<b class="bad">{state}</b>' if entry.wrong else state,
        task,
        f"<code>{_safe(about.run, 120)}</code>",
        _safe(about.model, 60),
        figures.clock(about.started).removesuffix(" UTC"),
    )
    told = "".join(f"<td>{cell}</td>" for cell in cells) + "".join(
        f'<td class="number" data-name="{name}" data-sort="{"" if value is None else value}">{_safe(shown, 60)}</td>'
        for name, (value, shown) in zip(_NUMBERS, _numbers(entry), strict=True)
    )
    harm = int(bool(entry.wrong or entry.failed or _is_failure(about)))
    classes = "wrong" if entry.wrong else f"d{min(depth, _DEEPEST)}"
    return f'<tr class="{classes}" data-state="{state}" data-harm="{harm}">{told}</tr>'


def _paragraph(kind: str, text: str, most: int) -> str:
    return f'<p class="{kind}">{_safe(text, most)}</p>' if text else ""


def _numbers(entry: IndexEntry) -> Sequence[tuple[int | None, str]]:
    """Return the values of the columns `_NUMBERS`: for sorting (None if unknown), and as displayed."""
    about, changes = entry.about, entry.changes or Effects()
    tokens = known.tokens(about.usage)
    made = sum(number for _, number, _ in changes.made)
    failed = figures.count(entry.failed) + ("+?" if about.unmarked else "")
    return (
        (about.steps, figures.count(about.steps)),
        (entry.failed, failed if entry.failed is not None else "-"),
        (
            made if entry.changes else None,
            f"{figures.count(made)}{'+?' if changes.unknown else ''}" if entry.changes else "-",
        ),
        (tokens, figures.at_least(figures.count(tokens), about.uncounted)),
        (about.cost_nanousd, figures.at_least(figures.dollars(about.cost_nanousd), about.unpriced)),
    )


def _state(entry: IndexEntry) -> str:
    """Return how a run ended, in the words of the index's filter."""
    if entry.wrong:
        return "damaged"
    about = entry.about
    return descriptions.line(
        about.source_end.replace(":", ": ", 1) if about.source_end else about.agent_state, 60
    )


def _is_failure(about: RunSummary) -> bool:
    """Return whether an error or a limit ended it, by its source if recorded there."""
    if about.source_end:
        return about.source_end.partition(":")[0] in ("error", "limit", "guardrail", "cancelled")
    return bool(about.code) and about.agent_state not in SUCCESSFUL


def _where(about: RunSummary) -> str:
    told = dict(about.environment.pairs())
    return ", ".join(f"{name} {told[name]}" for name in ("cwd", "branch", "permission mode") if name in told)


def _kin(about: RunSummary, pages: Mapping[str, str]) -> str:
    told = [("child of", about.parent.run)] if about.parent else []
    told += [("forked from", about.forked_from)] if about.forked_from else []
    return "".join(
        f" <small>{word} {_link(descriptions.line(run, 120), pages.get(run, ''))}</small>"
        for word, run in told
    )


def _link(shown: str, file: str) -> str:
    """Return an escaped text as a link if there is a page."""
    return f'<a href="{quote(file)}">{html.escape(shown)}</a>' if file else html.escape(shown)


def _safe(text: str, most: int) -> str:
    return html.escape(descriptions.line(text, most))
