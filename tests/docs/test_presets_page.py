"""The page of presets prints what the presets are, and knows every variable that is read."""

import re
from pathlib import Path

import pytest

from refold.console.agents import PRUNE_LOG
from refold.engine.yaml_text import load
from refold.reducers import overlay
from refold.reducers.parser import parse
from refold.reducers.presets import PRESETS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "presets.md"


def printed() -> dict[str, str]:
    """The first policy in each preset's section, by its name."""
    sections = re.split(r"^###? `([\w-]+)`$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found: dict[str, str] = {}
    for name, body in zip(sections[1::2], sections[2::2], strict=True):
        block = re.search(r"^```yaml\n(.*?)^```$", body, re.MULTILINE | re.DOTALL)
        found[name] = block[1] if block else ""
    return found


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_what_the_page_prints(name: str) -> None:
    """The file that stands there means the preset, and says no more than it does itself."""
    data = load(printed()[name])
    assert "refold/v1" == data.pop("schema")
    assert data.get("preset") == PRESETS[name].get("preset")
    assert parse({"preset": name}) == parse(data)


def test_no_preset_is_described_that_is_not_there() -> None:
    """The page has the presets, each variant after its own, and no other."""
    assert set(PRESETS) == set(printed())


def test_every_variable_is_described() -> None:
    """The table of the environment has each variable that is read, and no other."""
    table = set(re.findall(r"^\| `(REFOLD_\w+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    source = Path(overlay.__file__).read_text(encoding="utf-8")
    read = set(re.findall(r'_Variable\(\s*"(REFOLD_\w+)"', source)) | {PRUNE_LOG, "REFOLD_LIMIT_"}
    assert read == table
