"""The file tools, by what a model sees of them."""

import json
import os
import stat
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from refold.engine import BadArguments, CallContext, Tool, files
from refold.engine.tools.decorator import FunctionTool
from refold.engine.tools.root import FileError
from refold.reducers.errors import WrongUse
from refold.reducers.vocabulary import Replay

CALL = CallContext(run="r", call="c1", key="k1")


class Tools:
    """The tools of a root, as plain functions."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.all = {made.name: made for made in files(root, **options)}

    def __getattr__(self, name: str) -> Callable[..., str]:
        return cast("FunctionTool[..., str]", self.all[name]).function


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "docs" / "deep").mkdir(parents=True)
    (root / "docs" / "a.md").write_text("one\ntwo\nthree\n")
    (root / "docs" / "deep" / "b.py").write_text("def two(): ...\n")
    (root / "z.bin").write_bytes(b"\0two\0")
    return root


def test_which_tools_there_are(root: Path) -> None:
    """Reading tools are read_only; the writing ones are there unless refused, each with its replay class."""
    reading = {
        "read_file": Replay.READ_ONLY,
        "list_files": Replay.READ_ONLY,
        "search_files": Replay.READ_ONLY,
    }
    writing = {"write_file": Replay.IDEMPOTENT, "edit_file": Replay.AT_MOST_ONCE}
    assert reading == {made.name: made.manifest.replay for made in files(root, write=False)}
    assert reading | writing == {made.name: made.manifest.replay for made in files(root)}


def test_equal_code_has_equal_digests_for_every_root(root: Path, tmp_path: Path) -> None:
    """Where the root is does not show in the tools' digests, so that recordings agree between machines."""
    assert [made.manifest.digest for made in files(root)] == [
        made.manifest.digest for made in files(tmp_path)
    ]


@pytest.mark.anyio
async def test_through_the_engines_door(root: Path) -> None:
    """With arguments as JSON text a tool does its work, and wrong arguments are named."""
    tools = {made.name: made for made in files(root)}
    assert "one\ntwo\nthree\n" == await tools["read_file"].run('{"path": "docs/a.md"}', CALL)
    with pytest.raises(BadArguments, match=r">= 1 - at `\$\.offset`"):
        await tools["read_file"].run('{"path": "docs/a.md", "offset": 0}', CALL)


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        pytest.param(
            "/etc/passwd",
            "absolute paths are not allowed; relative to the root, that is etc/passwd",
            id="absolute",
        ),
        pytest.param("../x", "leaves the root", id="above"),
        pytest.param("docs/../../root/z.bin", "leaves the root", id="above and back"),
        pytest.param("none", "does not exist; list_files shows", id="missing"),
        pytest.param("none/a", "does not exist; list_files shows", id="missing directory"),
        pytest.param("z.bin/a", "a part of it is a file", id="through a file"),
        pytest.param("a\0b", "not a file name", id="a zero byte"),
        pytest.param("a\udcff", "not a file name", id="a byte that is not UTF-8"),
        pytest.param("x" * 300, "the name is too long", id="a long name"),
        pytest.param("x/" * 101, "a path has at most 100 names", id="a deep path"),
        pytest.param("x/" * 3000, "a path has at most 4096 characters", id="a long path"),
    ],
)
@pytest.mark.parametrize("name", ["read_file", "list_files", "search_files", "edit_file", "write_file"])
def test_paths_that_lead_nowhere(root: Path, name: str, path: str, problem: str) -> None:
    """Each tool refuses each of them with the reason and the path as given, and never tells where the root
    is.
    """
    if name == "write_file" and problem.startswith("does not exist"):
        return
    rest = {
        "write_file": {"content": "x"},
        "edit_file": {"old": "a", "new": "b"},
        "search_files": {"pattern": "x"},
    }.get(name, {})
    before = sorted(root.rglob("*"))
    with pytest.raises(FileError, match=problem) as caught:
        getattr(Tools(root), name)(path=path, **rest)
    assert str(root.parent) not in str(caught.value)
    assert before == sorted(root.rglob("*"))


def test_what_is_no_file_is_not_opened(root: Path) -> None:
    """Directories, pipes and links are refused by name, for reading and for writing, at once and unharmed."""
    os.mkfifo(root / "pipe")
    (root / "link").symlink_to("docs/a.md")
    (root / "away").symlink_to(root.parent)
    tools = Tools(root)
    for path, problem in {
        "docs": "is a directory",
        ".": "is the root directory",
        "pipe": "is a device, pipe or socket",
        "link": "symbolic link",
        "away/root/z.bin": "symbolic link",
    }.items():
        for refused in (
            partial(tools.read_file, path),
            partial(tools.write_file, path, "x"),
            partial(tools.edit_file, path, "one", "1"),
        ):
            with pytest.raises(FileError, match=problem):
                refused()
    assert stat.S_ISFIFO((root / "pipe").stat().st_mode)
    assert "one\ntwo\nthree\n" == (root / "link").read_text()


def test_reading_in_pages(root: Path) -> None:
    """A page is as long as the root's tools were told, and says how to go on."""
    tools = Tools(root, page_size=8)
    assert "one\ntwo\n[lines 1 to 2 of 3; go on with offset 3]" == tools.read_file("docs/a.md")
    assert "three\n[lines 3 to 3 of 3]" == tools.read_file("./docs//deep/../a.md", offset=3)


def test_writing(root: Path) -> None:
    """A write makes directories, replaces the whole file, keeps its permissions and leaves nothing else
    behind.
    """
    tools = Tools(root)
    assert "new/dir/f.txt: created, 3 bytes" == tools.write_file("new/dir/f.txt", "é\n")
    assert "é\n".encode() == (root / "new/dir/f.txt").read_bytes()
    (root / "new/dir/f.txt").chmod(0o750)
    assert "new/dir/f.txt: replaced, 0 bytes" == tools.write_file("new/dir/f.txt", "")
    assert 0o750 == stat.S_IMODE((root / "new/dir/f.txt").stat().st_mode)
    assert ["f.txt"] == os.listdir(root / "new/dir")


def test_a_hard_link_is_replaced_not_written_through(root: Path) -> None:
    """A write to a name that shares its file with one outside leaves the one outside as it was."""
    outside = root.parent / "outside"
    outside.write_text("kept")
    os.link(outside, root / "shared")
    Tools(root).write_file("shared", "changed")
    assert ("kept", "changed") == (outside.read_text(), (root / "shared").read_text())


@pytest.mark.parametrize("broken", ["write", "replace", "fsync"])
def test_a_write_that_fails_changes_nothing(root: Path, broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the disk fails in the middle the old text is whole, and no temporary file is left."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", str(root))

    class Full:
        def __init__(self, file: Any) -> None:
            self.file = file

        def __enter__(self) -> "Full":
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        write = staticmethod(fail)

    with monkeypatch.context() as patched:
        if broken == "write":
            fdopen = os.fdopen
            patched.setattr(os, "fdopen", lambda fd, mode: Full(fdopen(fd, mode)))
        else:
            patched.setattr(os, broken, fail)
        with pytest.raises(FileError, match=r"^docs/a\.md: the disk is full; nothing was changed$"):
            Tools(root).write_file("docs/a.md", "new")
    assert "one\ntwo\nthree\n" == (root / "docs/a.md").read_text()
    assert ["a.md", "deep"] == sorted(os.listdir(root / "docs"))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        pytest.param(b"one\0", "is binary", id="binary"),
        pytest.param(b"one\xff", "not UTF-8 at byte 3", id="not UTF-8"),
        pytest.param(b"one\none", "occurs 2 times", id="twice"),
        pytest.param(b"one" + b"x" * (4 * 1024 * 1024), "larger than 4194304 bytes", id="large"),
    ],
)
def test_edits_that_are_refused(root: Path, data: bytes, problem: str) -> None:
    """A file that cannot be edited without damage, or without doubt, stays as it was."""
    (root / "f").write_bytes(data)
    with pytest.raises(FileError, match=f"^f: .*{problem}"):
        Tools(root).edit_file("f", "one", "two")
    assert data == (root / "f").read_bytes()


def test_an_edit_keeps_every_other_byte(root: Path) -> None:
    """A byte order mark, line ends of either kind and the permissions survive an edit."""
    (root / "f").write_bytes(b"\xef\xbb\xbfa\r\nb\nc\r")
    (root / "f").chmod(0o640)
    assert "f: edited at line 2" == Tools(root).edit_file("f", "b", "é")
    assert b"\xef\xbb\xbfa\r\n\xc3\xa9\nc\r" == (root / "f").read_bytes()
    assert 0o640 == stat.S_IMODE((root / "f").stat().st_mode)


def test_edits_side_by_side_are_all_kept(root: Path) -> None:
    """Edits of one file from several threads at once lose nothing."""
    names = [f"<{number}>" for number in range(16)]
    (root / "f").write_text("\n".join(names))
    edit = Tools(root).edit_file
    threads = [threading.Thread(target=edit, args=("f", name, name.strip("<>"))) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "\n".join(map(str, range(16))) == (root / "f").read_text()


def test_listing(root: Path) -> None:
    """A listing is in order, marks directories and what cannot be opened, and goes down only if asked to."""
    (root / "docs" / "link").symlink_to("/etc")
    (root / "docs" / "two\nlines").write_text("")
    (root / ".git" / "objects").mkdir(parents=True)
    tools = Tools(root)
    assert ".git/\ndocs/\nz.bin" == tools.list_files()
    below = [
        "docs/a.md",
        "docs/deep/",
        "docs/deep/b.py",
        "docs/link [symbolic link: cannot be opened]",
        "'docs/two\\nlines'",
    ]
    assert [line for line in below if "b.py" not in line] == tools.list_files("./docs/").split("\n")
    assert [".git/", "docs/", *below, "z.bin"] == tools.list_files(recursive=True).split("\n")
    (root / "empty").mkdir()
    assert "[the directory is empty]" == tools.list_files("empty")


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        pytest.param(
            {"pattern": "two"}, ["docs/a.md:2: two", "docs/deep/b.py:1: def two(): ..."], id="everywhere"
        ),
        pytest.param({"pattern": "two", "glob": "*.py"}, ["docs/deep/b.py:1: def two(): ..."], id="by name"),
        pytest.param({"pattern": "two", "glob": "docs/*.md"}, ["docs/a.md:2: two"], id="by path"),
        pytest.param(
            {"pattern": "two", "path": "docs/deep"}, ["docs/deep/b.py:1: def two(): ..."], id="below"
        ),
        pytest.param({"pattern": "two", "path": "docs/a.md"}, ["docs/a.md:2: two"], id="one file"),
        pytest.param({"pattern": "TWO"}, ["[nothing found]"], id="case counts"),
        pytest.param({"pattern": "THREE", "ignore_case": True}, ["docs/a.md:3: three"], id="unless not"),
        pytest.param({"pattern": "t.o"}, ["[nothing found]"], id="nothing has a meaning of its own"),
    ],
)
def test_searching(root: Path, arguments: dict[str, Any], lines: list[str]) -> None:
    """One row a rule; binary files are never searched, links never followed."""
    (root / "link.md").symlink_to("docs/a.md")
    assert lines == Tools(root).search_files(**arguments).split("\n")


def test_long_lines_are_shown_around_the_place(root: Path) -> None:
    """Of a long line the part with the text is shown, and that it is a part."""
    (root / "long").write_text("x" * 5000 + "here" + "y" * 5000)
    (line,) = Tools(root).search_files("here").split("\n")
    assert line.startswith("long:1: …x")
    assert line.endswith("y…")
    assert "here" in line
    assert len(line) < 250


def test_answers_say_when_a_bound_was_met(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No bound is met in silence, whichever it is."""
    for number in range(8):
        (root / f"f{number}").write_text("two\n" * 4)
    tools = Tools(root)
    search = sys.modules["refold.engine.tools.search"]
    with monkeypatch.context() as patched:
        patched.setattr(search, "MAX_LISTED", 3)
        assert "docs/\nf0\nf1\n[the first 3 of more; list a directory further down]" == tools.list_files()
    with monkeypatch.context() as patched:
        patched.setattr(search, "MAX_VISITED", 2)
        assert tools.list_files().endswith("[the first 2 of more; list a directory further down]")
    for bound, value, note in (
        ("MAX_FOUND", 3, "[the first 3 of more; narrow it down]"),
        ("MAX_BYTES", 40, "only the first 40 bytes were searched]"),
        ("MAX_FILE", 10, "[the ends of large files were not searched]"),
        ("MAX_VISITED", 4, "[only the first 4 names were looked at]"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(search, bound, value)
            assert tools.search_files("two").endswith(note)


@pytest.mark.parametrize("path", ["none", "root/docs/a.md", "a\0b"])
def test_a_root_that_is_none(root: Path, path: str) -> None:
    """A root that is no directory is refused before any run."""
    with pytest.raises(WrongUse, match=r"root .*: give"):
        files(root.parent / path)


def test_schemas_are_json(root: Path) -> None:
    """Every schema is an object that stands alone."""
    for made in files(root):
        assert isinstance(made, Tool)
        decoded = json.loads(made.manifest.schema)
        assert "object" == decoded["type"]
        assert "$ref" not in made.manifest.schema
        assert all("description" in each for each in decoded["properties"].values())
