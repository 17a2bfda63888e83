"""Our presets answer as the loops that they are named after."""

from pathlib import Path

import pytest

from conformance.drivers import DRIVERS
from conformance.suite import judge, read, shown

CASES = sorted((Path(__file__).parent / "cases").glob("*.jsonl"))


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in CASES])
def test_topic(path: Path) -> None:
    """Every case of the topic has the recorded answer, or a tag that says why ours is another one on
    purpose.
    """
    report = judge(read(path), DRIVERS)
    if report.failures or not report.passed:
        pytest.fail(f"{report}\n{shown(report)}", pytrace=False)


def test_every_driver_has_cases() -> None:
    """No driver is without cases that it judges."""
    assert set(DRIVERS) == {path.stem for path in CASES}
