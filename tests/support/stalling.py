"""A guard against calls that lead nowhere, with some of its parts on, and the calls that it is shown."""

from typing import Any

from refold.reducers.guards import Place, Remind
from refold.reducers.guards.progress import Stall
from refold.reducers.vocabulary import ToolError
from support.watching import Watching

OFF: dict[str, Any] = dict.fromkeys(
    ("exact_failure", "same_tool", "no_progress", "identical", "cycle", "stub")
)
NAMES = {"l": "look", "a": "act", "s": "set", "p": "job_poll", "g": "x_get_result", "q": "ask"}


def play(watching: Watching, calls: str) -> Watching:
    """One batch a word, one call every two signs: the tool, then how it ends.

    `1`, `2`, …: well, with that result, and arguments of the same number; `f`, `g`, …: failed, arguments of
    that letter; `r`: refused. `say` and `fork` are what they are, `-` is an answer without calls.
    """
    for word in calls.split():
        if word in ("say", "fork"):
            {"say": watching.say, "fork": watching.fork}[word]()
            continue
        made = list(zip(word.strip("-")[::2], word.strip("-")[1::2], strict=True))
        ids = watching.answer("", *[(NAMES[name], f'{{"q":"{end}"}}') for name, end in made])
        for call, (_, end) in zip(ids, made, strict=True):
            if end == "r":
                watching.refuse(call)
            else:
                failed = None if end.isdecimal() else ToolError.RAISED
                watching.result(call, f"result {end}", failed)
    return watching


def stalling(calls: str, **config: Any) -> Watching:
    """A guard with only these parts on."""
    return play(Watching(Stall(**{**OFF, **config})), calls)


def warned(watching: Watching) -> list[tuple[str, str, int]]:
    said = watching.says(Place.BEFORE_REQUEST)
    assert all(isinstance(each, Remind) and each.values == each.measured for each in said)
    return [
        (each.text.removeprefix("stall:"), str(each.values["tool"]), int(each.values["count"]))
        for each in said
        if isinstance(each, Remind)
    ]
