"""No way out of the root: by any path, through any layout of links, in any race."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from refold.engine.tools.decorator import FunctionTool
from refold.engine.tools.files import files
from refold.engine.tools.root import HAS_DESCRIPTORS, FileError, Root, names, shown
from support.strategies import scaled

SECRET = "the secret outside"
NAMES = st.sampled_from(["a", "b", "c.txt"])
PARTS = st.one_of(
    NAMES, st.sampled_from(["..", ".", "", "/", "outside", "secret", "root", "\\", "~", "a\n", "\0", "…"])
)
PATHS = st.one_of(st.lists(PARTS, max_size=6).map("/".join), st.text(max_size=20))
TARGETS = st.sampled_from(
    [
        "{top}/outside",
        "{top}/outside/secret",
        "../outside",
        "../outside/secret",
        "../../outside",
        "..",
        ".",
        "/",
        "a",
        "c.txt",
        "b/a",
    ]
)
# (where, what): a directory, a file, or a link to somewhere; made in this order, as far as each can be.
LAYOUT = st.lists(
    st.tuples(
        st.lists(NAMES, min_size=1, max_size=3).map("/".join), st.one_of(st.none(), st.just("file"), TARGETS)
    ),
    max_size=8,
)
WALKS = [pytest.param(False, id="by path")] + (
    [pytest.param(True, id="by descriptor")] if HAS_DESCRIPTORS else []
)


@pytest.fixture(scope="module", autouse=True)
def _quick_disk() -> Iterator[None]:
    """What is on disk after a power cut is not what these tests are about, and syncing takes their time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda _: None)
        yield


@contextlib.contextmanager
def world(layout: list[tuple[str, str | None]]) -> Iterator[Path]:
    """A directory with `root`, laid out, and `outside`, which holds the secret."""
    with TemporaryDirectory() as made:
        top = Path(made)
        (top / "outside").mkdir()
        (top / "outside" / "secret").write_text(SECRET)
        (top / "outside" / "a").write_text(SECRET)
        (top / "outside" / "b").mkdir()
        (top / "outside" / "b" / "secret").write_text(SECRET)
        (top / "outside" / "b" / "only-outside").write_text(SECRET)
        (top / "root").mkdir()
        for where, what in layout:
            place = top / "root" / where
            # Through a link made before this may lead outside; an existing name stays what it is.
            if any(parent.is_symlink() for parent in place.parents) or os.path.lexists(place):
                continue
            with contextlib.suppress(OSError):
                place.parent.mkdir(parents=True, exist_ok=True)
                if what is None:
                    place.mkdir()
                elif what == "file":
                    place.write_text("inside\n")
                else:
                    place.symlink_to(what.format(top=top))
        yield top


def snapshot(top: Path) -> dict[str, bytes | None]:
    """What is outside the root: every name, and the bytes of files."""
    return {
        str(path): path.read_bytes() if path.is_file() else None
        for path in sorted([*top.iterdir(), *(top / "outside").rglob("*")])
        if path != top / "root"
    }


def functions(root: Path, *, descriptors: bool) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            sys.modules["refold.engine.tools.files"], "Root", partial(Root, descriptors=descriptors)
        )
        return {made.name: cast("FunctionTool[..., str]", made).function for made in files(root)}


@pytest.mark.parametrize("descriptors", WALKS)
@given(layout=LAYOUT, path=PATHS)
@example(layout=[("a", "{top}/outside")], path="a/secret")
@example(layout=[("a/b", "../../outside")], path="a/b/secret")
@example(layout=[("c.txt", "../outside/secret")], path="c.txt")
@example(layout=[("a", None)], path="a/../../outside/secret")
@settings(max_examples=scaled(60), deadline=None)
def test_nothing_outside_is_read_or_written(
    layout: list[tuple[str, str | None]], path: str, descriptors: bool
) -> None:
    """Whatever the path and the links, no tool tells what is outside, changes it, or says where the root
    is.
    """
    with world(layout) as top:
        before = snapshot(top)
        call = functions(top / "root", descriptors=descriptors)
        for act in (
            partial(call["read_file"], path),
            partial(call["list_files"], path, recursive=True),
            partial(call["search_files"], "s", path),
            partial(call["edit_file"], path, "secret", "changed"),
            partial(call["write_file"], path, "written"),
            partial(call["read_file"], path),
            partial(call["list_files"], recursive=True),
        ):
            try:
                said = act()
            except FileError as error:
                said = str(error)
            assert SECRET not in said
            assert str(top) not in said
            assert "only-outside" not in said
        assert before == snapshot(top)


@pytest.mark.parametrize("descriptors", WALKS)
@given(layout=LAYOUT, path=st.lists(NAMES, min_size=1, max_size=3).map("/".join), text=st.text(max_size=20))
@settings(max_examples=scaled(30), deadline=None)
def test_what_was_written_is_read(
    layout: list[tuple[str, str | None]], path: str, text: str, descriptors: bool
) -> None:
    """If a write succeeds the file holds that text, it is listed, and nothing but it and its directories is
    new.
    """
    with world(layout) as top:
        root = top / "root"
        call = functions(root, descriptors=descriptors)
        before = set(root.rglob("*"))
        try:
            call["write_file"](path, text)
        except FileError:
            assert (root / path).is_dir() or any(each.exists() or each.is_symlink() for each in before)
            return
        assert text.encode() == (root / path).read_bytes()
        assert path in call["list_files"](recursive=True).split("\n")
        added = set(root.rglob("*")) - before
        assert added <= {root / path, *(root / path).parents}


@given(path=PATHS)
def test_names_never_leave(path: str) -> None:
    """What a path is taken apart into holds nothing that the system would walk up, or across, by."""
    try:
        walked = names(path)
    except FileError:
        return
    assert all(name not in {"", ".", ".."} and "/" not in name and "\0" not in name for name in walked)
    assert not os.path.isabs(path)


@given(st.text())
def test_names_are_shown_on_one_line(name: str) -> None:
    """Whatever a file is called, it is one line of printable text."""
    text = shown(name)
    assert text.isprintable()
    assert len(text) <= 301


@pytest.mark.skipif(not HAS_DESCRIPTORS, reason="needs dir_fd")
@pytest.mark.parametrize("name", ["read_file", "list_files", "search_files", "edit_file", "write_file"])
def test_a_directory_swapped_for_a_link_in_mid_walk(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that becomes a link, before it is opened or after, at any step of the walk, leads nowhere
    outside.
    """
    rest = {
        "write_file": {"content": "x"},
        "edit_file": {"old": "the", "new": "b"},
        "search_files": {"pattern": "secret"},
    }.get(name, {})
    path = "a/b" if name == "list_files" else "a/b/secret"
    swapped = True
    steps = 0
    while swapped:
        steps += 1
        with world([("a/b/secret", "file")]) as top:
            before = snapshot(top)
            call = functions(top / "root", descriptors=True)
            said = ""
            with monkeypatch.context() as patched, contextlib.suppress(FileError):
                swap_at(steps, top, patched)
                said = call[name](path=path, **rest)
            swapped = (top / "root" / "moved").exists()
            assert SECRET not in said
            assert "only-outside" not in said
            assert before == snapshot(top)
    assert steps > 3


def swap_at(step: int, top: Path, patched: pytest.MonkeyPatch) -> None:
    """Before the step-th system call of a walk, `a` moves away and becomes a link to what looks the same
    outside.
    """
    count = 0

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == step:
                os.rename(top / "root" / "a", top / "root" / "moved")
                os.symlink(top / "outside", top / "root" / "a")
            return real(*args, **kwargs)

        return wrapper

    for function in ("open", "stat", "listdir", "mkdir", "replace"):
        patched.setattr(os, function, counted(getattr(os, function)))


@pytest.mark.parametrize("descriptors", WALKS)
def test_what_is_no_file_is_not_even_opened(
    tmp_path: Path, descriptors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe or a link is refused before it is opened, which alone makes some devices act."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    with (
        Root(tmp_path, descriptors=descriptors).directory(".") as directory,
        monkeypatch.context() as patched,
    ):
        patched.delattr(os, "open")
        for name in ("pipe", "link"):
            with pytest.raises(OSError, match="not a regular file"):
                directory.file(name)


def test_a_file_swapped_for_a_pipe_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What becomes a pipe between the look and the opening is neither waited for nor read."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("x")
    with Root(tmp_path).directory(".") as directory:
        before = directory.stat("file")
        monkeypatch.setattr(directory, "stat", lambda _: before)
        with pytest.raises(OSError, match="not a regular file"):
            directory.file("pipe")


def test_a_file_swapped_for_a_link_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What becomes a link between the look and the opening is not followed, to a file inside or out."""
    (tmp_path / "outside").write_text("secret")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "file").write_text("x")
    (tmp_path / "root" / "link").symlink_to("../outside")
    with Root(tmp_path / "root").directory(".") as directory:
        before = directory.stat("file")
        monkeypatch.setattr(directory, "stat", lambda _: before)
        with pytest.raises(OSError, match=r"symbolic link|not a regular file"):
            directory.file("link")


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    """Calls that succeed and calls that fail close all that they opened."""
    (tmp_path / "link").symlink_to("a")
    call = functions(tmp_path, descriptors=HAS_DESCRIPTORS)
    before = len(os.listdir("/proc/self/fd"))
    call["write_file"]("a/b/c", "x")
    for path in ("a/b/c", "a/b", "a/x/y", "link", "a/b/c/d", "../x"):
        for name in ("read_file", "list_files"):
            with contextlib.suppress(FileError):
                call[name](path)
    call["write_file"]("/".join(["d"] * 99) + "/f", "as deep as it goes")
    call["list_files"](recursive=True)
    assert before == len(os.listdir("/proc/self/fd"))
