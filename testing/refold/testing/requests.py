"""Refusal of network requests: while it is on, only connections to this machine are possible.

An audit hook sees every connection and every name lookup that uses Python's sockets.
Subprocesses, libraries with an event loop in C (uvloop), connections that are open already, and a proxy on
this machine are not seen.
"""

import ipaddress
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from refold.reducers.errors import RefoldError

_LOOKUPS = frozenset({"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"})
_SENDS = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
_INTERNET = frozenset({socket.AF_INET, socket.AF_INET6})
_HERE = frozenset({"", "localhost", "localhost.localdomain", "ip6-localhost"})


class RequestRefused(RefoldError):
    """A test tried to reach another machine while requests are refused. `host` is the address or name."""

    def __init__(self, host: str) -> None:
        super().__init__(host)
        self.host = host

    def __str__(self) -> str:
        return (
            f"request to {self.host} refused: this test runs from its recording; "
            "record it with --refold-record=missing, or use a tool without network access"
        )


class _Guard:
    """The state of the one audit hook: how many blocks refuse requests, and what was refused."""

    def __init__(self) -> None:
        self.installed = False
        self.depth = 0
        self.allowed = 0
        self.refused: list[str] = []

    def see(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.depth or self.allowed:
            return
        if event in _LOOKUPS:
            self._check(args[0])
        # A Unix socket's address is a path.
        elif event in _SENDS and args[1] is not None and args[0].family in _INTERNET:
            self._check(args[1][0])

    def _check(self, host: object) -> None:
        if not _is_here(host):
            shown = host.decode(errors="replace") if isinstance(host, bytes) else str(host)
            self.refused.append(shown)
            raise RequestRefused(shown)


_guard = _Guard()


def _is_here(host: object) -> bool:
    if host is None:
        return True
    name = host.decode(errors="replace") if isinstance(host, bytes) else str(host)
    name = name.lower().rstrip(".")
    if name in _HERE or name.endswith(".localhost") or name == socket.gethostname().lower():
        return True
    try:
        address = ipaddress.ip_address(name.split("%")[0])
    except ValueError:
        return name.startswith("127.") and name.replace(".", "").isdecimal()
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback or address.is_unspecified


@contextmanager
def forbid_requests() -> Generator[list[str]]:
    """Refuse connections to other machines within the block; yield the list of those that were refused.

    Connections to loopback addresses and Unix sockets are allowed. For a whole session:

        @pytest.fixture(scope="session", autouse=True)
        def offline():
            with refold.testing.forbid_requests():
                yield

    In the block, a refused connection raises `RequestRefused`.
    """
    if not _guard.installed:
        sys.addaudithook(_guard.see)
        _guard.installed = True
    _guard.depth += 1
    refused: list[str] = []
    _guard.refused, before = refused, _guard.refused
    try:
        yield refused
    finally:
        _guard.depth -= 1
        before += refused
        _guard.refused = before


@contextmanager
def allow_requests() -> Generator[None]:
    """Allow all connections within the block, whatever the blocks around it refuse: for recording."""
    _guard.allowed += 1
    try:
        yield
    finally:
        _guard.allowed -= 1
