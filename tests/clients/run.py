"""Run real clients against a scripted model server, and compare refold's imports with the requests.

    python tests/clients/run.py              all clients, all scripts
    python tests/clients/run.py codex pi --script basic
    python tests/clients/run.py --newest     the newest version of each client, to find changed formats
    python tests/clients/run.py --again      compare the last runs again, without running anything

    python tests/clients/run.py --rules      compare permission rules of the clients with refold's verdicts
    python tests/clients/run.py --record     store the results for docs/reference/transcripts.md

Exit code 0: all equal, except for known limits. 1: other differences. 125: a client could not run here.
"""

import argparse
import signal
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))  # a script's own folder is on the path, not the one above it

from clients.adapters import CLIENTS, RULES, Client  # noqa: E402
from clients.comparison import compare  # noqa: E402
from clients.execution import play  # noqa: E402
from clients.imported import read_import  # noqa: E402
from clients.installation import FOLDER, Installed, NotHere, install  # noqa: E402
from clients.limits import judge, read_limits  # noqa: E402
from clients.report import (  # noqa: E402
    FILE,
    ClientResult,
    Results,
    ScriptResult,
    record,
    terminal_table,
    write_results,
)
from clients.rules import compare_rules  # noqa: E402
from clients.scripts import SCRIPTS  # noqa: E402
from clients.truth import read_truth  # noqa: E402

UNKNOWN = 125


def main() -> int:
    """Run the chosen clients and scripts, and print the table."""
    # A background job of a shell ignores SIGINT, and its children would, too. A handler is not inherited.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = _parser()
    asked = parser.parse_args()
    if asked.newest and (asked.again or asked.record):
        parser.error(
            "--newest cannot be combined with --again or --record: these use the versions of the table"
        )
    chosen = [client for client in CLIENTS.values() if not asked.clients or client.name in asked.clients]
    if asked.rules:
        return compare_rules([client for client in chosen if client.name in RULES])
    results: Results = {}
    for client in chosen:
        results[client.name] = _client(client, asked.script or list(SCRIPTS), asked)
    write_results(results, FOLDER / "results.json")
    if asked.record:
        record(results, read_limits())
    print(terminal_table(results))
    if any(result.not_here for result in results.values()):
        return UNKNOWN if all(result.fine or result.not_here for result in results.values()) else 1
    return 0 if all(result.fine for result in results.values()) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "clients", nargs="*", choices=[[], *CLIENTS], metavar="CLIENT", help=", ".join(CLIENTS)
    )
    parser.add_argument(
        "--script", action="append", choices=[*SCRIPTS], help="only this script; can be repeated"
    )
    parser.add_argument(
        "--newest", action="store_true", help="use the newest versions, not those of the table"
    )
    parser.add_argument(
        "--again", action="store_true", help="compare the last runs, without running anything"
    )
    parser.add_argument(
        "--rules", action="store_true", help="compare the clients' permission rules with refold's verdicts"
    )
    parser.add_argument("--details", action="store_true", help="print both sides of each difference")
    parser.add_argument(
        "--record",
        action="store_true",
        help=f"store the results in {FILE.relative_to(ROOT)} and update the page",
    )
    return parser


def _client(client: Client, names: list[str], asked: argparse.Namespace) -> ClientResult:
    begun = time.monotonic()
    try:
        installed = Installed(client.version, "") if asked.again else install(client, newest=asked.newest)
    except NotHere as error:
        return ClientResult(
            package=client.package, version=client.version, format=client.format, not_here=str(error)
        )
    _tell(f"{client.name} {installed.version} installed", begun)
    played: dict[str, ScriptResult] = {}
    for name in names:
        if name not in client.skips:
            begun = time.monotonic()
            played[name] = _script(client, installed, name, asked)
            _tell(f"{client.name} {name}", begun)
    return ClientResult(
        package=client.package,
        version=installed.version,
        format=client.format,
        scripts=played,
        skipped=dict(client.skips),
    )


def _script(client: Client, installed: Installed, name: str, asked: argparse.Namespace) -> ScriptResult:
    folder = FOLDER / "runs" / f"{client.name}-{installed.version}-{name}"
    try:
        if not asked.again:
            play(client, installed, name, folder)
        truth = read_truth(folder)
        if truth.outcome.timed_out:
            return ScriptResult(problem=f"the client did not end in time; see {folder}")
        if not truth.answers():
            return ScriptResult(
                problem=f"the client got no answer, exit codes {truth.outcome.codes}; see {folder}"
            )
        found = compare(truth, read_import(folder / "transcripts", folder / "store.db"))
    except (OSError, ValueError) as error:
        return ScriptResult(problem=f"{type(error).__name__}: {error}")
    if asked.details:
        for property_, findings in found.items():
            for each in findings:
                if each.what:
                    print(f"{client.name} {name} {property_}: {each.place} {each.what}\n    {each.detail}")
    return ScriptResult(cells=judge(client.name, name, found, read_limits()))


def _tell(what: str, begun: float) -> None:
    print(f"{what} ({time.monotonic() - begun:.1f} s)", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
