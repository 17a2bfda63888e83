"""Arguments under a key that no importer knows are reported as unread, in every format; a call without
arguments is not.
"""

from collections.abc import Sequence
from functools import cache

import pytest

from refold.importers.items import UNKNOWN_PART
from refold.importers.registry import FORMATS
from refold.importers.source import Source, is_archive
from refold.reducers.events import Diagnosed, Event
from refold.replay.whatif.verdict import Verdict
from support.transcripts import FILES, WRITTEN, imported, path_of
from support.unknown_arguments import KEY, asked, changed, emptied, judged, logs, marked, places
from support.unknown_keys import Json, values_of

MOST = 300_000
"""Bytes of a file that is imported again and again."""
NO_KEY = {"openai_messages", "who_when"}
"""Formats of which there is no transcript here, and which have no calls."""


def is_text(file: str) -> bool:
    head = path_of(file).read_bytes()[:16]
    return imported(file).bytes < MOST and not is_archive(head[:4]) and not file.endswith(".db")


SHORT = [file for file in (*FILES, *WRITTEN) if is_text(file)]


@cache
def known(file: str) -> tuple[list[Json], list[dict[str, Json]]]:
    """The values of a file, and the arguments of its calls."""
    with path_of(file).open("rb") as opened:
        values = values_of(Source.opened(file, opened))
    return values, asked(file, values, imported(file).format)


def unread(log: Sequence[Event]) -> int:
    """The number of diagnoses that a part of a message could not be read."""
    return sum(isinstance(event, Diagnosed) and event.code == UNKNOWN_PART for event in log)


@pytest.mark.parametrize("file", SHORT)
def test_arguments_under_an_unknown_key_are_never_taken_for_none(file: str) -> None:
    """Each call whose arguments are lost has a diagnosis, and no rule that stopped a run by them agrees
    without them.
    """
    (values, arguments), format_ = known(file), imported(file).format
    found = places(values, arguments)
    for chosen in (found, *([place] for place in found if len(found) > 1)):
        before = logs(file, changed(values, arguments, chosen), format_)
        after = logs(file, changed(values, arguments, chosen, key=KEY), format_)
        for one, other in zip(before, after, strict=True):
            assert marked(one) - marked(other) <= unread(other) - unread(one), chosen
            if judged(one).verdict is Verdict.STOPS:
                assert judged(other).verdict is not Verdict.AGREE, chosen


@pytest.mark.parametrize("file", SHORT)
def test_a_call_without_arguments_is_no_loss(file: str) -> None:
    """Whatever else stands beside arguments in this format, a call that has none of them is read."""
    (values, arguments), format_ = known(file), imported(file).format
    copy = emptied(values, arguments)
    before, after = logs(file, values, format_), logs(file, copy, format_)
    assert [unread(log) for log in before] == [unread(log) for log in after]


def test_each_format_is_among_them() -> None:
    """Of each format that has arguments under a key some are found, and get the mark."""
    found = set[str]()
    for file in SHORT:
        (values, arguments), format_ = known(file), imported(file).format
        copy = changed(values, arguments, places(values, arguments))
        if any(map(marked, logs(file, copy, format_))):
            found.add(format_)
    assert {*FORMATS} - NO_KEY == found
