"""A log says its format in its first event; one that does not, or says a later one, is not read."""

import json

import pytest

from refold.reducers import codec
from refold.reducers.errors import Inconclusive, NewerLog, UnreleasedLog
from refold.reducers.events import FORMAT
from support import golden


@pytest.mark.parametrize(
    ("said", "error"),
    [
        pytest.param({}, UnreleasedLog, id="no format: from before any release"),
        pytest.param({"format": FORMAT + 1}, NewerLog, id="a later format"),
    ],
)
def test_a_log_of_another_format(said: dict[str, int], error: type[Inconclusive]) -> None:
    """It is refused, whatever else its first event says, and that cannot be judged."""
    first = golden.recorded(golden.names()[0])[0]
    body = json.loads(first.body)
    del body["format"]
    with pytest.raises(error) as refused:
        codec.decode(first.kind, json.dumps({**body, **said}).encode(), first.content, run="r1", seq=1)
    assert 125 == refused.value.exit_code
    assert "r1" in str(refused.value)
