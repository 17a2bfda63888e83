"""Text to measure with: prose with quotes, newlines and a few letters beyond ASCII, as models and tools write
it.

JSON without escapes is decoded several times faster than JSON with them, so a workload of `xxxx` flatters.
"""

_PARAGRAPHS = (
    "I read the whole of `ledger.py` before touching it. The function that closes a month takes the entries as a "
    'list and sorts them by "posted", but the importer fills "booked" instead, so every entry of the new format '
    "sorts as if it had no date.\n\nThat explains why only March is wrong: it is the first month with both formats.",
    "Three things follow:\n\n  1. the importer has to name the field as the rest of the program does;\n"
    '  2. a missing date must be an error ("entry 118: no date"), not the first of January 1970;\n'
    "  3. the report for March has to be made again.\n\nI would rather do the second first, because it shows whether "
    "there are more entries like these.",
    'The error was:\n\n\tTraceback (most recent call last):\n\t  File "/srv/books/close.py", line 212, in close\n'
    "\t    total += entry.amount\n\tTypeError: unsupported operand type(s) for +=: 'Decimal' and 'NoneType'\n\n"
    "so an amount was missing too. In the file itself the column is there, but its header is written “Betrag” "
    "(the bank's German export), and the table of headers only knows “Amount”.",
    'She said: "If the numbers do not add up, nobody signs." That is fair. The difference is 1,204.50, which is '
    "exactly the sum of the four entries without a date; the check at the end of the month compares totals only, "
    "and so could not tell which entries were left out.\n\nA check by entry costs nothing here: there are about "
    "six hundred a month.",
    "Output of the search (14 matches, the first 5 shown):\n\nledger.py:41:    posted: date | None = None\n"
    'ledger.py:97:    entries.sort(key=lambda entry: entry.posted or EPOCH)\nimport_csv.py:18:FIELDS = {"Date": '
    '"booked", "Amount": "amount", "Text": "text"}\nimport_csv.py:63:        raise ValueError(f"line {number}: '
    '{problem}")\ntests/test_close.py:29:    assert close(march).total == Decimal("18220.75")',
)
_ALL = "\n\n".join(_PARAGRAPHS)
_REPEATED = "\n\n".join([_ALL] * 13)


def prose(chars: int, place: int) -> str:
    """So many characters of text, different for each place. At most 20,000."""
    start = place * 397 % len(_ALL)
    return f"[{place}] {_REPEATED[start : start + chars]}"
