"""The command line: the commands, and the modules that implement them.

A command is a function `NAME_command`. Its parameters are the arguments and options, its docstring is the
help. A module is imported only when one of its commands is typed: `refold --help` loads none.
"""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

import click

from refold.console.options import Output, command, parameter
from refold.console.screen import OutputFormat

SECTIONS: Mapping[str, Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "Run": {
            "run": ("run", "Start an agent on TASK and drive it to its end."),
            "resume": ("run", "Continue a run where its log ends."),
            "approvals": ("approvals", "List the calls that wait for approval."),
            "approve": ("approvals", "Approve waiting calls."),
            "reject": ("approvals", "Reject waiting calls."),
            "edit": ("approvals", "Approve a call with other arguments."),
            "cancel": ("doubts", "Stop a run at once, on any engine."),
            "doubts": ("doubts", "List calls with an unknown outcome."),
            "resolve": ("doubts", "Settle a call with an unknown outcome."),
            "worker": ("worker", "Drive runnable runs, several at a time."),
            "fork": ("worker", "Continue a prefix of a run with changes."),
        },
        "Look": {
            "ls": ("ls", "List runs, most recently recorded first."),
            "show": ("show", "Show a run, a turn or an event."),
            "view": ("view", "Show the prompt of a turn."),
            "state": ("view", "Show the state after an event."),
            "why": ("view", "Show what limits and guards evaluated."),
            "diff": ("comparisons", "Show where two runs diverge."),
            "graph": ("view", "Print the state machine of agents."),
        },
        "Ask": {
            "grep": ("queries", "Find events in runs."),
            "stats": ("queries", "Count events, calls, tokens and cost."),
            "whatif": ("whatif", "Test other policies on recorded runs."),
            "touched": ("changes", "List what a run changed: files, hosts, packages."),
            "rules": ("rules", "Count what permission rules decide about recorded calls."),
            "bisect": ("comparisons", "Find the first event where a condition holds."),
            "blame": ("comparisons", "Show which events changed a field of the state."),
            "shrink": ("shrink", "Reduce a log to what still shows a condition."),
        },
        "Prove": {
            "verify": ("verify", "Check that logs or bundles are intact."),
            "audit": ("audit", "Derive every decision again and compare."),
            "seal": ("proofs", "Sign a checkpoint of all runs."),
            "keygen": ("proofs", "Create a signing key."),
            "testcase": ("testcase", "Write a pytest file that replays runs."),
        },
        "Share": {
            "report": ("exports", "Write a run as one HTML page."),
            "export": ("exports", "Export runs for other programs."),
            "pack": ("proofs", "Write runs to a bundle that verifies offline."),
            "unpack": ("proofs", "Create a store from a bundle."),
        },
        "Manage": {
            "import": ("imports", "Import transcripts of other agents."),
            "erase": ("erase", "Erase an event's payload."),
            "doctor": ("doctor", "Check a store, and what its settings promise."),
            "model fetch": ("agents", "Fetch a model's weights, and print where they are."),
            "model list": ("agents", "List the embedded models."),
            "policy list": ("policy", "List the presets and their variants."),
            "policy show": ("policy", "Print a policy in full."),
            "policy check": ("policy", "Check a policy for errors."),
            "policy import": ("policy_import", "Convert permission rules of another agent to a policy."),
            "policy schema": ("policy", "Print the JSON Schema of policy files."),
        },
    }
)
"""Commands by purpose: the module of each, and its line in the help."""

COMMANDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {words: row for section in SECTIONS.values() for words, row in section.items()}
)

_GROUPS = {"model": "The embedded models' weights.", "policy": "Presets, and policies as files."}


MEANT: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("runs", "list", "dir"), "ls"),
        **dict.fromkeys(("cat", "log", "logs", "print"), "show"),
        **dict.fromkeys(("search", "find"), "grep"),
        **dict.fromkeys(("check", "validate"), "verify"),
        **dict.fromkeys(("start", "new"), "run"),
        **dict.fromkeys(("stop", "kill"), "cancel"),
        **dict.fromkeys(("continue", "go"), "resume"),
        **dict.fromkeys(("delete", "rm", "forget"), "erase"),
        **dict.fromkeys(("html", "page"), "report"),
        **dict.fromkeys(("policies", "presets"), "policy list"),
        **dict.fromkeys(("models",), "model list"),
    }
)
"""Commands of other programs, and what they are called here."""


def _keep_form(output: OutputFormat | None) -> None:
    click.get_current_context().obj = output


class _Commands(click.Group):
    """Commands with a common first word, each created when it is typed. The help lists them by purpose."""

    def __init__(self, name: str, beginning: str, **more: Any) -> None:
        super().__init__(name, no_args_is_help=True, **more)
        self._beginning = beginning

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Return the command of the first word.

        For an unknown one, the error suggests the command that was probably meant.
        """
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            from difflib import get_close_matches

            alike = [MEANT[args[0]]] if args[0] in MEANT and not self._beginning else None
            for meant in alike or get_close_matches(args[0], self.list_commands(ctx), 1):
                ctx.fail(f"No such command {args[0]!r}. Did you mean {meant!r}?")
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the parser's signature
        """Return all commands, in the order of the sections."""
        return [name for section in SECTIONS.values() for name in self._lines(section)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return the command of that name, or None."""
        words = f"{self._beginning}{cmd_name}"
        if words in _GROUPS:
            return _Commands(cmd_name, f"{words} ", help=_GROUPS[words])
        return command_of(words) if words in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write a list for each section, with aligned columns."""
        listed = {title: self._lines(section) for title, section in SECTIONS.items()}
        width = max(len(name) for lines in listed.values() for name in lines)
        for title, lines in listed.items():
            if lines:
                with formatter.section("Commands" if self._beginning else title):
                    formatter.write_dl([(f"{name:<{width}}", line) for name, line in lines.items()])

    def _lines(self, section: Mapping[str, tuple[str, str]]) -> dict[str, str]:
        rest = {
            words.removeprefix(self._beginning): line
            for words, (_, line) in section.items()
            if words.startswith(self._beginning)
        }
        return {(first := name.partition(" ")[0]): _GROUPS.get(first, line) for name, line in rest.items()}


def command_of(words: str) -> click.Command:
    """Return the command of these words, created from its function: see `COMMANDS`."""
    module = import_module(f"refold.console.{COMMANDS[words][0]}")
    return command(words.rpartition(" ")[2], getattr(module, f"{words.replace(' ', '_')}_command"))


def _print_version(context: click.Context, option: click.Parameter, wanted: bool) -> None:  # noqa: ARG001, FBT001 - the parser's signature
    if wanted:
        from importlib.metadata import version

        click.echo(f"refold {version('refold')}")
        context.exit()


app = _Commands(
    "refold",
    "",
    help="Run LLM agents on an append-only log, and replay, verify and audit what they did.",
    epilog="Exit codes: 0 agrees or COMPLETED, 1 differs or another end, 2 wrong use, 3 damaged log, "
    "4 external failure, 125 inconclusive, 130 Ctrl-C.",
    callback=_keep_form,
    context_settings={"help_option_names": ["-h", "--help"]},
    params=[
        parameter("output", Output, None),
        # Read by `main`, which prints errors.
        click.Option(["--debug"], is_flag=True, expose_value=False, help="Show where errors come from."),
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_print_version,
            help="Print the version.",
        ),
    ],
)
