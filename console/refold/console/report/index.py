"""The index of a folder of pages: a table of runs without a script, those with something wrong first."""

import hashlib
import html
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote

import msgspec

from refold.console import descriptions, hostile
from refold.console.report.assets import index_style
from refold.replay import figures, known
from refold.replay.summary import Summary

NAME = "index.html"
_TASK = 160
_DEEPEST = 4  # rows below rows that the style knows
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST = 100  # characters of a run's id in the name of a file

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src {hash}; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title} · refold</title>
<style>{style}</style>
</head>
<body>
{alarm}<h1>{title}</h1>
<table>
<thead><tr><th>state</th><th>task</th><th>run</th><th>model</th><th>began</th><th>turns</th><th>tokens</th><th>cost</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
</body>
</html>
"""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the index. `wrong` says what is wrong with its log, `file` is the page's name, "" where it has none; `did` what it did."""

    about: Summary
    did: str = ""
    wrong: str = ""
    file: str = ""


def page_name(run: str) -> str:
    """The name of a run's page. Two runs never have the same, whatever the file system makes of their letters."""
    safe = _UNSAFE.sub("-", run).strip("-")[:_LONGEST]
    if run and safe == run and run == run.lower() and f"{run}.html" != NAME:
        return f"{run}.html"
    return f"{safe or 'run'}-{hashlib.sha256(run.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}.html"


def index(entries: Sequence[Entry]) -> str:
    """The HTML text of an index, in the order of the entries, but for those with something wrong, which come first, and for
    those that another began, which stand below it.
    """
    wrong = sum(bool(entry.wrong) for entry in entries)
    pages = {entry.about.run: entry.file for entry in entries if entry.file}
    alarm = (
        f'<p class="alarm">{figures.counted(wrong, "run")} cannot be believed whole</p>\n' if wrong else ""
    )
    style = index_style()
    rows = (_row(entry, depth, pages) for entry, depth in _ordered(entries))
    return _PAGE.format(
        hash=f"'sha256-{b64encode(hashlib.sha256(style.encode()).digest()).decode()}'",
        title=figures.counted(len(entries), "run"),
        style=style,
        alarm=alarm,
        rows="\n".join(rows),
    )


def _ordered(entries: Sequence[Entry]) -> Iterator[tuple[Entry, int]]:
    """The entries with how deep each stands below what began it."""
    here = {entry.about.run for entry in entries if not entry.wrong}
    below: dict[str, list[Entry]] = {}
    for entry in entries:
        parent = entry.about.parent.run if entry.about.parent else ""
        below.setdefault("" if entry.wrong or parent not in here else parent, []).append(entry)
    waiting = [(entry, 0) for entry in sorted(below.pop("", []), key=lambda each: not each.wrong)][::-1]
    while waiting:
        entry, depth = waiting.pop()
        yield entry, depth
        waiting += [(child, depth + 1) for child in below.pop(entry.about.run, [])[::-1]]
    # A log may claim anything, that two runs began each other too.
    yield from ((entry, 0) for left in below.values() for entry in left)


def _row(entry: Entry, depth: int, pages: Mapping[str, str]) -> str:
    about = entry.about
    task = _linked(descriptions.task(about.task, _TASK), entry.file) + _kin(about, pages)
    task += f'<p class="did">{_safe(entry.did, 200)}</p>' if entry.did else ""
    wrong = f'<p class="wrong">{_safe(entry.wrong, 400)}</p>' if entry.wrong else ""
    state = '<b class="bad">damaged</b>' if entry.wrong else html.escape(descriptions.ended(about))
    tokens = figures.at_least(figures.count(known.tokens(about.usage)), about.uncounted)
    cost = figures.at_least(figures.dollars(about.cost_nanousd), about.unpriced)
    cells = (
        state,
        task + wrong,
        f"<code>{_safe(about.run, 120)}</code>",
        _safe(about.model, 60),
        figures.clock(about.started),
    )
    numbers = {"turns": figures.count(about.steps), "tokens": tokens, "cost": cost}
    told = "".join(f"<td>{cell}</td>" for cell in cells) + "".join(
        f'<td class="number" data-name="{name}">{html.escape(each)}</td>' for name, each in numbers.items()
    )
    return f'<tr class="{"wrong" if entry.wrong else f"d{min(depth, _DEEPEST)}"}">{told}</tr>'


def _kin(about: Summary, pages: Mapping[str, str]) -> str:
    told = [("child of", about.parent.run)] if about.parent else []
    told += [("forked from", about.forked_from)] if about.forked_from else []
    return "".join(
        f" <small>{word} {_linked(hostile.line(run, 120), pages.get(run, ''))}</small>" for word, run in told
    )


def _linked(shown: str, file: str) -> str:
    """Words that are harmless already, as a link where there is a page."""
    return f'<a href="{quote(file)}">{html.escape(shown)}</a>' if file else html.escape(shown)


def _safe(text: str, most: int) -> str:
    return html.escape(hostile.line(text, most))
