"""`refold policy`: the presets, what a policy says in full, whether a file can work, and the schema."""

from pathlib import Path
from typing import Annotated

import typer

from refold.console.options import Output, screen_of
from refold.console.policy_text import Language
from refold.console.screen import Column

policy_app = typer.Typer(help="Presets, and policies as files.", no_args_is_help=True, rich_markup_mode=None)

SENTENCES = {
    "inspect-iterative": "works until a limit or a keyword ends it: nudged at each step, a window of 100 messages",
    "paperbench": "works until its time is up, and retries as long as that allows; prunes on overflow",
    "guardrails": "50 steps, budgets, a stop on repeated calls, two recoveries from cut answers",
    "hermes": "90 steps a turn, told of at 70 and 90 per cent, summaries, one last request without tools",
    "utah": "20 steps a turn, told of from 10 before the end, old results shortened",
    "tirea": "limits judged after a step, previews of results, a budget of tokens, broken streams taken up",
    "observed": "what imported runs are derived under: no limits, nothing decided that the source did not do",
    "paperbench-solver": "paperbench as its later solver: steps, a submit tool, full jitter",
    "guardrails-later": "guardrails with more: premature ends, endless reading, the wrong shell, summaries",
    "hermes-quiet": "hermes without pressure",
    "hermes-optin": "hermes with one warning, once a turn",
    "hermes-guarded": "hermes with guards against calls that lead nowhere",
    "awaken": "tirea's successor: 16 steps checked after the answer, nothing retried, a person asked about calls",
}

PolicyName = Annotated[
    Path, typer.Argument(help="A file (.toml, .yaml, .json), or a preset.", metavar="POLICY")
]


@policy_app.command("list")
def _list(context: typer.Context, output: Output = None) -> int:
    """List the presets and their variants. With -o json: one array."""
    from refold.reducers.presets import PRESETS

    screen = screen_of(context, output)
    rows = [(name, str(data.get("preset", "")), SENTENCES[name]) for name, data in PRESETS.items()]
    if screen.json:
        screen.document([{"name": name, "of": of or None, "is": said} for name, of, said in rows])
    else:
        columns = (Column("NAME"), Column("VARIANT OF"), Column("WHAT IT IS", elastic=True))
        screen.table(columns, rows)
    return 0


@policy_app.command("show")
def _show(
    context: typer.Context,
    policy: PolicyName,
    language: Annotated[
        Language | None,
        typer.Option("--format", help="Which language.", show_default="yaml; json with -o json"),
    ] = None,
    output: Output = None,
) -> int:
    """Print a policy in full, as a file that says the same: what it is laid over and every default filled in."""
    from refold.console.policies import chosen_policy
    from refold.console.policy_text import written
    from refold.engine.guards import installed_guards

    screen = screen_of(context, output)
    found, _ = chosen_policy(policy, installed_guards(), {})
    text = written(found, language or (Language.JSON if screen.json else Language.YAML))
    screen.styled(text.rstrip("\n"))
    return 0


@policy_app.command("check")
def _check(context: typer.Context, policy: PolicyName, output: Output = None) -> int:
    """Check that a policy can work, and say what in it is surely not meant so. With -o json: one document."""
    from refold.console.policies import chosen_policy
    from refold.engine.guards import installed_guards
    from refold.reducers.checking import warnings

    screen = screen_of(context, output)
    found, _ = chosen_policy(policy, installed_guards(), {})
    complaints = warnings(found)
    if screen.json:
        screen.document({"policy": str(policy), "warnings": complaints})
        return 0
    for complaint in complaints:
        screen.say(f"warning: {complaint}")
    screen.say(f"{policy} can be used")
    return 0


@policy_app.command("schema")
def _schema(context: typer.Context, output: Output = None) -> int:
    """Print the JSON Schema of policy files, with the guards that are installed."""
    from refold.console.policy_text import schema
    from refold.engine.guards import installed_guards

    screen_of(context, output).document(schema(installed_guards()))
    return 0
