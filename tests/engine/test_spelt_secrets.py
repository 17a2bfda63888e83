"""A secret value is found however a program wrote it down."""

import html
import json
import re
from urllib.parse import quote

import pytest

from refold.engine.secrets import redactor_of
from refold.reducers.secrets import REDACTED

VALUE = "Zx9/kQ+88\"<&>'\\abCDefGH1jk"


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(VALUE, id="as it is"),
        pytest.param(json.dumps({"k": VALUE}), id="json"),
        pytest.param(json.dumps(json.dumps({"k": VALUE})), id="json in json"),
        pytest.param(json.dumps({"k": VALUE}).replace("/", "\\/"), id="json with escaped slashes"),
        pytest.param(
            json.dumps({"k": VALUE}).replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"),
            id="json for pages",
        ),
        pytest.param(f"https://h/?k={quote(VALUE)}", id="url"),
        pytest.param(f"https://h/?k={quote(VALUE, safe='')}", id="url, all escaped"),
        pytest.param(
            re.sub("%..", lambda found: found[0].lower(), f"https://h/?k={quote(VALUE)}"),
            id="url, small letters",
        ),
        pytest.param(repr({"k": VALUE}), id="python"),
        pytest.param(f"<b>{html.escape(VALUE)}</b>", id="html"),
    ],
)
def test_a_secret_is_found_however_it_is_written(written: str) -> None:
    """No spelling of a secret value of the environment is left in a text."""
    shown = redactor_of({"BILLING_TOKEN": VALUE}).text(written)
    assert REDACTED in shown
    assert "abCDefGH1jk" not in shown
