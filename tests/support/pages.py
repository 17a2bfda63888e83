"""The page of a run as a parser sees it, with what is packed in it unpacked; and the same page after somebody
edited it.
"""

import base64
import hashlib
import html.parser
import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from refold.console.report.data import PackedValues

LISTS = ("turns", "events", "calls", "records", "derived", "shown")
"""What of a page is packed."""


class Read(html.parser.HTMLParser):
    """A page as a parser sees it: its tags with their attributes, and the text in each kind of element."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._texts: list[list[str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._texts.append([])

    def handle_endtag(self, tag: str) -> None:
        self._texts.append([])  # what follows is in none of them
        self.tags.append((f"/{tag}", {}))

    def handle_data(self, data: str) -> None:
        if self._texts:
            self._texts[-1].append(data)

    def inside(self, tag: str, **attributes: str) -> list[str]:
        """The texts in elements of a kind."""
        return [
            "".join(texts)
            for (name, has), texts in zip(self.tags, self._texts, strict=True)
            if name == tag and attributes.items() <= has.items()
        ]

    @property
    def scripts(self) -> list[str]:
        """The scripts that a browser runs."""
        return [
            "".join(texts)
            for (name, has), texts in zip(self.tags, self._texts, strict=True)
            if name == "script" and "type" not in has
        ]

    @property
    def data(self) -> dict[str, Any]:
        """The report that is in it, each list whole."""
        (text,) = self.inside("script", id="data")
        found: dict[str, Any] = json.loads(text)
        return {**found, **{name: self._whole(name, found[name]) for name in LISTS}}

    def _whole(self, name: str, counts: list[int]) -> list[Any]:
        values: list[Any] = []
        for place, count in enumerate(counts):
            (packed,) = self.inside("script", id=f"{name}-{place}")
            part = json.loads(zlib.decompress(base64.b64decode(packed), wbits=-15))
            assert count == len(part)
            values += part
        return values


def read(file: Path) -> Read:
    """A page that was written."""
    return Read(file.read_text(encoding="utf-8"))


def edited(file: Path, to: Path, **changes: Callable[[list[Any]], list[Any]]) -> Path:
    """Write a page anew as somebody would who knows how it is made, digests and all, with some of its lists
    changed.
    """
    text = file.read_text(encoding="utf-8")
    start = text.index('id="data">') + len('id="data">')
    data = json.loads(text[start : text.index("</script>", start)])
    whole = Read(text).data
    for name, change in changes.items():
        packed = PackedValues(change(whole[name]))
        data[name] = list(packed.counts)
        parts = {
            f"{name}-{place}": base64.b64encode(part).decode() for place, part in enumerate(packed.parts)
        }
        data["sums"] = {
            part: known for part, known in data["sums"].items() if not part.startswith(f"{name}-")
        } | {part: _sum(text_of) for part, text_of in parts.items()}
        made = "".join(
            f'<script type="application/octet-stream" id="{part}">{text_of}</script>\n'
            for part, text_of in parts.items()
        )
        text = re.sub(
            rf'(<script type="application/octet-stream" id="{name}-\d+">[^<]*</script>\n)+', made, text
        )
    before, _, after = text.partition('id="data">')
    told = json.dumps(data).replace("<", "\\u003c")
    after = re.sub('id="sum">[0-9a-f]+<', f'id="sum">{_sum(told)}<', after[after.index("</script>") :])
    to.write_text(f'{before}id="data">{told}{after}', encoding="utf-8")
    return to


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
