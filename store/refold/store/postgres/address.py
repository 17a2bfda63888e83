"""Addresses of stores in PostgreSQL: `postgresql://[USER[:PASSWORD]@]HOST[,HOST]/DATABASE[?schema=NAME&...]`.

Everything but `schema` is libpq's: several hosts, `target_session_attrs`, `sslmode`, and the environment
variables and password file that it reads. The rest reaches libpq unchanged: it does not decode `+`.

Messages of libpq and `urllib` quote what they cannot parse, which may be a password. So an address that libpq
might read in another way is refused here, in words of our own, and `show_address` displays only parts that
cannot have a password.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import unquote

from refold.reducers.errors import WrongUse

SCHEMES = ("postgresql", "postgres")
DEFAULT_SCHEMA = "refold"

# The channel of notices is `refold_` and the schema, and a name in PostgreSQL has at most 63 bytes.
_SCHEMA_BYTES = 55
_SCHEMA = re.compile(f"[a-z_][a-z0-9_]{{0,{_SCHEMA_BYTES - 1}}}")
_HIDDEN = "***"

# Names of settings whose values may be displayed. Those of all others are not, such as `passwd`.
_HARMLESS = frozenset({
    "application_name", "channel_binding", "client_encoding", "connect_timeout", "dbname",
    "fallback_application_name", "gssencmode", "host", "hostaddr", "keepalives", "keepalives_count",
    "keepalives_idle", "keepalives_interval", "load_balance_hosts", "max_protocol_version",
    "min_protocol_version", "options", "passfile", "port", "require_auth", "requirepeer", "schema",
    "service", "ssl", "ssl_max_protocol_version", "ssl_min_protocol_version", "sslcert", "sslcertmode",
    "sslcrl", "sslcrldir", "sslkey", "sslmode", "sslnegotiation", "sslrootcert", "sslsni",
    "target_session_attrs", "tcp_user_timeout", "user",
})  # fmt: skip
_SECRET = frozenset(
    ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")
)
# A value or a database with one of these may have swallowed another setting, or a whole address.
_SUSPICIOUS = re.compile("pass(?!file)|secret|token|key *=|://|[#?;]", re.IGNORECASE)

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_NOT_ENCODED = re.compile(r"\s|%00|%(?![0-9A-Fa-f]{2})")
_SCHEME = "[A-Za-z][A-Za-z0-9+.-]*://"
_HOST = r"(?:\[[0-9A-Za-z:.%_-]*\]|[\w.%~-]*)(?::[0-9]*)?"
_PLACE = rf"(?P<hosts>{_HOST}(?:,{_HOST})*)(?P<path>/[^?#@]*)?(?:\?(?P<query>.*))?"
_ADDRESS = re.compile(
    rf"(?P<scheme>{_SCHEME})(?:(?P<user>[^:@/?#]*)(?P<password>:[^@/?#]*)?@)?{_PLACE}", re.DOTALL
)
# A password that should have been encoded ends at the last @. With a = or & it may be a setting.
_UNESCAPED = re.compile(rf"(?P<scheme>{_SCHEME})(?P<user>[^:@/?#]*)(?P<password>:[^=&]*)@{_PLACE}", re.DOTALL)

_PLACE_AFTER = re.compile("@.*[:/]", re.DOTALL)

_EXPECTED = (
    "expected postgresql://[USER@]HOST[:PORT]/DATABASE; in the user, password and database write "
    "%2F for /, %3F for ?, and %40 for @"
)


class PostgresAddress(NamedTuple):
    """What libpq is given, the schema of the tables, and the address as displayed, without passwords."""

    conninfo: str
    schema: str
    shown: str


class _Setting(NamedTuple):
    """`NAME=VALUE` of the query: the text, and both decoded; `value` is None without a `=`."""

    text: str
    name: str
    value: str | None

    @property
    def is_known(self) -> bool:
        return self.name.lower() in _HARMLESS | _SECRET

    @property
    def is_schema(self) -> bool:
        return self.name == "schema" and self.value is not None


def parse_address(text: str) -> PostgresAddress:
    """Parse an address. Raises `WrongUse`; neither its message nor its cause has a password."""
    shown = show_address(text)

    def wrong(problem: str) -> WrongUse:
        return WrongUse(f"store {shown!r}: {problem}")

    if problem := _character_problem(text):
        raise wrong(problem)
    found = _ADDRESS.fullmatch(text)
    if found is None or found["scheme"][:-3].lower() not in SCHEMES or not _is_certain(found):
        raise wrong(_EXPECTED)
    settings = list(_settings(found["query"]))
    if any(each.name == "client_encoding" for each in settings):
        raise wrong("remove client_encoding: the text of a store is always UTF-8")
    schema = ([each.value for each in settings if each.is_schema] or [DEFAULT_SCHEMA])[-1] or ""
    if not _SCHEMA.fullmatch(schema):
        raise wrong(
            f"the name of a schema has lower-case letters, digits and _, not a digit first, at most {_SCHEMA_BYTES}"
        )
    rest = "&".join(each.text for each in settings if not each.is_schema)
    place = text[found.end("scheme") : found.end("path") if found["path"] else found.end("hosts")]
    conninfo = f"postgresql://{place}{'?' if rest else ''}{rest}"
    if not _is_valid(conninfo):
        raise wrong("libpq refuses it: it does not know a setting, or one has no value")
    return PostgresAddress(conninfo, schema, shown)


def show_address(text: str) -> str:
    """Return an address without its passwords, for messages. It need not be valid, nor PostgreSQL's.

    Only the scheme is displayed if the password cannot be told from the rest.
    """
    scheme = re.match(_SCHEME, text)
    if scheme is None:
        return _HIDDEN if "@" in text or _SUSPICIOUS.search(unquote(text)) else text
    for shape in (_ADDRESS, _UNESCAPED):
        found = shape.fullmatch(text)
        if found is not None and _is_certain(found):
            return _show_parts(found)
    return scheme[0] + _HIDDEN


def _character_problem(text: str) -> str:
    if _CONTROL.search(text):
        return "has a control character"
    try:
        unquote(text.encode(), errors="strict")
    except UnicodeError:
        return "is not UTF-8"
    if _NOT_ENCODED.search(text):
        return "has a space, %00, or a % that is not encoded: write %20 or %25"
    if "#" in text:
        return "has a #: write %23"
    if text.count("@") > 1:  # libpq takes what follows the first for the host, and quotes it
        return "has more than one @: in the user, password and settings write %40"
    return ""


def _is_valid(conninfo: str) -> bool:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        conninfo_to_dict(conninfo)
    except psycopg.Error:
        return False
    return True


def _is_certain(found: re.Match[str]) -> bool:
    """Return whether each @ in the query, if any, belongs to a setting, not to the end of a password."""
    query = found["query"] or ""
    if "@" not in query:
        return True
    # libpq looks for the end of a password up to the first slash.
    if found["user"] is not None or found["path"] is None:
        return False
    settings = [each for each in _settings(query) if "@" in each.text]
    return all(each.is_known and not _PLACE_AFTER.search(each.value or "@:") for each in settings)


def _settings(query: str | None) -> Iterator[_Setting]:
    for text in (query or "").split("&") if query else ():
        name, equals, value = text.partition("=")
        yield _Setting(text, unquote(name), unquote(value) if equals else None)


def _show_parts(found: re.Match[str]) -> str:
    user, path = found["user"], found["path"] or ""
    shown = found["scheme"]
    if user is not None:
        shown += _HIDDEN if ":" in unquote(user) else user
        shown += f":{_HIDDEN}@" if found["password"] else "@"
    shown += found["hosts"]
    shown += f"/{_HIDDEN}" if _SUSPICIOUS.search(unquote(path)) else path
    if found["query"] is not None:
        shown += "?" + "&".join(_show_settings(found["query"]))
    return shown


def _show_settings(query: str) -> Iterator[str]:
    after_secret = False
    for setting in _settings(query):
        name = setting.text.partition("=")[0]
        # After a password, what is no setting may be its rest, which follows a & that was not encoded.
        if setting.value is None or (after_secret and not setting.is_known):
            yield _HIDDEN
        elif setting.name.lower() in _HARMLESS and not _SUSPICIOUS.search(setting.value):
            yield setting.text
        else:
            yield f"{name}={_HIDDEN}" if setting.is_known or name.isidentifier() else _HIDDEN
        after_secret = after_secret or setting.name.lower() not in _HARMLESS
