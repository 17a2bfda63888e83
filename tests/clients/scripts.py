"""Scripts of the model, turn by turn. Each script works with every client, whatever the names of its tools.

A turn names operations (`Shell`, `Edit`, ...). `offers` turns them into calls of the offered tools.
"""

from pathlib import Path

import msgspec


class Shell(msgspec.Struct, frozen=True):
    """A command in the client's shell; `fails`: it exits with another code than 0."""

    command: str
    fails: bool = False


class Edit(msgspec.Struct, frozen=True):
    """Replace `old` by `new` in a file. Some clients refuse it before the model has read the file."""

    path: str
    old: str
    new: str


class Delegate(msgspec.Struct, frozen=True):
    """Start a subagent; a shell command if the client offers none."""

    prompt: str


class UnknownTool(msgspec.Struct, frozen=True):
    """A call of a tool that no client offers."""

    name: str = "no_such_tool"


class Malformed(msgspec.Struct, frozen=True):
    """A shell call with truncated arguments. If the client repairs and runs it, the file `marker` exists."""

    marker: str = "repaired"


def happened(operation: "Edit | Malformed", folder: Path) -> bool:
    """Whether an operation had its effect. A client may refuse an edit, or repair a malformed call."""
    match operation:
        case Edit(path, _, new):
            return new in (folder / path).read_text(encoding="utf-8")
        case Malformed(marker):
            return (folder / marker).exists()


Operation = Shell | Edit | Delegate | UnknownTool | Malformed


class Usage(msgspec.Struct, frozen=True):
    """Tokens that the server reports of an answer; `input` includes those `cached`."""

    input: int = 100
    cached: int = 0
    output: int = 10


class Answer(msgspec.Struct, frozen=True):
    """An answer of the model; `broken`: the connection is reset in the middle of its stream."""

    text: str
    calls: tuple[Operation, ...] = ()
    usage: Usage = Usage()
    reasoning: str = ""
    broken: bool = False


class Failure(msgspec.Struct, frozen=True):
    """A response with an HTTP status other than 200."""

    status: int
    message: str
    code: str
    google: str
    """The code as Google's API names it."""


Turn = Answer | Failure


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """The turns of the main agent and of its subagent.

    `prompts`: how many processes there are, each with a prompt; the second resumes the session of the first.
    `compacts`: the client is configured to compact early. `interrupted`: SIGINT is sent once the file
    `sleeping` exists.
    """

    turns: tuple[Turn, ...]
    sub: tuple[Turn, ...] = ()
    prompts: int = 1
    compacts: bool = False
    interrupted: bool = False


SLEEPING = "sleeping"
NOTHING_LEFT = Answer("Nothing is left to do.", usage=Usage(50, 0, 5))
SUMMARY = Answer(
    "<state_snapshot>SUMMARY OF THE SCRIPT: ls was run.</state_snapshot>", usage=Usage(900, 0, 30)
)
ASIDE = Answer(
    '{"next_speaker": "user", "reasoning": "done", "title": "A title", "corrected": null}',
    usage=Usage(20, 0, 3),
)
"""The answer to requests without tools, for example for a title."""

_LONG = "python3 -c \"print('\\n'.join('line %05d of a long output' % i for i in range(4000)))\""
_HUGE = 990_000
"""Tokens that fill any window: who watches them compacts."""

SCRIPTS: dict[str, Script] = {
    "basic": Script(
        turns=(
            Answer(
                "I look around.",
                (Shell("ls"),),
                Usage(1001, 0, 11),
                reasoning="First look at the folder.",
            ),
            Answer("", (Shell("cat a.txt"), Shell("cat b.txt")), Usage(1102, 1000, 22)),
            Answer(
                "Now one that fails.",
                (Shell("cat nothing-here.txt; exit 3", fails=True),),
                Usage(1203, 1100, 13),
            ),
            Answer("I edit.", (Edit("a.txt", "alpha", "omega"),), Usage(1304, 1200, 44)),
            Answer("I throw the stash away.", (Shell("git stash drop"),), Usage(1405, 1300, 15)),
            Answer("An unknown tool.", (UnknownTool(),), Usage(1506, 1400, 16)),
            Answer("Arguments that are no JSON.", (Malformed(),), Usage(1607, 1500, 17)),
            Answer("A long output.", (Shell(_LONG),), Usage(1708, 1600, 18)),
            Answer("All done: ls, cat, edit, drop.", usage=Usage(1809, 1700, 19)),
        )
    ),
    "retry": Script(
        turns=(
            Failure(429, "scripted rate limit", "rate_limit_exceeded", "RESOURCE_EXHAUSTED"),
            Answer("I look.", (Shell("ls"),), Usage(501, 0, 5)),
            Answer(
                "This stream breaks in the middle of its words, and so it is asked for again.",
                usage=Usage(602, 500, 6),
                broken=True,
            ),
            Answer("Second try.", (Shell("cat a.txt"),), Usage(603, 500, 7)),
            Answer("Done after trouble.", usage=Usage(704, 600, 8)),
        )
    ),
    "compaction": Script(
        turns=(
            Answer("I look.", (Shell("ls"),), Usage(9000, 0, 5)),
            Answer("And again.", (Shell("cat a.txt"),), Usage(_HUGE, 0, 6)),
            Answer("After the compaction.", (Shell("cat b.txt"),), Usage(3000, 0, 7)),
            Answer("First part done.", usage=Usage(_HUGE, 0, 8)),
            Answer("I go on.", (Shell("ls -a"),), Usage(3100, 0, 9)),
            Answer("Second part done.", usage=Usage(3200, 0, 10)),
        ),
        prompts=2,
        compacts=True,
    ),
    "overflow": Script(
        turns=(
            Answer("I look.", (Shell("ls"),), Usage(9000, 0, 5)),
            Failure(
                400,
                "This model's maximum context length is 8192 tokens. However, your messages resulted in "
                "99999 tokens. Your input exceeds the context window of this model.",
                "context_length_exceeded",
                "INVALID_ARGUMENT",
            ),
            Answer("After the overflow.", (Shell("cat b.txt"),), Usage(3000, 0, 7)),
            Answer("Done.", usage=Usage(3100, 0, 8)),
        )
    ),
    "resume": Script(
        turns=(
            Answer("I look.", (Shell("ls"),), Usage(501, 0, 5)),
            Answer("First part done.", usage=Usage(602, 500, 6)),
            Answer("I read more.", (Shell("cat b.txt"),), Usage(703, 600, 7)),
            Answer("Second part done.", usage=Usage(804, 700, 8)),
        ),
        prompts=2,
    ),
    "interrupt": Script(
        turns=(
            Answer("I look.", (Shell("ls"),), Usage(501, 0, 5)),
            Answer("I sleep.", (Shell(f"touch {SLEEPING}; sleep 20; echo woke"),), Usage(602, 500, 6)),
            Answer("Done.", usage=Usage(703, 600, 7)),
        ),
        interrupted=True,
    ),
    "subagent": Script(
        turns=(
            Answer("I send another.", (Delegate("SCRIPT=sub Please look at the files."),), Usage(501, 0, 5)),
            Answer("It reported beta.", usage=Usage(602, 500, 6)),
        ),
        sub=(
            Answer("Sub looks.", (Shell("cat b.txt"),), Usage(201, 0, 3)),
            Answer("Sub is done: beta.", usage=Usage(302, 200, 4)),
        ),
    ),
}
