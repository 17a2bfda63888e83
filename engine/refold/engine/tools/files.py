"""Files below one root, as tools: read, list and search; write and edit if wanted.

`root.py` says what can be reached. Everything is bounded: a read is a page of a file, an answer says when there is
more and how to get it, and nothing is matched by a regular expression of a model's making.
"""

import os
import stat
import threading
from typing import Annotated

from msgspec import Meta

from refold.engine.tools.decorator import tool
from refold.engine.tools.edits import EditError, replace_once
from refold.engine.tools.pages import page
from refold.engine.tools.protocol import Tool
from refold.engine.tools.root import FileError, Root, is_file, refuse_link, shown
from refold.engine.tools.search import Query, search
from refold.engine.tools.tree import listing
from refold.reducers.text import clean, size_of

PAGE = (
    12 * 1024
)  # bytes of a file an answer holds: below the default cap of an output, so that no page is cut
MAX_EDIT = 4 * 1024 * 1024  # bytes; an edit holds the file in memory, twice

Line = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Count = Annotated[int, Meta(ge=1, le=100_000)]
Text = Annotated[str, Meta(min_length=1, max_length=1000)]
Glob = Annotated[str, Meta(min_length=1, max_length=100)]  # short, for its cost is length times length


def files(root: str | os.PathLike[str], *, write: bool = True, page_size: int = PAGE) -> list[Tool]:
    """Tools for the files below `root`: `read_file`, `list_files`, `search_files`, and to write `write_file`, `edit_file`.

    Paths are relative to the root; nothing reaches beyond it, by `..`, an absolute path or a symbolic link (links
    are refused even within). `page_size` is in bytes: how much of a file one call of `read_file` answers with.
    Errors name the path as the model gave it and never the root. Raises `WrongUse` if `root` is no directory.
    """
    place = Root(root)
    return [*_readers(place, page_size), *(_writers(place) if write else [])]


def _readers(root: Root, page_size: int) -> list[Tool]:
    @tool(replay="read_only")
    def read_file(path: str, offset: Line = 1, limit: Count = 2000) -> str:
        """Read a text file.

        Args:
            path: file to read, relative to the root
            offset: first line to read, from 1
            limit: how many lines at most
        """
        with root.parent(path) as (directory, name):
            _require_file(directory.stat(name), path)
            with os.fdopen(directory.file(name), "rb") as file:
                return page(file, shown(path), offset, limit, page_size)

    @tool(replay="read_only")
    def list_files(path: str = ".", recursive: bool = False) -> str:  # noqa: FBT001, FBT002 - a model names it
        """List the files of a directory. Names of directories end with a slash.

        Args:
            path: directory to list, relative to the root
            recursive: list the directories in it too, as far down as they go
        """
        return listing(root, path, recursive=recursive)

    @tool(replay="read_only")
    def search_files(pattern: Text, path: str = ".", glob: Glob = "*", ignore_case: bool = False) -> str:  # noqa: FBT001, FBT002
        """Find the lines of text files that contain a text. Gives path:line: text.

        Args:
            pattern: the text to find, taken literally
            path: file or directory to search, relative to the root
            glob: which files, by name, like *.py
            ignore_case: let A match a
        """
        return search(root, path, Query(pattern, glob, ignore_case))

    return [read_file, list_files, search_files]


def _writers(root: Root) -> list[Tool]:
    # Calls of a batch run side by side: of two edits of one file the second must see what the first wrote.
    writing = threading.Lock()

    @tool(replay="idempotent")
    def write_file(path: str, content: str) -> str:
        """Write a text file. It is made, with its directories, or replaced as a whole.

        Args:
            path: file to write, relative to the root
            content: the whole text of the file
        """
        text = clean(content)
        with writing, root.parent(path, create=True) as (directory, name):
            try:
                mode = _require_file(directory.stat(name), path)
            except FileNotFoundError:
                mode = None
            directory.replace(name, text.encode(), mode)
        return f"{shown(path)}: {'replaced' if mode is not None else 'created'}, {size_of(text)} bytes"

    @tool(replay="at_most_once")
    def edit_file(path: str, old: str, new: str) -> str:
        """Replace a piece of a text file. The piece must occur exactly once.

        Args:
            path: file to edit, relative to the root
            old: the text to replace, exactly as it stands in the file
            new: the text to put there
        """
        with writing, root.parent(path) as (directory, name):
            mode = _require_file(directory.stat(name), path)
            with os.fdopen(directory.file(name), "rb") as file:
                text = _editable(file.read(MAX_EDIT + 1), path)
            try:
                edit = replace_once(text, old, clean(new))
            except EditError as error:
                raise FileError(f"{shown(path)}: {error}") from error
            directory.replace(name, edit.text.encode(), mode)
        return f"{shown(path)}: edited at line {edit.line}"

    return [write_file, edit_file]


def _require_file(status: os.stat_result, path: str) -> int:
    """The permission bits of a regular file; a `FileError` says what it is instead."""
    refuse_link(status, path)
    if stat.S_ISDIR(status.st_mode):
        raise FileError(f"{shown(path)}: is a directory; list_files shows what is in it")
    if not is_file(status):
        raise FileError(f"{shown(path)}: is a device, pipe or socket, not a file; it is never opened")
    return stat.S_IMODE(status.st_mode) & 0o777


def _editable(data: bytes, path: str) -> str:
    """The text of a file, exact to the byte: what is not UTF-8 could not be written back as it was."""
    if len(data) > MAX_EDIT:
        raise FileError(
            f"{shown(path)}: is larger than {MAX_EDIT} bytes, too large to edit; write a new file instead"
        )
    if b"\0" in data:
        raise FileError(f"{shown(path)}: is binary, not text, and cannot be edited")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FileError(
            f"{shown(path)}: is not UTF-8 at byte {error.start}, so it cannot be edited without damage"
        ) from error
