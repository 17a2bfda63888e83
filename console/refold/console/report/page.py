"""The page of a report: one HTML file in which everything is, and which may load nothing.

Its content-security policy allows the scripts and the style that are in it, by their SHA-256, and nothing else: no
network, no picture, no other script, none in an attribute. The log's own texts are data: in elements that no browser runs,
JSON or, of what grows with the run, packed JSON, and text nodes once they are shown.
"""

import base64
import hashlib
import html
from collections.abc import Iterator

from refold.console import hostile
from refold.console.report import assets
from refold.console.report.data import Report
from refold.console.report.packing import ENCODER, Packed

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
<div id="app"><noscript><p>This page needs JavaScript. `refold show` tells the same run in a terminal.</p></noscript></div>
<script type="text/plain" id="licences">{licences}</script>
<script type="application/json" id="data">"""
_FOOT = """{scripts}
</body>
</html>
"""

_TITLE = 80


def page(report: Report) -> str:
    """The HTML text of a report. The same report gives the same text."""
    return "".join(pieces(report))


def pieces(report: Report) -> Iterator[str]:
    """`page`, piece by piece: all of a long run would be in memory several times."""
    style, scripts = assets.style(), assets.scripts()
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
        licences=assets.licences(),
    )
    data = _embedded(_data(report))
    yield data
    yield f'</script>\n<script type="text/plain" id="sum">{_sum(data)}</script>\n'
    for name, text in _parts(report):
        yield f'<script type="application/octet-stream" id="{name}">{text}</script>\n'
    yield _FOOT.format(scripts="\n".join(f"<script>{script}</script>" for script in scripts))


def _data(report: Report) -> bytes:
    """The report as JSON text, of what is packed only how many values each part has; `sums` are the digests of the parts."""
    fields: dict[str, object] = {name: getattr(report, name) for name in report.__struct_fields__}
    told = {name: value.counts if isinstance(value, Packed) else value for name, value in fields.items()}
    return ENCODER.encode(told | {"sums": {name: _sum(text) for name, text in _parts(report)}})


def _parts(report: Report) -> Iterator[tuple[str, str]]:
    """What is packed, by the names of its parts: base64, in which nothing can be markup."""
    for name in report.__struct_fields__:
        value: object = getattr(report, name)
        for place, part in enumerate(value.parts if isinstance(value, Packed) else ()):
            yield f"{name}-{place}", base64.b64encode(part).decode()


def _embedded(data: bytes) -> str:
    """JSON text that can stand in HTML: nothing in it can end its element, and no mark in it is invisible."""
    text = hostile.json_text(data.decode())
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _title(report: Report) -> str:
    about = report.about
    return f"{hostile.line(about.run, _TITLE)} · {about.agent_state} · refold"


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
