"""The exit code of several verdicts together: that of the worst."""

from collections.abc import Iterable

from refold.reducers.errors import CannotJudge, Damaged, WorldFailed

_ORDER = (0, CannotJudge.exit_code, 1, WorldFailed.exit_code, Damaged.exit_code)  # from good to worst


def worst(codes: Iterable[int]) -> int:
    """The worst of some verdicts: damaged before failed before different before not judged before fine."""
    return max(codes, key=_ORDER.index, default=0)
