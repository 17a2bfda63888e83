"""Addresses of stores in PostgreSQL: `postgresql://[USER[:PASSWORD]@]HOST[,HOST]/DATABASE[?schema=NAME&...]`.

Everything but `schema` is libpq's: several hosts, `target_session_attrs`, `sslmode`, and the environment
variables and password file that it reads.
"""

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from refold.reducers.errors import WrongUse

SCHEMES = ("postgresql", "postgres")
DEFAULT_SCHEMA = "refold"

_SCHEMA = re.compile("[a-z_][a-z0-9_]{0,62}")
_SECRETS = ("password", "sslpassword")
_HIDDEN = "***"
_SCHEME = "[A-Za-z][A-Za-z0-9+.-]*://"
_NOT_ENCODED = re.compile(r"\s|%(?![0-9A-Fa-f]{2})")


class PostgresAddress(NamedTuple):
    """What libpq is given, the schema of the tables, and the address as displayed, without passwords."""

    conninfo: str
    schema: str
    shown: str


def parse_address(text: str) -> PostgresAddress:
    """Parse an address. Raises `WrongUse`; a password is in no message."""
    shown = show_address(text)
    try:
        parts = urlsplit(text)
        settings = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise WrongUse(f"store {shown!r}: is not a URL: {error}") from error
    if parts.netloc.count("@") > 1:  # libpq takes what follows the first for the host, and quotes it
        raise WrongUse(f"store {shown!r}: the user or password has a @: write %40")
    if _NOT_ENCODED.search(parts.netloc):  # libpq's message would quote the password
        raise WrongUse(f"store {shown!r}: the user, password or host has a space or %: write %20 or %25")
    schemas = [value for name, value in settings if name == "schema"]
    schema = schemas[-1] if schemas else DEFAULT_SCHEMA
    if not _SCHEMA.fullmatch(schema):
        raise WrongUse(
            f"store {shown!r}: schema {schema!r}: expected lower-case letters, digits and _, at most 63"
        )
    rest = urlencode([(name, value) for name, value in settings if name != "schema"])
    conninfo = f"postgresql://{parts.netloc}{parts.path}{'?' if rest else ''}{rest}"
    return PostgresAddress(conninfo, schema, shown)


def show_address(text: str) -> str:
    """Return an address without its passwords, for messages. It need not be valid, nor PostgreSQL's."""
    text = re.sub(r"([?&])([^=&#]*)=([^&#]*)", _hide_setting, text)
    # The password ends at the last @ before the path; it may itself have one that was not escaped.
    hidden = re.sub(rf"^({_SCHEME}[^:/?#]*):[^/?#]*@", rf"\g<1>:{_HIDDEN}@", text)
    if hidden != text:
        return hidden
    # Without such an @ it has a / ? or # that was not escaped, unless what follows the colon is a port.
    return re.sub(rf"^({_SCHEME}[^:/?#]*):(?![0-9]*(?:[/?#,]|$)).*@", rf"\g<1>:{_HIDDEN}@", text)


def _hide_setting(found: re.Match[str]) -> str:
    start, name, value = found.groups()
    return f"{start}{name}={_HIDDEN if unquote(name).lower() in _SECRETS else value}"
