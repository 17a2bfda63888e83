"""The list of error messages is complete: a reviewer reads one page instead of the sources."""

from support.error_messages import PAGE, page


def test_the_list_is_up_to_date() -> None:
    """`tests/messages.md` has every message of the sources; the script named there writes it."""
    assert page() == PAGE.read_text(encoding="utf-8")
