"""The recorded logs as records of a store: what the fuzz tests begin with."""

import json
import re
from collections.abc import Sequence
from functools import cache

from msgspec.structs import replace

from refold.store.protocol import Record
from support import golden

_SALT = bytes(range(16))
_DIGEST = re.compile(rb',?"digest":"[0-9a-f]{64}"')
_LONGEST = 60  # events: more of a log repeats itself


@cache
def recording(name: str, *, bare: bool = False) -> Sequence[Record]:
    """The first events of a recorded log. `bare`: no body vouches for its content, so that any content
    fits.
    """
    log = list[Record]()
    for one in golden.recorded(name)[:_LONGEST]:
        at = json.loads(one.body).get("at") or log[-1].at  # a decision is at its fact's instant
        log.append(
            Record(
                at=at, kind=one.kind, body=one.body, content=one.content, salt=_SALT if one.content else b""
            )
        )
    if not bare:
        return tuple(log)
    said = {"message_trimmed"}  # of which the digest is no content's
    return tuple(one if one.kind in said else replace(one, body=_DIGEST.sub(b"", one.body)) for one in log)


def run_of(log: Sequence[Record]) -> str:
    """The id that a log has in its first event."""
    return str(json.loads(log[0].body)["run"])


def named(log: Sequence[Record], run: str) -> list[Record]:
    """The log with another id."""
    first = replace(log[0], body=log[0].body.replace(f'"{run_of(log)}"'.encode(), f'"{run}"'.encode(), 1))
    return [first, *log[1:]]
