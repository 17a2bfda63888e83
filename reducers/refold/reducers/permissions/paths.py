"""Paths in permission rules: gitignore globs over the normalised path of an argument.

Paths are normalised by their text alone, against the recorded working directory and home. Symbolic links are
not resolved, because a log does not record them: a rule does not see that a path leads elsewhere.
"""

import re
from functools import lru_cache

import msgspec

from refold.reducers.patterns import matches, problem_of

_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_PARTS = re.compile(r"/\*\*/|^\*\*/|/\*\*$|\*\*|\*|\?|\[[!^]?\]?[^\]/]*\]|\\.|.", re.DOTALL)


class Folders(msgspec.Struct, frozen=True):
    """The working directory and the home of a run, as absolute paths; "" if not recorded."""

    cwd: str = ""
    home: str = ""


class Location(msgspec.Struct, frozen=True):
    """Where a path is: absolute, and relative to the working directory. None: unknown.

    `relative` is "" for a path outside the working directory.
    """

    absolute: str | None
    relative: str | None


@lru_cache(maxsize=64)  # each rule asks about the same few paths
def locate(path: str, folders: Folders) -> Location:
    """Return where a path is. Total: what cannot be known is None."""
    path = _with_slashes(path)
    cwd, home = _normalise_folder(folders.cwd), _normalise_folder(folders.home)
    if path == "~" or path.startswith("~/"):
        if not home:
            return Location(None, None)
        path = home + path[1:]
    elif path.startswith("~"):  # another user's home
        return Location(None, None)
    if path.startswith("/"):
        absolute = _normalise(path)
        return Location(absolute, _below(absolute, cwd) if cwd else None)
    inner = _normalise(path)
    if cwd:
        absolute = _normalise(f"{cwd}/{path}")
        return Location(absolute, _below(absolute, cwd))
    outside = inner == ".." or inner.startswith("../")
    return Location(None, None if outside else inner)


def path_matches(glob: str, location: Location, folders: Folders) -> bool | None:
    """Return whether a gitignore glob matches a path; None: unknown.

    A glob that begins with `/` or `~/` is compared with the absolute path. Others are relative to the working
    directory: at any depth, unless a `/` is at the beginning (`./`) or in the middle. A match of a folder
    matches all that is in it. Where the folder that a glob is relative to is not recorded, a path that does
    not match in any folder does not match.
    """
    glob = _with_slashes(glob)
    below_home = glob == "~" or glob.startswith("~/")
    if below_home and folders.home:
        glob = _normalise_folder(folders.home) + glob[1:]
    elif below_home:
        return _search_anywhere(glob[2:], location)
    if glob.startswith("/"):
        return _search(glob, location.absolute[1:]) if location.absolute else _search_anywhere(glob, location)
    if location.relative is None:
        return _search_anywhere(glob, location)
    return bool(location.relative) and _search(glob, location.relative)


def _search_anywhere(glob: str, location: Location) -> bool | None:
    """Return False if the glob matches in no folder, else None."""
    path = location.absolute or location.relative
    inner = glob.removeprefix("./").strip("/")
    if path is None or not location.absolute:  # a relative path may be below any part of the glob
        return None
    return None if _search(f"**/{inner}" if inner else "**", path.strip("/")) else False


@lru_cache(maxsize=64)
def _normalise_folder(folder: str) -> str:
    return _normalise(_with_slashes(folder))


def _with_slashes(path: str) -> str:
    return "/" + path.replace("\\", "/") if _DRIVE.match(path) else path


def _normalise(path: str) -> str:
    """Remove `.`, `..` and repeated slashes. A leading `..` of a relative path stays."""
    if not path:
        return ""
    kept: list[str] = []
    rooted = path.startswith("/")
    for part in path.split("/"):
        if part == ".." and kept and kept[-1] != "..":
            kept.pop()
        elif part not in ("", ".") and not (part == ".." and rooted):
            kept.append(part)
    return ("/" if rooted else "") + "/".join(kept) or "."


def _below(path: str, folder: str) -> str:
    """Return the path relative to a folder, "." for the folder itself, "" if it is outside."""
    if path == folder:
        return "."
    prefix = folder.rstrip("/") + "/"
    return path[len(prefix) :] if path.startswith(prefix) else ""


def glob_problem(glob: str) -> str:
    """Return why a glob is invalid; "" if it is valid."""
    return problem_of(_pattern(glob)) if glob else "expected a gitignore glob, got an empty text"


def _search(glob: str, path: str) -> bool:
    # Only an edited log can have an invalid glob: no policy is accepted with one.
    pattern = _valid_pattern(glob)
    return pattern is not None and matches(pattern, path)


@lru_cache(maxsize=256)
def _valid_pattern(glob: str) -> str | None:
    return None if problem_of(_pattern(glob)) else _pattern(glob)


@lru_cache(maxsize=256)
def _pattern(glob: str) -> str:
    """Return a gitignore glob as a pattern, which is searched in linear time."""
    if glob.strip("/") in ("", "."):  # the folder itself
        return "(?s)^"
    anchored = "/" in glob.rstrip("/")
    body = "".join(map(_translate, _PARTS.findall(glob.removeprefix("./").strip("/"))))
    return f"(?s){'^' if anchored else '(?:^|/)'}{body}(?:/|$)"


def _translate(part: str) -> str:
    match part:
        case "/**/":
            return "/(?:.*/)?"
        case "**/":
            return "(?:.*/)?"
        case "/**":
            return "/.*"
        case "**":
            return ".*"
        case "*":
            return "[^/]*"
        case "?":
            return "[^/]"
        case _ if part.startswith("[") and len(part) > 2:
            inner = part[1:-1]
            negated = inner[0] in "!^"
            inner = inner[negated:].replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
            return f"[{'^' if negated else ''}{inner}]"
        case _:
            return re.escape(part.removeprefix("\\") if len(part) > 1 else part)
