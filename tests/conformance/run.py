"""Judge a folder of conformance cases: `python tests/conformance/run.py [FOLDER] [TOPIC ...]`.

A topic a line: passed, failed, skipped. Exits with 0 if none failed, 1 if any did, 2 for a wrong use.
"""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
CASES = TESTS / "conformance" / "cases"


def main(folder: Path, only: set[str]) -> int:
    """Judge the topics of `folder`, or those in `only`, and print what became of them."""
    from conformance.drivers import DRIVERS
    from conformance.suite import CasesError, Report, judge, shown, together, topics

    try:
        chosen = [topic for topic in topics(folder) if not only or topic.name in only]
    except CasesError as error:
        print(error, file=sys.stderr)
        return 2
    if not chosen:
        print(f"{folder}: none of the topics {', '.join(sorted(only))}", file=sys.stderr)
        return 2
    reports: list[Report] = []
    for topic in chosen:
        reports.append(judge(topic, DRIVERS))
        print(reports[-1], flush=True)
        if reports[-1].failures:
            print(shown(reports[-1]))
    print(together(reports))
    return 1 if any(report.failures for report in reports) else 0


if __name__ == "__main__":
    # The script's own folder comes first on the path; what it imports are packages of `tests`.
    sys.path[0] = str(TESTS)
    arguments = sys.argv[1:]
    raise SystemExit(main(Path(arguments[0]) if arguments else CASES, set(arguments[1:])))
