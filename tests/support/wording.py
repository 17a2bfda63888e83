"""What commands say where a test looks for it: each sentence once, so that to say it otherwise is one change
here.
"""

NAME_RUNS = "expected one RUN or more, or --all"


UNCOUNTED_ANSWERS = "responses without a full count of tokens"
UNSENT = "none was recorded with the response"


def not_in_doubt(call: str, *others: str) -> str:
    """Of a call about which nothing is to be found out; `others` are those of the run that are in doubt."""
    return f"call {call!r} is not in doubt (calls in doubt: {', '.join(others) or 'none'})"
