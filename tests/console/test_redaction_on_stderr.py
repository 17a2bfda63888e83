"""What the command line says of an error holds no secret."""

import pytest

from refold.console.main import run_guarded
from refold.reducers.errors import ExternalFailure
from refold.reducers.secrets import REDACTED
from support.known_keys import EXAMPLES

KEY, _ = EXAMPLES["ghp_"]
VALUE = "hunter2-hunter2"
SAID = f"Incorrect API key provided: {KEY} {VALUE}"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        pytest.param(ExternalFailure(SAID), [], id="an error of ours"),
        pytest.param(ExternalFailure(SAID), ["--debug"], id="with its traceback"),
        pytest.param(OSError(SAID), [], id="of the system"),
        pytest.param(ZeroDivisionError(SAID), [], id="a bug"),
    ],
)
def test_an_error_shows_no_secret(
    error: Exception, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A key that a provider's error quotes, and a value of the environment, are hidden, in tracebacks too."""
    monkeypatch.setenv("MY_SERVICE_TOKEN", VALUE)

    def work() -> int:
        raise error

    assert 0 != run_guarded(work, words)
    told = capsys.readouterr().err
    assert f"provided: {REDACTED} {REDACTED}" in told
    assert KEY not in told
    assert VALUE not in told
