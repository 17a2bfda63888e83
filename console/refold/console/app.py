"""The command line: what can be typed, and where it is done.

A command is a function, `NAME_command`, of a module that has its name, or the name of what several commands are about: its
parameters are the arguments and options, its docstring is the help. The module is imported once its command is typed, and what
commands share with it: `refold --help` loads nothing else.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Annotated, Any, get_type_hints

import msgspec
import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from refold.console.forms import Form
from refold.console.options import Output, StorePath

SECTIONS: Mapping[str, Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "Run": {
            "run": ("run", "Start an agent on TASK and stay with it to its end."),
            "resume": ("run", "Go on with a run where its log ends."),
            "approvals": ("approvals", "List the calls that wait for approval."),
            "approve": ("approvals", "Let calls that wait for approval run."),
            "reject": ("approvals", "Refuse calls that wait for approval."),
            "edit": ("approvals", "Let a call run with other arguments."),
            "cancel": ("cancel", "Stop a run at once, whatever drives it."),
            "doubts": ("doubts", "List the calls whose end is not known."),
            "resolve": ("doubts", "Say how a call ended whose end is not known."),
            "worker": ("worker", "Drive the runs that want an engine, many at once."),
            "fork": ("fork", "Go on live from a prefix of a run, differently."),
        },
        "Look": {
            "ls": ("ls", "List the runs of the store, the newest first."),
            "show": ("show", "Show what happened in a run, in a turn, at an event."),
            "view": ("view", "Show what the model saw at a turn."),
            "state": ("view", "Show the state after an event."),
            "why": ("why", "Show what limits and guards saw and said."),
            "diff": ("diff", "Show where two runs part."),
            "graph": ("view", "Print the machine of an agent's states."),
        },
        "Ask": {
            "grep": ("grep", "Find events in runs."),
            "stats": ("stats", "Count what was done in runs."),
            "whatif": ("whatif", "Ask what other policies would have decided."),
            "bisect": ("bisect", "Find the first event after which something is true."),
            "blame": ("bisect", "Show which events changed a field of the state."),
            "shrink": ("shrink", "Make the smallest log that still shows something."),
        },
        "Prove": {
            "verify": ("verify", "Check that logs, or bundles, are whole and unedited."),
            "audit": ("audit", "Derive every decision again and compare."),
            "seal": ("seal", "Sign the heads of all runs."),
            "keygen": ("seal", "Make a key to sign with."),
            "testcase": ("testcase", "Write a pytest file that replays a run."),
        },
        "Hand on": {
            "report": ("reports", "Write a run as one HTML page."),
            "export": ("export", "Write runs in the shapes that other programs read."),
            "pack": ("pack", "Put runs into a file that verifies offline."),
            "unpack": ("pack", "Make a store of a bundle."),
        },
        "Manage": {
            "import": ("imports", "Import transcripts of other agents."),
            "erase": ("erase", "Erase what an event said."),
            "model fetch": ("model", "Fetch a model's weights, and print where they are."),
            "model list": ("model", "List the embedded models."),
            "policy list": ("policy", "List the presets and their variants."),
            "policy show": ("policy", "Print a policy in full."),
            "policy check": ("policy", "Check that a policy can work."),
            "policy schema": ("policy", "Print the JSON Schema of policy files."),
        },
    }
)
"""What can be typed, by what it is for: each command with its module and its line in the list of commands."""

COMMANDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {words: row for section in SECTIONS.values() for words, row in section.items()}
)

_EMPTY = inspect.Parameter.empty
_GIVEN = ("screen", "place")
_GROUPS = {"model": "The embedded models' weights.", "policy": "Presets, and policies as files."}


class _Sections(TyperGroup):
    """`refold`, whose help lists the commands by what they are for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All of them, in the order of the sections."""
        there = super().list_commands(ctx)
        return [name for name in _names(COMMANDS) if name in there]

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - the parser's signature
        """A list for each section, their columns alike."""
        width = max(map(len, self.commands)) + 2
        for title, section in SECTIONS.items():
            with formatter.section(title):
                listed = [(name, self.commands[name]) for name in _names(section) if name in self.commands]
                formatter.write_dl(
                    [(f"{name:<{width - 2}}", each.get_short_help_str(limit=80)) for name, each in listed]
                )


def _names(section: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(words.partition(" ")[0] for words in section))


app = typer.Typer(
    name="refold",
    cls=_Sections,
    help="Run LLM agents on an append-only log, and replay, verify and audit what they did.",
    epilog="Exit codes: 0 agrees or COMPLETED, 1 differs or another end, 2 wrong use, 3 damaged log, "
    "4 the world failed, 125 cannot be judged, 130 Ctrl-C.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def command_of(words: str) -> Any:
    """The command of these words, as typer makes it of the function that does it: see `COMMANDS`."""
    module = import_module(f"refold.console.{COMMANDS[words][0]}")
    made = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    made.command(words.rpartition(" ")[2])(_typed(getattr(module, f"{words.replace(' ', '_')}_command")))
    command = get_command(made)
    for each in command.params:
        if each.param_type_name == "argument":
            each.metavar = (
                f"{each.name}".upper()
            )  # as the documentation has it, and what is said of one that is missing
    return command


class _Late(TyperCommand):
    """A command whose module is imported once it is typed."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        words = f"{parent.info_name} {info_name}" if parent.parent else f"{info_name}"
        return command_of(words).make_context(info_name, args, parent, **extra)


def _typed(function: Callable[..., Any]) -> Callable[..., int]:
    """What typer calls for a function whose parameters are what can be typed.

    Its `screen` writes as `-o` says, before the command or after it (where that is no file of the command's own); its
    `place` is what `--store` names. A parameter that is a Struct stands for the options that its fields are.
    """
    own = inspect.signature(function).parameters
    bundles = {name: each.annotation for name, each in own.items() if name not in _GIVEN and _is_bundle(each)}
    shown = [option for name, each in own.items() for option in _options(each, bundles.get(name))]
    if "place" in own:
        shown.append(_option("store", StorePath, None))
    if not any(map(_is_output, shown)):
        shown.append(_option("output", Output, None))

    def call(context: typer.Context, **typed: Any) -> int:
        import anyio

        from refold.console.places import store_place
        from refold.console.screen import Screen

        form, store = typed.pop("output", None) or context.obj["output"], typed.pop("store", None)
        given = {"screen": Screen(form or Form.TEXT)} | (
            {"place": store_place(store)} if "place" in own else {}
        )
        for name, kind in bundles.items():
            given[name] = kind(**{field: typed.pop(field) for field in kind.__struct_fields__})
        work = partial(function, **given, **typed)
        code: int = anyio.run(work) if inspect.iscoroutinefunction(function) else work()
        return code

    vars(call)["__signature__"] = inspect.Signature([_option("context", typer.Context), *shown])
    call.__annotations__ = {each.name: each.annotation for each in shown}
    call.__doc__ = function.__doc__
    return call


def _is_output(option: inspect.Parameter) -> bool:
    infos = getattr(option.annotation, "__metadata__", ())
    return any("--output" in (getattr(each, "param_decls", None) or ()) for each in infos)


def _is_bundle(parameter: inspect.Parameter) -> bool:
    return inspect.isclass(parameter.annotation) and issubclass(parameter.annotation, msgspec.Struct)


def _options(parameter: inspect.Parameter, bundle: Any) -> list[inspect.Parameter]:
    if parameter.name in _GIVEN:
        return []
    if bundle is None:
        return [_option(parameter.name, parameter.annotation, parameter.default)]
    kinds = get_type_hints(bundle, include_extras=True)
    return [
        _option(each.name, kinds[each.name], _EMPTY if each.default is msgspec.NODEFAULT else each.default)
        for each in msgspec.structs.fields(bundle)
    ]


def _option(name: str, annotation: Any, default: Any = _EMPTY) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _version(wanted: bool) -> None:  # noqa: FBT001 - typer's callback
    if wanted:
        from importlib.metadata import version

        typer.echo(f"refold {version('refold')}")
        raise typer.Exit


@app.callback()
def _options_of_all(
    context: typer.Context,
    *,
    output: Output = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show where errors come from.")] = False,  # noqa: ARG001 - see main
    version: Annotated[  # noqa: ARG001 - its callback has done it
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    context.obj = {"output": output}


def _listed() -> None:
    """Stands for a command that is not loaded."""


def _fill() -> None:
    groups = {
        name: typer.Typer(help=said, no_args_is_help=True, rich_markup_mode=None)
        for name, said in _GROUPS.items()
    }
    for words, (_, line) in COMMANDS.items():
        of, _, name = words.rpartition(" ")
        (groups[of] if of else app).command(name, cls=_Late, short_help=line)(_listed)
    for name, group in groups.items():
        app.add_typer(group, name=name)


_fill()
