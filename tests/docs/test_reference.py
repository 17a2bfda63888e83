"""The reference is what the code says: kinds, fields, types, defaults, words, the machine, errors and names.

Each test compares a page with the code that it describes. A failure prints the line that the page lacks.
"""

import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from refold.console.app import COMMANDS as TYPED
from refold.console.app import app, command_of
from refold.engine.updates import mermaid
from refold.reducers import MOVES, AgentState, Policy, RefoldError, vocabulary
from refold.reducers.approvals import ApprovalRule, Approvals, Approver, Match
from refold.reducers.events import ANNOTATIONS, DECISIONS, FACTS, Content, Event, kind_of
from refold.reducers.failures import ClassRetry, Fallback, FallbackWhen, Jitter, Retry
from refold.reducers.guards import BUILTIN
from refold.reducers.guards.duty import OWN
from refold.reducers.guards.endings import PrematureEnd
from refold.reducers.guards.protocol import Place
from refold.reducers.history import Pass, Share, When
from refold.reducers.history.results import Hard, Soft
from refold.reducers.history.windows import Room
from refold.reducers.limits import (
    ENDS,
    UNKNOWN,
    CostLimit,
    Credit,
    MessageLimit,
    StepLimit,
    TimeLimit,
    TokenLimit,
)
from refold.reducers.permissions.conditions import Conditions
from refold.reducers.permissions.rules import PermissionRule
from refold.reducers.permissions.run_facts import When as RunCondition
from refold.reducers.policy import (
    At,
    CallTimeout,
    Empty,
    Grace,
    Near,
    Overflow,
    Pressure,
    Progress,
    Stream,
    Tier,
    ToolOutput,
    Truncation,
    Without,
)
from refold.reducers.rules.order import ORDER
from refold.reducers.text import TEXTS
from refold.store import GENESIS, Head, Record
from refold.store.chain import extend

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
RULES = ROOT / "reducers" / "refold" / "reducers" / "rules"

_PLAIN = {
    int: "integer",
    float: "number",
    str: "text",
    bool: "boolean",
    bytes: "bytes",
    Any: "any",
    NoneType: "null",
}


def type_of(hint: Any) -> str:
    """A type in the words of the reference."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return type_of(arguments[0])
    if origin in (Union, UnionType):
        said = [type_of(each) for each in arguments]
        if said[:2] == ["integer", "number"]:
            said = said[1:]
        return " or ".join(said)
    if origin is Literal:
        return " or ".join(f"`{each}`" for each in arguments)
    if origin is tuple and arguments[-1] is not ...:
        return "[" + ", ".join(type_of(each) for each in arguments) + "]"
    if origin is tuple:
        return f"list of {type_of(arguments[0])}"
    if origin is dict:
        return f"map of {type_of(arguments[0])} to {type_of(arguments[1])}"
    if isinstance(hint, type) and issubclass(hint, Event):
        return f"`{kind_of(hint)}`"
    return _PLAIN.get(hint) or hint.__name__


def default_of(field: Any) -> str:
    """A default as JSON writes it; composed ones are told in words."""
    if field.required:
        return "required"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if value and isinstance(value, tuple | msgspec.Struct):
        return "see below"
    return f"`{msgspec.json.encode(value).decode()}`"


def rows(struct: type[Any], *, defaults: bool = True) -> Iterator[str]:
    """The beginning of each row of the table that describes a Struct."""
    hints = get_type_hints(struct, include_extras=True)
    for field in msgspec.structs.fields(struct):
        columns = [
            f"`{field.encode_name}`",
            type_of(hints[field.name]),
            *([default_of(field)] if defaults else []),
        ]
        yield f"| {' | '.join(columns)} | "


def sections(page: str) -> dict[str, str]:
    """A page's sections of the second and third level by their titles, code marks left out."""
    text = (REFERENCE / page).read_text(encoding="utf-8")
    pieces = re.split(r"^###? (.+)$", text, flags=re.MULTILINE)
    return {title.replace("`", ""): body for title, body in zip(pieces[1::2], pieces[2::2], strict=True)}


def lacking(page: str, title: str, wanted: list[str]) -> list[str]:
    """The lines that a section lacks, and the rows that it has too many."""
    body = sections(page).get(title)
    if body is None:
        return [f"## {title}", *wanted]
    table = [line for line in body.splitlines() if line.startswith("| `")]
    missing = [row for row in wanted if not any(line.startswith(row) for line in table)]
    return missing + [
        f"too many: {line}" for line in table if not any(line.startswith(row) for row in wanted)
    ]


def values_in(events: tuple[type[Any], ...]) -> set[type[Any]]:
    """The Structs and enumerations that events are made of, however deep."""
    found: set[type[Any]] = set()
    left: list[Any] = [field.type for event in events for field in msgspec.structs.fields(event)]
    while left:
        hint = left.pop()
        left += get_args(hint)
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct | StrEnum) and hint not in found:
            found.add(hint)
            left += (
                [] if issubclass(hint, StrEnum) else [field.type for field in msgspec.structs.fields(hint)]
            )
    return found


EVENTS = (*FACTS, *DECISIONS, *ANNOTATIONS)
# These have pages of their own.
ELSEWHERE = {AgentState, Content, *EVENTS, Policy, *values_in((Policy,))} - {
    vocabulary.FailureClass,
    vocabulary.Role,
}
PARTS = sorted(
    (each for each in values_in(EVENTS) - ELSEWHERE if issubclass(each, msgspec.Struct)),
    key=lambda each: each.__name__,
)
WORDS = sorted(
    (each for each in values_in(EVENTS) - ELSEWHERE if issubclass(each, StrEnum)), key=lambda e: e.__name__
)


@pytest.mark.parametrize("event", EVENTS, ids=kind_of)
def test_every_kind_of_event_is_described(event: type[Any]) -> None:
    """The page of events has each kind with each field, its type and its default, and no other."""
    assert [] == lacking("events.md", kind_of(event), list(rows(event)))


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_every_part_of_an_event_is_described(part: type[Any]) -> None:
    """The page of events has each value that stands in an event, contents among them."""
    assert [] == lacking("events.md", part.__name__, list(rows(part)))


@pytest.mark.parametrize("words", WORDS, ids=lambda words: words.__name__)
def test_every_word_is_described(words: type[StrEnum]) -> None:
    """The page of events has every word of every closed vocabulary."""
    assert [] == lacking("events.md", words.__name__, [f"| `{word}` | " for word in words])


def test_no_kind_is_described_that_is_not_there() -> None:
    """The page of events invents nothing."""
    known = {kind_of(event) for event in EVENTS} | {each.__name__ for each in (*PARTS, *WORDS)}
    described = {
        title for title in sections("events.md") if re.fullmatch(r"[a-z]+_[a-z_]+|diagnosed|[A-Z]\w+", title)
    }
    assert known == described - {"Facts", "Decisions", "Annotations", "Parts", "Words", "Contents"}


POLICY = {
    "The policy": Policy, "step": StepLimit, "time": TimeLimit, "message": MessageLimit, "token": TokenLimit,
    "cost": CostLimit, "credit": Credit, "call_timeout": CallTimeout, "near": Near, "grace": Grace, "when": When,
    "share": Share, "token_tail.budget": Room, "age_results.soft": Soft, "age_results.hard": Hard,
    "overflow": Overflow, "tool_output": ToolOutput, "truncation": Truncation, "stream": Stream,
    "premature_end": PrematureEnd, "empty": Empty, "progress": Progress, "pressure": Pressure, "pressure.tiers": Tier,
    "pressure.tiers.at": At, "pressure.tiers.tools": Without, "retry": Retry, "jitter": Jitter,
    "retry.by_class": ClassRetry, "retry.fallback": Fallback, "retry.fallback.when": FallbackWhen,
    "approvals": Approvals, "rule": ApprovalRule,
    **{str(each.__struct_config__.tag): each for each in (*get_args(Pass), *get_args(Approver))},
    "permissions.rules": PermissionRule, "permissions.rules.after": Conditions, "permissions.rules.when": RunCondition,
    "approver: arguments": Match,  # the guard of the same name has the section
    **BUILTIN,
}  # fmt: skip


GUARDS: tuple[Any, ...] = (*BUILTIN.values(), *OWN.values())


@pytest.mark.parametrize("title", POLICY)
def test_every_key_of_a_policy_is_described(title: str) -> None:
    """The page of policies has each key with its type and its default, and no other."""
    assert [] == lacking("policy.md", title, list(rows(POLICY[title])))


def test_every_guard_is_listed() -> None:
    """The page of guards has each guard with the places where it speaks, and whether it reads what was
    said.
    """
    places = [place for place in Place if place in {spot for guard in GUARDS for spot in guard.places}]
    wanted = [
        f"| [`{guard.kind}`](#{guard.kind}) | "
        f"{', '.join(f'`{place}`' for place in places if place in guard.places)} | "
        f"{'yes' if guard.reads_content else 'no'} | "
        for guard in GUARDS
    ]
    rows = [line for line in sections("guards.md")["All of them"].splitlines() if line.startswith("| [")]
    assert len(wanted) == len(rows)
    assert [] == [row for row in wanted if not any(line.startswith(row) for line in rows)]


def source_of(guard: type) -> str:
    """The source of a guard, and of the functions beside it that it calls."""
    text, module = inspect.getsource(guard), inspect.getmodule(guard)
    beside = inspect.getmembers(module, inspect.isfunction)
    return text + "".join(inspect.getsource(each) for name, each in beside if f"{name}(" in text)


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.kind)
def test_every_guard_is_described(guard: Any) -> None:
    """The page of guards has a section for each, which names each of its texts, and each code that it
    says.
    """
    body = sections("guards.md")[guard.kind]
    said = set(re.findall(r'\bcode="([a-z_]+)"', source_of(guard)))
    assert [] == [word for word in {*said, *getattr(guard, "texts", {})} if f"`{word}`" not in body]


def said(texts: Mapping[str, str]) -> Iterator[str]:
    """The rows of a table of texts."""
    for key, text in texts.items():
        yield f"| `{key}` | {text.strip().replace(chr(10), '<br>')} |"


def test_every_text_of_a_policy_is_described() -> None:
    """The page of policies lists each text that the harness says, word for word."""
    assert [] == lacking("policy.md", "texts", list(said(TEXTS)))


def test_every_text_of_a_guard_is_described() -> None:
    """The page of policies lists what the built-in guards bring."""
    wanted = [row for guard in GUARDS for row in said(getattr(guard, "texts", {}))]
    assert [] == lacking("policy.md", "Texts of guards", wanted)


def test_every_part_of_a_policy_has_its_section() -> None:
    """No Struct that a policy can hold is left out of the tests above."""
    assert set() == {each for each in values_in((Policy,)) if issubclass(each, msgspec.Struct)} - {
        *POLICY.values()
    }


def test_the_machine_is_drawn_from_its_table() -> None:
    """The picture in the reference is the one that `refold graph` prints."""
    text = (REFERENCE / "machine.md").read_text(encoding="utf-8")
    (drawn,) = re.findall(r"```mermaid\n(.*?)```", text, re.DOTALL)
    assert mermaid().strip() == drawn.strip()


def test_every_move_is_listed() -> None:
    """The page of the machine has each cell of the table, and no other."""
    wanted = [
        f"| `{source}` | `{trigger}` | {' or '.join(f'`{target}`' for target in targets)} |"
        for (source, trigger), targets in MOVES.items()
    ]
    assert [] == lacking("machine.md", "Moves", wanted)


_MOVED = re.compile(r"""Trigger\.[A-Z_]+, "([a-z_]+)"|code(?:, reason)? = "([a-z_]+)"|else f"(provider:)""")
_STOPPED = re.compile(r"""(?:Stop|Stopping)\((?:[^()]*\s)?code="([a-z_]+)\"""")


def codes() -> set[str]:
    """The codes that rules and guards give to a move, as their source has them; a provider's stand for all
    classes.
    """
    rules, meanings, guards = (
        "".join(path.read_text(encoding="utf-8") for path in sorted((RULES.parent / name).glob("*.py")))
        for name in ("rules", "meanings", "guards")
    )
    moved = {word for match in _MOVED.findall(rules) for word in match if word}
    found = (
        moved
        | set(_STOPPED.findall(meanings + guards))
        | {code for _, code in ENDS.values()}
        | set(UNKNOWN.values())
    )
    return {"provider:CLASS" if word == "provider:" else word for word in found}


def test_every_code_is_described() -> None:
    """The page of the machine names each code with which a rule or a guard moves it."""
    body = sections("machine.md")["Codes"]
    assert set() == {code for code in codes() if f"`{code}`" not in body}
    assert {"end_turn", "step_limit", "cancelled", "provider:CLASS", "guard_failed", "stalled"} <= codes()


def test_every_phase_is_described() -> None:
    """The page of the machine has each moment at which decisions are made, and no other."""
    rows = re.findall(r"^\| (\w[^|]*) \| ", sections("machine.md")["Order of checks"], re.MULTILINE)
    assert sorted(["when", *(phase.value for phase in ORDER)]) == sorted(rows)


def errors() -> dict[str, type[RefoldError]]:
    """Every error of refold, by name."""
    for module in ("refold.reducers.views", "refold.engine", "refold.engine.playback", "refold.engine.models.weights",
                   "refold.store", "refold.replay"):  # fmt: skip
        importlib.import_module(module)
    found: dict[str, type[RefoldError]] = {}
    left: list[type[RefoldError]] = [RefoldError]
    while left:
        error = left.pop()
        if error.__module__.startswith("refold.") and not error.__module__.startswith("refold.console"):
            found[error.__name__] = error
        left += error.__subclasses__()
    return found


@pytest.mark.parametrize("name", sorted(errors()))
def test_every_error_is_described(name: str) -> None:
    """The page of errors has each error with the code with which the command line ends."""
    text = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| `{name}` \| {errors()[name].exit_code} \| ", text, re.MULTILINE), name


@pytest.mark.parametrize(
    "package", ["refold.engine", "refold.replay", "refold.store", "refold.reducers", "refold.testing"]
)
def test_every_public_name_is_described(package: str) -> None:
    """The page of the Python API has each name that a package offers, and no other."""
    wanted = [f"| `{name}` | " for name in importlib.import_module(package).__all__]
    assert [] == lacking("python.md", package, wanted)


COMMANDS = {"refold": app} | {f"refold {words}": command_of(words) for words in TYPED}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_described(name: str) -> None:
    """The page of commands has each command with each argument and option, and no other."""
    wanted = [
        "| " + ", ".join(f"`{word}`" for word in parameter.opts) + " | "
        if parameter.param_type_name == "option"
        else f"| `{parameter.name.upper()}` | "
        for parameter in COMMANDS[name].params
        if parameter.name != "help"
    ]
    assert [] == lacking("commands.md", name, wanted)


def test_the_worked_example_of_the_chain_is_what_the_store_computes() -> None:
    """The hash that the page derives in plain hashlib is the one that a store writes."""
    body = b'{"annotation":"note_added","at":1700000000000000000,"by":"ann"}'
    record = Record(
        at=1700000000000000000, kind="note_added", body=body, content=b'{"text":"hello"}', salt=bytes(16)
    )
    (event,) = extend("a1", Head(seq=0, hash=GENESIS), [record])
    text = (REFERENCE / "hash-chain.md").read_text(encoding="utf-8")
    assert event.content_digest is not None
    assert f"{event.content_digest.hex()}\n{event.hash.hex()}\n" in text
    assert body.decode() in text
