"""Labels as they are typed: `name=value`."""

from collections.abc import Sequence

from refold.reducers.errors import WrongUse


def labels_of(pairs: Sequence[str]) -> dict[str, str]:
    """`name=value` texts as labels. Raises `WrongUse`."""
    labels: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name or name in labels:
            raise WrongUse(f"--label {pair!r}: expected name=value, each name once")
        labels[name] = value
    return labels
