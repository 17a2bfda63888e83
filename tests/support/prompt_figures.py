"""Where a source recorded what its model was given: how often our view is the same, asked of the finished
logs.

`python tests/support/prompt_figures.py` prints the table of docs/reference/transcripts.md; with the word
`golden` the digests of the derived logs, as they stand in tests/transcripts/golden.tsv. Neither is ever
written by itself.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from refold.importers.derivation.derivation import Derivation, Fit
from refold.importers.derivation.gap import conversations
from refold.importers.derivation.log import TranscriptOrigin
from refold.importers.derivation.units import Key, units_of
from refold.importers.items import Answered, Item, Prompted, RequestFailed, RunBegan
from refold.importers.registry import importer
from refold.importers.source import Source
from refold.reducers.events import ContextObserved, Event, ModelRequested
from refold.reducers.evolution import evolve
from refold.reducers.messages import Message
from refold.reducers.state import NEW
from refold.reducers.views import remembered, view
from support.transcripts import FILES, imported, path_of, salts

HEAD = ("format", "recorded prompts", "first of a run", "equal", "equal once observed", "not equal")


@cache
def measured(file: str) -> Fit:
    """The figures of a file, of its logs: each recorded prompt against the view of the request that it is
    of.
    """
    reader = importer(imported(file).format)
    found = Fit()
    with path_of(file).open("rb") as opened:
        for items in _runs(conversations(reader.items(Source.opened(file, opened)))):
            deriving = Derivation("r", TranscriptOrigin(reader.name, file, ""), salts)
            found = found.plus(_of_run(deriving, items))
    return found


def by_format() -> dict[str, Fit]:
    """The figures of each format that records prompts."""
    found: dict[str, Fit] = {}
    for file in FILES:
        found[imported(file).format] = found.get(imported(file).format, Fit()).plus(measured(file))
    return {name: fit for name, fit in sorted(found.items()) if fit != Fit()}


def table() -> str:
    """The figures as a table in Markdown."""
    fits = by_format()
    total = Fit()
    for fit in fits.values():
        total = total.plus(fit)
    rows = [HEAD, ("---", *["--:"] * (len(HEAD) - 1))]
    rows += [_row(f"`{name}`", fit) for name, fit in fits.items()]
    return "\n".join(f"| {' | '.join(row)} |" for row in [*rows, _row("all", total)])


def golden() -> str:
    """The digest of the derived logs of each file, a line each."""
    return "".join(f"{file}\t{imported(file).digest}\n" for file in FILES)


def _row(name: str, fit: Fit) -> tuple[str, ...]:
    numbers = (fit.first, fit.equal, fit.changed, fit.unequal)
    return (name, *(str(number) for number in (sum(numbers), *numbers)))


def _runs(items: Iterator[Item]) -> Iterator[list[Item]]:
    run: list[Item] = []
    for item in items:
        if isinstance(item, RunBegan):
            if run:
                yield run
            run = []
        if run or isinstance(item, RunBegan):
            run.append(item)
    if run:
        yield run


def _of_run(deriving: Derivation, items: Sequence[Item]) -> Fit:
    log: list[Event] = []
    asked: dict[int, Sequence[Message]] = {}
    prompt: Prompted | None = None
    for item in items:
        log += [each.event for each in deriving.take(item)]
        if isinstance(item, Prompted):
            prompt = item
        elif isinstance(item, Answered | RequestFailed):
            if prompt is not None and prompt.why == "prompt":
                asked[_last_request(log)] = prompt.messages
            prompt = None
    return _compared(log, asked)


def _last_request(log: Sequence[Event]) -> int:
    return max(seq for seq, event in enumerate(log, start=1) if isinstance(event, ModelRequested))


def _compared(log: Sequence[Event], asked: Mapping[int, Sequence[Message]]) -> Fit:
    """Folds the log, and holds the view at each request against the prompt that was recorded for it."""
    state, contents, found, changed = NEW, dict[int, Event](), Fit(), False
    for seq, event in enumerate(log, start=1):
        state = evolve(state, event)
        contents[seq] = event
        if len(contents) > 4 * state.window.count + 64:
            contents = remembered(state, contents)
        changed = changed or (isinstance(event, ContextObserved) and event.why == "prompt")
        if not isinstance(event, ModelRequested):
            continue
        if seq in asked:
            same = _keys(view(state, contents)) == _keys(asked[seq])
            found = found.plus(_verdict(same=same, changed=changed, first=state.spent.requests == 1))
        changed = False
    return found


def _verdict(*, same: bool, changed: bool, first: bool) -> Fit:
    if not same:
        return Fit(unequal=1)
    return Fit(first=1) if first else Fit(changed=1) if changed else Fit(equal=1)


def _keys(messages: Sequence[Message]) -> list[Key]:
    return [key for unit in units_of(messages) for key in unit.keys]


if __name__ == "__main__":
    print(golden() if sys.argv[1:] == ["golden"] else table(), end="\n" if sys.argv[1:] == [] else "")
