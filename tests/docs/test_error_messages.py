"""The list of error messages is complete: a reviewer reads one page instead of the sources."""

from support.error_messages import PAGE, page


def test_the_list_is_up_to_date() -> None:
    """tests/messages.md has every message as the sources have it; write it with the script named on the page."""
    assert page() == PAGE.read_text(encoding="utf-8")
