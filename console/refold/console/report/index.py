"""The index of a folder of pages: a table of runs, those with something wrong first, to be searched, filtered and sorted."""

import hashlib
import html
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote

import msgspec

from refold.console import descriptions, hostile
from refold.console.report.assets import index_script, index_style
from refold.replay import figures, known
from refold.replay.summary import Summary
from refold.replay.tally import Effects

NAME = "index.html"
_TASK = 160
_DEEPEST = 4  # rows below rows that the style knows
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


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the index. `wrong` says what is wrong with its log, `file` is the page's name, "" where it has none; `did` what it did.

    `failed` is how many of its calls failed, None where it is not known of all; `changes` is what they changed.
    """

    about: Summary
    did: str = ""
    failed: int | None = None
    changes: Effects | None = None
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
    style, script = index_style(), index_script()
    rows = (_row(entry, depth, pages) for entry, depth in _ordered(entries))
    states = sorted({_state(entry) for entry in entries})
    heads = [f"<th><button>{name}</button></th>" for name in _COLUMNS]
    heads += [f'<th class="number"><button>{name}</button></th>' for name in _NUMBERS]
    return _PAGE.format(
        hash=_hash(style),
        script_hash=_hash(script),
        script=script,
        heads="".join(heads),
        states="".join(f"<option>{html.escape(state)}</option>" for state in states),
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
    changed = f"changed {entry.changes}" if entry.changes and entry.changes.calls else ""
    task += f'<p class="did">{_safe(changed, 600)}</p>' if changed else ""
    task += f'<p class="did">{_safe(_where(about), 300)}</p>' if _where(about) else ""
    wrong = f'<p class="wrong">{_safe(entry.wrong, 400)}</p>' if entry.wrong else ""
    state = html.escape(_state(entry))
    cells = (
        f'<b class="bad">{state}</b>' if entry.wrong else state,
        task + wrong,
        f"<code>{_safe(about.run, 120)}</code>",
        _safe(about.model, 60),
        figures.clock(about.started).removesuffix(" UTC"),
    )
    told = "".join(f"<td>{cell}</td>" for cell in cells) + "".join(
        f'<td class="number" data-name="{name}" data-sort="{"" if value is None else value}">{_safe(shown, 60)}</td>'
        for name, (value, shown) in zip(_NUMBERS, _numbers(entry), strict=True)
    )
    harm = int(bool(entry.wrong or entry.failed or _ended_badly(about)))
    classes = "wrong" if entry.wrong else f"d{min(depth, _DEEPEST)}"
    return f'<tr class="{classes}" data-state="{state}" data-harm="{harm}">{told}</tr>'


def _numbers(entry: Entry) -> Sequence[tuple[int | None, str]]:
    """What is in the columns of `_NUMBERS`: for sorting, None where it is not known, and as it is shown."""
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


def _state(entry: Entry) -> str:
    """How a run ended, in the words by which the index is filtered."""
    if entry.wrong:
        return "damaged"
    about = entry.about
    return hostile.line(about.source_end.replace(":", ": ", 1) if about.source_end else about.agent_state, 60)


def _ended_badly(about: Summary) -> bool:
    """Whether an error or a limit ended it, by its source where that says so."""
    if about.source_end:
        return about.source_end.partition(":")[0] in ("error", "limit", "guardrail", "cancelled")
    return bool(about.code) and about.agent_state != "COMPLETED"


def _where(about: Summary) -> str:
    told = dict(about.environment.pairs())
    return ", ".join(f"{name} {told[name]}" for name in ("cwd", "branch", "permission mode") if name in told)


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


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
