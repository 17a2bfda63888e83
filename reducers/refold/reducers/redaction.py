"""What must not be shown to people is taken out of arguments: in explanations, exports and log lines.

The log keeps what the model saw; what must not get into a log at all is the affair of `refold.reducers.secrets`.
"""

import json
from typing import cast

import msgspec

from refold.reducers.text import clean

SECRET = frozenset({"api_key", "authorization", "token", "password", "file_text", "content"})
REDACTED = "[REDACTED]"


def _as_written(number: str) -> msgspec.Raw:
    return msgspec.Raw(number.encode())


_DECODER = json.JSONDecoder(parse_int=_as_written, parse_float=_as_written, parse_constant=_as_written)


def redacted(arguments: str) -> str:
    """Arguments as compact JSON, the value of every secret key (any case, any depth) as `[REDACTED]`.

    A text inside that is itself a JSON object or list is treated alike. Of what is no JSON nobody knows what it
    holds: nothing of it is shown. Numbers stay as they were written.
    """
    try:
        return msgspec.json.encode(_hidden(_DECODER.decode(arguments or "{}"))).decode()
    except (ValueError, RecursionError):
        return REDACTED


def _hidden(value: object) -> object:
    if isinstance(value, dict):
        return {clean(key): _of(key, inner) for key, inner in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [_hidden(inner) for inner in cast("list[object]", value)]
    if isinstance(value, str):
        return _text(value)
    return value


def _text(value: str) -> str:
    hidden = redacted(value) if value.lstrip()[:1] in ("{", "[") else REDACTED
    return clean(value) if hidden == REDACTED else hidden


def _of(key: str, value: object) -> object:
    return REDACTED if key.casefold() in SECRET else _hidden(value)
