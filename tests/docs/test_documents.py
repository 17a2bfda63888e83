"""Every block of every document runs: what a reader is told to type works, and prints what the page says.

A document runs from top to bottom in a directory of its own, as a reader would:

- `python` blocks share one namespace. One that begins with `# some_name.py` is a file to save, not to run.
- `console` blocks go to one shell a document: lines that begin with `$ ` are typed, `> ` carries a command
  on, the rest is what the terminal must show. A command that fails must be followed by one that shows its
  exit code.
- `toml`, `yaml` and `json` blocks are policies, unless they begin with the name of another file; with a name,
  they are files to save as well.
- `sql` blocks are asked of `runs.db`, as the sqlite3 shell would be.
- `text` right after `python` or `sql` is what that prints. Anywhere else it is a picture.

In what must be printed `...` stands for anything. `<!-- not run: why -->` before a block leaves it out, and
is counted here. Nothing reaches the network.
"""

import json
import linecache
import os
import re
import shlex
import socket
import sqlite3
import subprocess
import sys
import tomllib
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from refold.console.main import main as refold
from refold.engine.policy_files import insert_nulls
from refold.engine.yaml_text import load
from refold.reducers import PolicyError, parse
from support.documents import FENCE, Block, blocks, commands, matches
from testing.conftest import ALONE

ROOT = Path(__file__).resolve().parents[2]
# Its figures are written by `make bench`; what it shows of code is that of the benchmark.
GENERATED = {"docs/reference/performance.md"}
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = [path for path in DOCUMENTS if path.relative_to(ROOT).as_posix() not in GENERATED]

# How many blocks of each document nobody runs, because they need what a test must not have. A longer list is
# a decision, not an accident.
NOT_RUN = {
    "README.md": 2,  # `make`, and `pip install`
    "docs/how-to/ask-a-person-first.md": 1,  # a model, to go on after an answer typed in a shell
    "docs/how-to/ask-with-sql.md": 1,  # `pip install`
    "docs/how-to/audit-on-a-cluster.md": 1,  # a cluster
    "docs/how-to/many-machines.md": 3,  # `pip install`, `createdb`; a second store; a key
    "docs/how-to/make-a-test-of-a-run.md": 1,  # what another refold would print
    "docs/how-to/prove-a-log-was-not-edited.md": 1,  # a crontab
    "docs/how-to/read-a-log-with-sqlite3.md": 1,  # the sqlite3 shell; the queries run
    "docs/how-to/run-in-production.md": 1,  # the sqlite3 shell
    "docs/how-to/run-workers.md": 2,  # a model, a server
    "docs/how-to/start-from-a-preset.md": 2,  # a model
    "docs/how-to/use-another-model.md": 2,  # a key, a server
    "docs/how-to/write-an-importer.md": 1,  # `pip install`
    "docs/tutorial/first-run.md": 2,  # `pip install`, and the embedded model
}

# Files of data that are no policies: a tool reads the first, a later command of the same document the others.
NO_POLICIES = ("pyproject.toml", "prices.yaml", "contexts.yaml")

LANGUAGES = {"python", "console", "toml", "yaml", "json", "sql", "text", "mermaid"}
_MARK = "end-of-command"
# A command of ours that needs no shell is run in this process: a second for each would be minutes.
_SIMPLE = re.compile(r"refold [^|&;<>$`\n]*")
_EXPORT = re.compile(r"export (\w+)=")

each_document = pytest.mark.parametrize("path", RUN, ids=[path.relative_to(ROOT).as_posix() for path in RUN])


DATABASE = "postgresql://agents@db.example/agents"
"""The database of documents: a real one stands for it."""


class Shell:
    """One bash for a document, so that what a reader exports and where they go stays so."""

    def __init__(self, folder: Path) -> None:
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env={**os.environ, "PATH": programs, "PYTEST_ADDOPTS": " ".join(ALONE)},
        )
        self._send("again() { return $1; }")

    def run(self, command: str) -> tuple[str, int]:
        """Type a command; what it printed, errors among it, and its exit code."""
        self._send(f"{{ {command}\n}} </dev/null\n__code=$?; echo; echo {_MARK} $__code; again $__code")
        assert self._bash.stdout is not None
        printed: list[str] = []
        for line in self._bash.stdout:
            if line.startswith(_MARK):
                return "".join(printed), int(line.split()[1])
            printed.append(line)
        raise AssertionError(f"the shell ended at: {command}")

    def _send(self, text: str) -> None:
        assert self._bash.stdin is not None
        self._bash.stdin.write(text + "\n")
        self._bash.stdin.flush()

    def close(self) -> None:
        self._bash.communicate(timeout=10)


class Reader:
    """Somebody who reads a document in a fresh directory, and does all that it says."""

    def __init__(self, path: Path, folder: Path, capture: pytest.CaptureFixture[str], database: str) -> None:
        self.path, self.folder, self.capture, self.database = path, folder, capture, database
        self.module = types.ModuleType("document")
        self.shell: Shell | None = None
        self.printed = ""

    def read(self) -> None:
        for block in blocks(self.path):
            if not block.not_run:
                text = block.text.replace(DATABASE, self.database)
                getattr(self, f"_{block.language}")(block._replace(text=text))

    def close(self) -> None:
        if self.shell is not None:
            self.shell.close()

    def _python(self, block: Block) -> None:
        if block.file:
            compile(block.text, block.file, "exec")
            self._save(block)
            return
        name = f"<{self.path.name}:{block.line}>"
        text = "\n" * (block.line - 1) + block.text  # so that a traceback names the document's own line
        # A tool's digest and a traceback want the source.
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        code = compile(text, name, "exec", dont_inherit=True)
        self.capture.readouterr()
        exec(code, self.module.__dict__)
        self.printed = self.capture.readouterr().out

    def _text(self, block: Block) -> None:
        if block.follows in ("python", "sql"):
            self._must_show(block, block.text, self.printed)

    def _console(self, block: Block) -> None:
        typed = list(commands(block.text))
        for place, (command, expected) in enumerate(typed):
            printed, code = self._typed(command)
            shown = place + 1 < len(typed) and "echo $?" in typed[place + 1][0]
            assert code == 0 or shown, f"{self.path.name}:{block.line}: `{command}` exits {code}:\n{printed}"
            if expected.strip():
                self._must_show(block, expected, printed, command)

    def _typed(self, command: str) -> tuple[str, int]:
        """What a command prints, and its exit code."""
        shell = self.shell = self.shell or Shell(self.folder)
        if _SIMPLE.fullmatch(command):
            self.capture.readouterr()
            code = refold(shlex.split(command)[1:])
            shown = self.capture.readouterr()
            shell.run(f"again {code}")  # a command that follows may ask for `$?`
            return shown.out + shown.err, code
        printed, code = shell.run(command)
        if exported := _EXPORT.match(command):
            os.environ[exported[1]] = shell.run(f'echo -n "${exported[1]}"')[0].removesuffix("\n")
        return printed, code

    def _sql(self, block: Block) -> None:
        with sqlite3.connect(f"file:{self.folder / 'runs.db'}?mode=ro", uri=True) as connection:
            rows = connection.execute(block.text).fetchall()
        connection.close()
        self.printed = "\n".join("|".join("" if cell is None else str(cell) for cell in row) for row in rows)

    def _toml(self, block: Block) -> None:
        self._data(block, insert_nulls(tomllib.loads(block.text)))

    def _yaml(self, block: Block) -> None:
        self._data(block, load(block.text))

    def _json(self, block: Block) -> None:
        self._data(block, json.loads(block.text))

    def _mermaid(self, block: Block) -> None:
        """Pictures are for people; that of the machine has a test of its own."""

    def _data(self, block: Block, data: Any) -> None:
        if block.file:
            self._save(block)
        if block.file not in NO_POLICIES:
            parse(data)

    def _save(self, block: Block) -> None:
        (self.folder / block.file).write_text(block.text, encoding="utf-8")

    def _must_show(self, block: Block, expected: str, printed: str, command: str = "") -> None:
        what = f"`{command}`" if command else "the block before it"
        assert matches(expected, printed), (
            f"{self.path.name}:{block.line}: {what} prints\n{printed}\nand not\n{expected}"
        )


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A fresh directory and home, without the user's settings or keys, and without network."""
    connect = socket.socket.connect

    def refuse(self: socket.socket, address: Any) -> None:
        if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise AssertionError(f"a document connects to {address}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.chdir(tmp_path)
    before = dict(os.environ)
    for variable in before:
        # In CI, pytest repeats whole failures in its summary, which a reader's terminal does not show.
        ci = variable in ("CI", "BUILD_NUMBER")
        if ci or variable.startswith(("REFOLD_", "XDG_")) or variable.endswith("_API_KEY"):
            del os.environ[variable]
    (tmp_path / ".home").mkdir()
    (tmp_path / "transcripts").symlink_to(ROOT / "tests" / "transcripts")
    os.environ.update(HOME=str(tmp_path / ".home"), COLUMNS="100", PYTHONUTF8="1")
    yield
    os.environ.clear()  # with what the document exported
    os.environ.update(before)


@each_document
@pytest.mark.usefixtures("alone")
def test_every_block_does_what_it_says(
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    """A reader who types what the document says sees what it shows."""
    monkeypatch.syspath_prepend(str(tmp_path))
    database = DATABASE in path.read_text(encoding="utf-8")
    reader = Reader(path, tmp_path, capsys, request.getfixturevalue("postgres") if database else "")
    monkeypatch.setitem(sys.modules, "document", reader.module)
    before = set(sys.modules)
    try:
        reader.read()
    finally:
        reader.close()
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
                del sys.modules[name]


@each_document
def test_every_block_is_of_a_kind_that_runs(path: Path) -> None:
    """No block escapes by its language, by being indented, or by a fence that is never closed."""
    text = path.read_text(encoding="utf-8")
    found = blocks(path)
    assert {block.language for block in found} <= LANGUAGES
    assert 2 * len(found) == len(re.findall(r"^[ \t]*(?:```|~~~)", text, re.MULTILINE))


@each_document
def test_every_file_to_save_is_used(path: Path) -> None:
    """A file that a reader is told to save is run, read or imported by a later block."""
    found = blocks(path)
    for place, block in enumerate(found):
        if block.file and block.file != "pyproject.toml":
            used = re.compile(
                rf"\b{re.escape(block.file)}\b|\b(?:import|from) {re.escape(Path(block.file).stem)}\b"
            )
            later = "".join(other.text for other in found[place + 1 :])
            assert used.search(later), f"{path.name}:{block.line}: {block.file} is saved and never used"


def test_what_is_not_run_is_counted() -> None:
    """Blocks that are left out are those listed here, each with its reason."""
    left_out = {
        path.relative_to(ROOT).as_posix(): [
            f"{block.line}: {block.not_run}" for block in blocks(path) if block.not_run
        ]
        for path in RUN
    }
    counted = {name: len(reasons) for name, reasons in left_out.items() if reasons}
    assert NOT_RUN == counted, json.dumps(left_out, indent=1)


def anchors(path: Path) -> set[str]:
    """The names by which headings of a document can be linked to, as GitHub makes them."""
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", DOCUMENTS, ids=[path.relative_to(ROOT).as_posix() for path in DOCUMENTS])
def test_links_lead_somewhere(path: Path) -> None:
    """Every link to a file of the project finds the file, and the heading in it."""
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\((?![a-z]+:)([^)\s]+)\)", text):
        name, _, anchor = target.partition("#")
        there = (path.parent / name).resolve() if name else path
        assert there.exists(), f"{path.name}: {target} leads nowhere"
        assert not anchor or anchor in anchors(there), f"{path.name}: {target}: no such heading"


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        pytest.param("a\nb", "a  \nb\n\n", True, id="white space at the ends is nothing"),
        pytest.param("a ... c", "a 1 2 c", True, id="three dots are anything"),
        pytest.param("a\n...\nd", "a\nb\nc\nd", True, id="also several lines"),
        pytest.param("a ...", "b 1", False, id="but the rest counts"),
        pytest.param("a.c", "abc", False, id="one dot is a dot"),
        pytest.param("a", "a\nb", False, id="nothing more may be printed"),
    ],
)
def test_matching(expected: str, printed: str, same: bool) -> None:
    """Output is compared as documents promise."""
    assert same == matches(expected, printed)


def test_a_wrong_document_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each way in which a page can be wrong is found; else all the rest here would prove nothing."""
    wrong = (
        "```python\n1 / 0\n```\n",
        "```python\nprint(1)\n```\n\n```text\n2\n```\n",
        "```console\n$ false\n```\n",
        "```console\n$ echo a b\na c\n```\n",
        "```toml\nlimts = []\n```\n",
    )
    for number, text in enumerate(wrong):
        folder = tmp_path / str(number)
        folder.mkdir()
        page = folder / "page.md"
        page.write_text(text)
        reader = Reader(page, folder, capsys, "")
        with pytest.raises((AssertionError, ZeroDivisionError, PolicyError)):
            reader.read()
        reader.close()
        capsys.readouterr()
