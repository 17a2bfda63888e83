"""Fields that two kinds of values have under the same names."""

from typing import Any


def shared(source: object, *names: str) -> dict[str, Any]:
    """These fields of a value, for another that has them under the same names."""
    return {name: getattr(source, name) for name in names}
