"""Policy files: what is read, what each refusal says, and that what is printed is read back equal."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.conftest import Refold
from refold.console import descriptions
from refold.console.main import main
from refold.console.policy import SENTENCES, Language
from refold.engine import call, say
from refold.engine.journal import LOGGER
from refold.engine.policy_files import PolicyFileError, load_policy
from refold.reducers.complaints import refuse
from refold.reducers.errors import PolicyError
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.limits import StepLimit
from refold.reducers.parser import parse
from refold.reducers.policy import Policy
from refold.reducers.presets import PRESETS

Scripted = Callable[[list[Any]], None]
GOOD = {
    "p.toml": 'schema = "refold/v1"\n[[limits]]\ntype = "step"\nvalue = 3\n',
    "p.yaml": "schema: refold/v1\nlimits:\n  - type: step\n    value: 3\n",
    "p.yml": "{schema: refold/v1, limits: [{type: step, max: 3}]}\n",
    "p.json": '{"schema": "refold/v1", "limits": [{"type": "step", "value": 3}]}',
}


def read_policy(path: Path, registry: Registry) -> Policy:
    """The policy that a file says, with no variable set."""
    return load_policy(path, registry, {})[0]


@pytest.mark.parametrize(("name", "text"), GOOD.items(), ids=GOOD)
def test_three_formats_say_the_same(name: str, text: str, tmp_path: Path) -> None:
    """A limit means the same in TOML, YAML and JSON."""
    (tmp_path / name).write_text(text)
    assert (StepLimit(name="step", value=3),) == read_policy(tmp_path / name, BUILTIN).limits


def test_a_file_that_says_its_schema_only_is_the_default(tmp_path: Path) -> None:
    """A file need not say more than which language it is in."""
    (tmp_path / "p.yaml").write_text("schema: refold/v1\n")
    assert (StepLimit(name="step", value=50),) == read_policy(tmp_path / "p.yaml", BUILTIN).limits


TOML = 'schema = "refold/v1"\n'
BAD = [
    pytest.param("p.toml", 'schema="refold/v1"\n[[limits]]\ntype="step"\nvalue="ten"\n', 'limits[0].value: expected a whole number or null, got "ten"', id="toml: a wrong type"),
    pytest.param("p.toml", "limits = [\n  x", "line 2, column 3", id="toml: bad syntax"),
    pytest.param("p.toml", "batch = 1\nbatch = 2\n", "line 2", id="toml: a key twice"),
    pytest.param("p.json", '{"limits": 1,}', "line 1, column 14", id="json: bad syntax"),
    pytest.param("p.json", '{"batch": 1, "batch": 2}', "'batch' is listed twice", id="json: a key twice"),
    pytest.param("p.json", "[1]", "a policy is a mapping", id="json: no mapping"),
    pytest.param("p.json", "[" * 100_000, "nested too deeply", id="json: a pit"),
    pytest.param("p.json", '{"schema": "refold/v1", "limits": [{"type": "cost", "value": -1}]}', "limits[0].value: expected a number >= 0, got -1", id="json: less than nothing"),
    pytest.param("p.json", '{"schema": "refold/v1", "limits": [{"type": "step", "value": -1}]}', "limits[0].value: expected a whole number >= 0, got -1", id="json: fewer than none"),
    pytest.param("p.json", '{"schema": "refold/v1", "limits": [{"type": "time", "value": NaN}]}', "limits[0].value: expected a finite number", id="json: not a number"),
    pytest.param("p.yaml", "limits: [", "line 1, column 10", id="yaml: bad syntax"),
    pytest.param("p.yaml", "batch: a\nlimits: []\nbatch: b\n", "'batch' is listed twice; keep one (at line 3, column 1)", id="yaml: a key twice"),
    pytest.param("p.yaml", "a: &a [1]\nb: *a\n", "alias; write out its value (at line 2, column 4)", id="yaml: an alias"),
    pytest.param("p.yaml", "a: !!int\n", "is not valid YAML: not of type 'int' (at line 1, column 4)", id="yaml: no number"),
    pytest.param("p.yaml", "a: !!bool maybe\n", "not of type 'bool' (at line 1", id="yaml: neither true nor false"),
    pytest.param("p.yaml", "a: !!timestamp x\n", "not of type 'timestamp' (at line 1", id="yaml: no time"),
    pytest.param("p.yaml", "a: !!map [1]\n", "is not valid YAML: a value tagged as a mapping is not one", id="yaml: no mapping"),
    pytest.param("p.yaml", "a: !!python/object/apply:os.system [id]\n", "is not valid YAML", id="yaml: an object"),
    pytest.param("p.yaml", "schema: refold/v1\nlimit: 3\n", "limit: unknown key", id="an unknown key"),
    pytest.param("p.yaml", "# nothing yet\n", "schema: missing; add the line schema: refold/v1", id="yaml: no schema"),
    pytest.param("p.toml", "", 'schema: missing; add the line schema = "refold/v1"', id="toml: no schema"),
    pytest.param("p.json", "{}", 'schema: missing; add the line "schema": "refold/v1",', id="json: no schema"),
    pytest.param("p.yaml", "schema: refold/v2\n", 'schema: expected one of refold/v1, got "refold/v2"', id="another schema"),
    pytest.param("p.yaml", "schema: refold/v1\nnull: [x]\n", "unknown key", id="yaml has a null of its own"),
    pytest.param("p.toml", TOML + "null = 3\n", "null: expected a list of paths", id="toml: null, no list"),
    pytest.param("p.toml", TOML + 'null = ["near", 3]\n', "null[1]: expected the path", id="toml: null, no path"),
    pytest.param("p.toml", TOML + 'null = ["near."]\n', "got 'near.'", id="toml: null, half a path"),
    pytest.param("p.toml", TOML + 'null = ["batch"]\nbatch = "parallel"\n', "does not set, got 'batch'", id="toml: null and given"),
    pytest.param("p.toml", TOML + 'null = ["limits[0].value"]\n', "got 'limits[0].value'", id="toml: null in no list"),
    pytest.param("p.toml", TOML + 'null = ["batch.x"]\nbatch = "parallel"\n', "got 'batch.x'", id="toml: null in a text"),
    pytest.param("p.toml", TOML + 'null = ["nearr"]\n', "nearr: unknown key", id="toml: null of nothing known"),
    pytest.param("p.txt", "", "expected a file ending in .toml", id="another suffix"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "says"), BAD)
def test_refusals(name: str, text: str, says: str, tmp_path: Path) -> None:
    """The error begins with the file, and names the place, what was expected, and what stood there."""
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(PolicyFileError) as caught:
        read_policy(path, BUILTIN)
    assert str(caught.value).startswith(f"{path}: ")
    assert says in str(caught.value)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    """A file that is not UTF-8 is refused at its byte."""
    (tmp_path / "p.toml").write_bytes(b"a = '\xff'")
    with pytest.raises(PolicyFileError, match="not UTF-8 at byte 5"):
        read_policy(tmp_path / "p.toml", BUILTIN)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """A missing file is named."""
    with pytest.raises(PolicyFileError, match=r"p\.toml: cannot be read: No such file"):
        read_policy(tmp_path / "p.toml", BUILTIN)


def test_a_file_that_is_no_policy(tmp_path: Path) -> None:
    """A file of megabytes is not even parsed."""
    (tmp_path / "p.json").write_bytes(b" " * (1 << 21))
    with pytest.raises(PolicyFileError, match="the maximum for a policy"):
        read_policy(tmp_path / "p.json", BUILTIN)


def test_what_toml_has_no_word_for(tmp_path: Path) -> None:
    """Paths in the list `null` are null: over a preset too, and in what the file does not mention."""
    path = tmp_path / "p.toml"
    path.write_text(
        TOML
        + 'preset = "hermes"\nnull = ["pressure", "retry.max", "limits[0].value"]\n[[limits]]\ntype = "step"\n'
    )
    policy = read_policy(path, BUILTIN)
    assert (None, None, (None,)) == (
        policy.pressure,
        policy.retry.max,
        tuple(one.value for one in policy.limits),
    )
    assert 3 == policy.retry.attempts


@pytest.mark.parametrize("language", Language)
@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_printed_is_the_preset(
    name: str, language: Language, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What `refold policy show` prints, saved and read again, is equal: in each language."""
    assert 0 == main(["policy", "show", name, "--format", language])
    path = tmp_path / f"p.{language}"
    path.write_text(capsys.readouterr().out)
    assert parse({"preset": name}) == read_policy(path, BUILTIN)


HOSTILE = "\x1b[2J \x7f\x9f \u200b\u202e \U000e0001 é 漢 \"'{n}\n\t end"


@pytest.mark.parametrize("language", Language)
def test_no_text_is_changed_by_being_shown(
    language: Language, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Characters that a terminal must not get are escaped as the language does: what is read back is
    equal.
    """
    source = tmp_path / "source.json"
    source.write_text(json.dumps({"schema": "refold/v1", "texts": {"nudge": HOSTILE}, "fallback": HOSTILE}))
    assert 0 == main(["policy", "show", str(source), "--format", language])
    printed = capsys.readouterr().out
    assert printed.rstrip("\n") == descriptions.block(printed).rstrip("\n")
    path = tmp_path / f"p.{language}"
    path.write_text(printed)
    assert read_policy(source, BUILTIN) == read_policy(path, BUILTIN)


def test_list_names_every_preset(capsys: pytest.CaptureFixture[str]) -> None:
    """Each preset is one row, with a sentence and what it is a variant of."""
    assert 0 == main(["policy", "list", "-o", "json"])
    rows = json.loads(capsys.readouterr().out)
    assert list(PRESETS) == [row["name"] for row in rows] == list(SENTENCES)
    of = {row["name"]: row["of"] for row in rows}
    assert ("hermes", None) == (of["hermes-quiet"], of["hermes"])
    assert 0 == main(["policy", "list"])
    assert 1 + len(PRESETS) == len(capsys.readouterr().out.splitlines())


def test_check_says_what_is_surely_not_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Warnings are no refusal."""
    path = tmp_path / "p.yaml"
    path.write_text("schema: refold/v1\nhistory: [{do: tail, last: 2}]\n")
    assert 0 == main(["policy", "check", str(path)])
    assert (
        f"warning: history[0].last: 2 messages are very few: with fewer than 6, a model loses the context\n{path} is valid\n"
        == capsys.readouterr().out
    )
    assert 0 == main(["policy", "check", str(path), "-o", "json"])
    assert ["history[0].last"] == [one["path"] for one in json.loads(capsys.readouterr().out)["warnings"]]


def test_check_refuses_what_cannot_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is that of wrong use, and the path is on stderr."""
    path = tmp_path / "p.yaml"
    path.write_text("schema: refold/v1\ngrace: {on: [stepp]}\n")
    assert 2 == main(["policy", "check", str(path)])
    assert "grace.on[0]: unknown limit" in capsys.readouterr().err


def test_no_such_preset(capsys: pytest.CaptureFixture[str]) -> None:
    """A name of neither a file nor a preset is refused with all presets, or with the one that was meant."""
    assert 2 == main(["policy", "show", "mine"])
    assert "or a preset: inspect-iterative, " in capsys.readouterr().err
    assert 2 == main(["policy", "show", "hermess"])
    assert "did you mean 'hermes'?" in capsys.readouterr().err


def test_the_schema_has_a_union_on_type_and_every_guard(capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON Schema says which limits, passes and guards there are, and refuses keys that are unknown."""
    assert 0 == main(["policy", "schema"])
    schema = json.loads(capsys.readouterr().out)
    described, parts = schema["$defs"]["Policy"], schema["$defs"]
    limits = {
        parts[ref["$ref"].rpartition("/")[2]]["properties"]["type"]["enum"][0]
        for ref in described["properties"]["limits"]["items"]["anyOf"]
    }
    assert {"step", "time", "message", "token", "cost"} == limits
    kinds = {
        parts[ref["$ref"].rpartition("/")[2]]["properties"]["guard"]["enum"][0]
        for ref in described["properties"]["guards"]["items"]["anyOf"]
    }
    assert set(BUILTIN) == kinds
    assert (False, ["schema"]) == (described["additionalProperties"], described["required"])


def test_the_environment_sets_what_the_file_does_not_say(tmp_path: Path) -> None:
    """A file counts before the environment, and that before a preset; what it set is said, by its
    variable.
    """
    path = tmp_path / "p.yaml"
    path.write_text("schema: refold/v1\npreset: hermes\nretry: {attempts: 2}\n")
    environment = {
        "REFOLD_MAX_STEPS": "5",
        "REFOLD_RETRY_MAX_ATTEMPTS": "9",
        "REFOLD_MODEL": "x",
        "HOME": "/",
    }
    policy, said = load_policy(path, BUILTIN, environment)
    assert (5, 2) == (policy.limits[0].value, policy.retry.attempts)
    assert ("limits.step: REFOLD_MAX_STEPS",) == said


def test_a_variable_that_is_no_value(tmp_path: Path) -> None:
    """It is refused by its own name: the file is not to blame."""
    path = tmp_path / "p.yaml"
    path.write_text("schema: refold/v1\n")
    with pytest.raises(PolicyError, match=r"^REFOLD_MAX_STEPS: "):
        load_policy(path, BUILTIN, {"REFOLD_MAX_STEPS": "x"})


def test_a_preset_by_its_name_and_what_the_environment_sets_are_recorded(
    refold: Refold, scripted: Scripted, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--policy` takes a preset, a variable counts before it, and the log says which variable it was."""
    monkeypatch.setenv("REFOLD_MAX_STEPS", " +7 ")
    scripted([say("Done.")])
    assert 0 == refold("run", "Go", "--policy", "guardrails", "--store", store).code
    started = json.loads(refold("show", "@last", "--raw", "--store", store).out.splitlines()[0])
    said = json.dumps(started)
    assert "limits.step: REFOLD_MAX_STEPS" in said
    assert '"value": 7' in said


@pytest.mark.parametrize(
    ("variables", "settings", "code"),
    [
        pytest.param({}, None, 2, id="by itself it would retry for ever"),
        pytest.param(
            {"REFOLD_TIME_LIMIT": "60"}, ["limits.time: REFOLD_TIME_LIMIT"], 0, id="a variable ends it"
        ),
        pytest.param(
            {"REFOLD_TIME_LIMIT": "60", "REFOLD_MAX_STEPS": "x"}, None, 2, id="a variable that is no value"
        ),
        pytest.param(
            {"REFOLD_TIME_LIMIT": "60", "REFOLD_RETRY_MAX_ATTEMPTS": "3"},
            ["limits.time: REFOLD_TIME_LIMIT"],
            0,
            id="a variable for what the file says",
        ),
    ],
)
def test_what_is_checked_is_what_a_run_takes(
    refold: Refold,
    scripted: Scripted,
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    settings: list[str] | None,
    code: int,
) -> None:
    """`policy check` takes and refuses what `run` does, and says what the environment set."""
    path = tmp_path / "p.yaml"
    path.write_text("schema: refold/v1\nretry: {attempts: null}\n")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    scripted([say("Done.")])
    assert code == refold("run", "Go", "--policy", path, "--store", store).code
    checked = refold("policy", "check", path, "-o", "json")
    assert code == checked.code
    assert settings == (json.loads(checked.out)["environment"] if code == 0 else None)
    assert [f"environment: {each}" for each in settings or []] == [
        line for line in refold("policy", "check", path).out.splitlines() if line.startswith("environment")
    ]


def test_warnings_and_the_prune_log_are_on_stderr(
    refold: Refold, scripted: Scripted, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is surely not meant is said once; lines about the history only where a variable asks for them."""
    (tmp_path / "p.yaml").write_text("schema: refold/v1\nhistory: [{do: tail, last: 1}]\n")
    answers = [call("write_todos", items=[]), call("write_todos", items=[]), say("Done.")]
    scripted(answers)
    ran = refold("run", "Go", "--policy", tmp_path / "p.yaml", "--store", store)
    assert (0, 1, 0) == (ran.code, ran.err.count("warning: history[0].last"), ran.err.count("refold.prune:"))
    monkeypatch.setenv("REFOLD_PRUNE_LOG", "on")
    monkeypatch.setattr(LOGGER, "handlers", [])
    before = LOGGER.level
    scripted(answers)
    try:
        ran = refold("run", "Go", "--policy", tmp_path / "p.yaml", "--store", store)
    finally:
        LOGGER.setLevel(before)
    assert 0 < ran.err.count("refold.prune: reason=window ")


def test_a_switch_that_is_neither_on_nor_off(
    refold: Refold, scripted: Scripted, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable with a typo does not pass for off."""
    monkeypatch.setenv("REFOLD_PRUNE_LOG", "maybe")
    scripted([say("Done.")])
    ran = refold("run", "Go", "--store", store)
    assert 2 == ran.code
    assert "REFOLD_PRUNE_LOG: expected one of 1, true," in ran.err


def test_a_folder_hides_no_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that happens to have a preset's name is no policy file: the preset is meant."""
    (tmp_path / "utah").mkdir()
    monkeypatch.chdir(tmp_path)
    assert parse({"preset": "utah"}) == read_policy(Path("utah"), BUILTIN)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["run", "Go", "--policy"], id="run"),
        pytest.param(["fork", "@last", "--policy"], id="fork"),
        pytest.param(["policy", "check"], id="check"),
        pytest.param(["policy", "show"], id="show"),
        pytest.param(["whatif", "@last", "--set", "limits.step=2", "--policy"], id="whatif"),
    ],
)
@pytest.mark.parametrize("policy", ["p.yaml", "guardrails"])
def test_a_policy_is_parsed_once(
    words: list[str],
    policy: str,
    refold: Refold,
    scripted: Scripted,
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """File or preset, variables and settings come together first; what was parsed is not parsed again."""
    scripted([say("Done."), say("Done.")])
    assert 0 == refold("run", "Go", "--store", store).code
    (tmp_path / "p.yaml").write_text(GOOD["p.yaml"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REFOLD_TIME_LIMIT", "60")
    parsed: list[Policy] = []

    def counted(policy: Policy) -> None:
        parsed.append(policy)
        refuse(policy)

    monkeypatch.setattr("refold.reducers.parser.refuse", counted)
    at = [] if words[0] == "policy" else ["--store", store]
    ran = refold(*words, policy, *at)
    assert (1, "") == (len(parsed), ran.err if ran.code > 1 else "")
