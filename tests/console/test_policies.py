"""Policy files: what is read, and what each refusal says."""

from pathlib import Path

import pytest

from refold.console.policies import PolicyFileError, read_policy
from refold.reducers.guards import BUILTIN
from refold.reducers.limits import StepLimit

GOOD = {
    "p.toml": '[[limits]]\ntype = "step"\nvalue = 3\n',
    "p.yaml": "limits:\n  - type: step\n    value: 3\n",
    "p.yml": "limits: [{type: step, max: 3}]\n",
    "p.json": '{"limits": [{"type": "step", "value": 3}]}',
}


@pytest.mark.parametrize(("name", "text"), GOOD.items(), ids=GOOD)
def test_three_formats_say_the_same(name: str, text: str, tmp_path: Path) -> None:
    """A limit means the same in TOML, YAML and JSON."""
    (tmp_path / name).write_text(text)
    assert (StepLimit(name="step", value=3),) == read_policy(tmp_path / name, BUILTIN).limits


def test_an_empty_yaml_is_the_default(tmp_path: Path) -> None:
    """A YAML file with comments only is a policy without a word."""
    (tmp_path / "p.yaml").write_text("# nothing yet\n")
    assert (StepLimit(name="step", value=50),) == read_policy(tmp_path / "p.yaml", BUILTIN).limits


BAD = [
    pytest.param("p.toml", '[[limits]]\ntype="step"\nvalue="ten"\n', 'limits[0].value: expected a whole number or null, got "ten"', id="toml: a wrong type"),
    pytest.param("p.toml", "limits = [\n  x", "line 2, column 3", id="toml: bad syntax"),
    pytest.param("p.toml", "batch = 1\nbatch = 2\n", "line 2", id="toml: a key twice"),
    pytest.param("p.json", '{"limits": 1,}', "line 1, column 14", id="json: bad syntax"),
    pytest.param("p.json", '{"batch": 1, "batch": 2}', "'batch' stands twice", id="json: a key twice"),
    pytest.param("p.json", "[1]", "a policy is a mapping", id="json: no mapping"),
    pytest.param("p.json", "[" * 100_000, "nested too deeply", id="json: a pit"),
    pytest.param("p.json", '{"limits": [{"type": "time", "value": NaN}]}', "limits[0].value: expected a finite number", id="json: not a number"),
    pytest.param("p.yaml", "limits: [", "line 1, column 10", id="yaml: bad syntax"),
    pytest.param("p.yaml", "batch: a\nlimits: []\nbatch: b\n", "'batch' stands twice; keep one (at line 3, column 1)", id="yaml: a key twice"),
    pytest.param("p.yaml", "a: &a [1]\nb: *a\n", "alias; write its value out (at line 2, column 4)", id="yaml: an alias"),
    pytest.param("p.yaml", "a: !!python/object/apply:os.system [id]\n", "is no YAML", id="yaml: an object"),
    pytest.param("p.yaml", "limit: 3\n", "limit: unknown key", id="an unknown key"),
    pytest.param("p.txt", "", "expected a file that ends in .toml", id="another suffix"),
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
    with pytest.raises(PolicyFileError, match="too large for a policy"):
        read_policy(tmp_path / "p.json", BUILTIN)
