"""Record the golden logs anew after a change of a shape: their facts are kept, what follows from them is
decided again.

    python tests/support/rerecord.py            show how each log would differ
    python tests/support/rerecord.py --write    write them

A fact whose shape has changed is changed by a function in `CHANGED`, by its kind; no function stays once the
logs are written. After the first release nothing is recorded anew: then a change of a shape has an upcaster,
and these logs stay.
"""

import difflib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from msgspec.structs import replace

from refold.reducers import codec
from refold.reducers.events import DECISIONS, Event, Fact, LateResult, kind_of
from refold.reducers.evolution import evolve
from refold.reducers.folds import advance
from refold.reducers.pending import bare
from refold.reducers.sizes import sized
from refold.reducers.state import NEW
from support import golden

Line = dict[str, Any]


CHANGED: dict[str, Callable[[Line], Line]] = {}
"""By kind: a line of the old shape to one of the new, `body` and `content` as JSON values."""


def _same(line: Line) -> Line:
    return line


_DECIDED = frozenset(map(kind_of, DECISIONS))


def _facts(name: str) -> Iterator[Event]:
    for text in (golden.FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        line["body"] = json.loads(line["body"])
        line["content"] = None if line["content"] is None else json.loads(line["content"])
        line = CHANGED.get(line["kind"], _same)(line)
        if line["kind"] not in _DECIDED:
            body = json.dumps(line["body"]).encode()
            content = None if line["content"] is None else json.dumps(line["content"]).encode()
            yield codec.decode(line["kind"], body, content, run=name, seq=line["seq"])


def recorded(name: str) -> str:
    """The log of these facts as the text of its file."""
    state, log = NEW, list[Event]()
    for event in _facts(name):
        if isinstance(event, Fact):
            fact = (
                event if getattr(event, "content", None) is None else sized(event, state.policy, golden.SALT)
            )
            state, events = advance(state, fact)
        else:
            if isinstance(event, LateResult) and event.content is not None:
                fact = sized(replace(event.fact, content=event.content), state.policy, golden.SALT)
                event = replace(event, fact=bare(fact))  # noqa: PLW2901 - it holds a fact
            state, events = evolve(state, event), (event,)
        log += events
    return golden.written(log)


def main() -> None:
    """See the module."""
    for name in golden.names():
        path = golden.FOLDER / f"{name}.jsonl"
        before, after = path.read_text(encoding="utf-8"), recorded(name)
        told = difflib.unified_diff(before.splitlines(), after.splitlines(), name, name, "", "", 0, "")
        print("\n".join(told))
        if "--write" in sys.argv[1:]:
            path.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
