"""A model of a vendor where the vendors' packages are not installed."""

import sys

import pytest

from refold.engine import resolve_model
from refold.reducers.errors import WrongUse


@pytest.mark.parametrize(
    ("model", "package"), [("openai:gpt-5-mini", "openai"), ("anthropic:claude-x", "anthropic")]
)
def test_the_extra_is_told_before_the_key(model: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has neither is not sent for a key first that nothing here could use."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(WrongUse, match=r"refold\[models\]"):
        resolve_model(model)
