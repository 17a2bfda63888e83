"""Hosts in permission rules: the host of a URL, compared by its parsed form."""

import re
from urllib.parse import urlsplit

_PREFIX = re.compile(r"(?:blob|view-source):", re.IGNORECASE)
_SLASHES = re.compile(r"(https?|wss?|ftp):/*", re.IGNORECASE)
_WITHOUT_HOST = re.compile(r"file:|[a-z][a-z0-9+.-]*:(?!//|[0-9]{1,5}(?:/|$))", re.IGNORECASE)
"""URLs without a host, such as `javascript:` and `mailto:`; `example.com:80` has one."""


def host_of(url: str) -> str | None:
    """Return the host of a URL in lower case, without user, port and a trailing dot.

    "" for a path, which has no host; None if it cannot be read. International names are converted to their
    ASCII form (`xn--...`), as a resolver gets them.
    """
    text = url.strip().replace("\\", "/")  # browsers read a backslash as a slash
    text = _PREFIX.sub("", text, count=1) if _PREFIX.match(text) else text
    if (found := _SLASHES.match(text)) is not None:  # as browsers read it
        text = f"{found[1]}://{text[found.end() :]}"
    if (text.startswith("/") and not text.startswith("//")) or _WITHOUT_HOST.match(text):
        return ""
    if "://" not in text:
        text = f"//{text.lstrip('/')}"
    if any(ord(character) < 33 for character in text):
        return None
    try:
        host = urlsplit(text).hostname
    except ValueError:
        return None
    if not host or "%" in host:
        return None
    try:
        name = host.rstrip(".").encode("idna").decode()
    except UnicodeError:
        return None if not host.isascii() else host.rstrip(".")
    return name.lower() or None


def host_matches(glob: str, host: str) -> bool:
    """Return whether a host matches: `example.com` exactly, `*.example.com` every host below it."""
    name = glob.removeprefix("*.")
    wanted = host_of(f"[{name}]" if name.count(":") > 1 and not name.startswith("[") else name) or ""
    if glob == "*":
        return True
    if glob.startswith("*."):
        return bool(wanted) and host.endswith(f".{wanted}")
    return host == wanted
