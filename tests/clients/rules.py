"""The same permission rule as a client's own setting, and as a policy over the client's transcript.

Each client runs the script twice. With its rule, the files in its work folder show which commands it ran.
Without it, the transcript has all calls, and refold judges them by the client's own rules file. refold must
refuse what the client refused, and nothing else. It may be unsure, as about a command behind a wrapper.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import msgspec

from clients.adapters import RULES, Client
from clients.execution import play
from clients.imported import read_import
from clients.installation import FOLDER, Installed, NotHere, install
from clients.scripts import Answer, Script, Shell, Usage
from refold.console.rule_lists import load_rules
from refold.replay.permissions.calls import CallJudge, CallResult, JudgedCall
from refold.replay.reader import run_follower
from refold.store import SqliteStore

COMMANDS = (
    "touch FILE",
    "mkdir FILE",
    "cd . && touch FILE",
    "ls; touch FILE",
    "ls\ntouch FILE",
    "touch FILE || ls",
    "ls | touch FILE",
    "touch FILE & wait",
    "t'ou'ch FILE",
    "touch FILE > /dev/null",
    "touch FILE 2>&1",
    "touch FILE < a.txt",
    "touch FILE $HOME",
    "touch FILE a.*",
    "touch FILE $(echo a.txt)",
    "A=1 touch FILE",
    "(touch FILE)",
    "{ touch FILE; }",
    "! touch FILE",
    "if true; then touch FILE; fi",
    "for x in 1; do touch FILE; done",
    "f() { touch FILE; }; f",
    "echo $(touch FILE)",
    "cat <(touch FILE)",
    "cat <<E\n$(touch FILE)\nE",
    "ls | xargs touch FILE",
    "bash -c 'touch FILE'",
    "env touch FILE",
    "env A=1 touch FILE",
    "command touch FILE",
    "exec touch FILE",
    "timeout 5 touch FILE",
    "nohup touch FILE",
    "nice touch FILE",
    "time touch FILE",
    "find a.txt -exec touch FILE ';'",
    "/usr/bin/touch FILE",
    "t=touch; $t FILE",
    "echo touch > FILE",
    "cp a.txt FILE",
)
"""Each makes a file of its own, so that the work folder shows whether it ran."""
UNKNOWN = 125


class CheckedCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command: whether the client refused it, and recorded that, and what refold decides on its call."""

    command: str
    refused: bool
    recorded: bool
    decision: str

    @property
    def verdict(self) -> str:
        """`equal`, `unknown`, or a fault: `MISSED` by refold, or `INVENTED`: only refold refuses it."""
        if self.decision == "unknown":
            return "unknown"
        decides = self.decision == "refuse"
        return "equal" if decides is self.refused else "INVENTED" if decides else "MISSED"


def compare_rules(clients: Sequence[Client]) -> int:
    """Compare clients, print a table for each, and return the exit code."""
    codes = [0]
    for client in clients:
        try:
            installed = install(client)
        except NotHere as error:
            print(f"{client.name}: not here: {error}")
            codes.append(UNKNOWN)
            continue
        checked = check_client(client, installed)
        print(f"{client.name} {installed.version}")
        for each in checked:
            ran = "refused" if each.refused else "ran"
            recorded = "recorded" if each.recorded else "not recorded" if each.refused else ""
            print(f"  {each.verdict:8} {ran:8} {recorded:13} {each.decision:8} {each.command!r}")
        is_fault = any(each.verdict.isupper() or each.recorded != each.refused for each in checked)
        is_empty = not any(each.refused for each in checked)  # the client did not read its rules
        codes.append(1 if is_fault else UNKNOWN if is_empty else 0)
        sys.stdout.flush()
    return 1 if 1 in codes else max(codes)


def check_client(client: Client, installed: Installed) -> list[CheckedCommand]:
    """Run a client with and without its rules, and compare."""
    commands = [command.replace("FILE", f"made-{place}") for place, command in enumerate(COMMANDS)]
    turns = [Answer("", (Shell(command),), Usage(100, 0, 5)) for command in commands]
    script = Script(turns=(*turns, Answer("Done.", usage=Usage(100, 0, 5))))
    with_rules, without = (
        FOLDER / "runs" / f"{client.name}-{installed.version}-{name}" for name in ("rules", "no-rules")
    )
    play(client, installed, "rules", with_rules, script=script, rules=True)
    play(client, installed, "no-rules", without, script=script)
    rules = with_rules / "home" / RULES[client.name]
    recorded = _judge(with_rules, client.name, rules)
    judged = _judge(without, client.name, rules)
    if not len(commands) == len(judged) == len(recorded):
        numbers = f"{len(judged)} and {len(recorded)} calls for {len(commands)} commands"
        raise ValueError(f"{client.name}: the transcripts have {numbers}; see {without}")
    return [
        CheckedCommand(
            command=command,
            refused=not (with_rules / "work" / f"made-{place}").exists(),
            recorded=recorded[place].result is CallResult.RULE,
            decision=judged[place].judged[0].outcome,
        )
        for place, command in enumerate(commands)
    ]


def _judge(run: Path, dialect: str, rules: Path) -> list[JudgedCall]:
    """Import the transcripts of a run, and judge their calls."""
    store = run / "store.db"
    runs = read_import(run / "transcripts", store)
    listed = (load_rules(Path(f"{dialect}:{rules}")),)

    async def judge() -> list[JudgedCall]:
        async with await SqliteStore.open(store) as opened:
            found = [await run_follower(CallJudge(lambda _: listed), opened, each.id) for each in runs]
        return [call for each in found for call in each.calls]

    return anyio.run(judge)
