"""Where a model is asked, by pydantic-ai: the library's own model, its address, whose key it takes, what it may be told."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from refold.reducers.errors import WrongUse, brief

if TYPE_CHECKING:
    from pydantic_ai.models import Model as VendorModel

SETTINGS = frozenset(
    {
        "cache",
        "frequency_penalty",
        "logit_bias",
        "max_tokens",
        "parallel_tool_calls",
        "presence_penalty",
        "seed",
        "service_tier",
        "stop_sequences",
        "temperature",
        "thinking",
        "top_k",
        "top_p",
    }
)
"""Sampling settings that every vendor's dialect knows; a vendor's own begin with its name."""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What a name of a model leads to.

    `address` is the API's base URL, `domain` that of the vendor's own servers ("": none is its own). `key` says in words where
    its key comes from, `secret` is the key, "" if it is not known here. `strict`: an answer that does not say why it stopped is
    a broken one. `settings` are the names of the sampling settings that it takes. `close` closes the connections, None where they
    are the caller's. `timeout` is in seconds, and said with each request; None: the client has it.
    """

    model: "VendorModel[Any]"
    address: str
    domain: str
    key: str
    secret: str
    strict: bool
    settings: frozenset[str]
    close: Callable[[], Awaitable[None]] | None
    timeout: float | None = None

    @property
    def elsewhere(self) -> str:
        """Scheme and host of the server that is asked; "" for the vendor's own, and where the library does not say."""
        return "" if self.domain and is_of(self.domain, self.address) else self.host

    @property
    def host(self) -> str:
        """Scheme and host of the server that is asked; "" where the library does not say."""
        parts = urlsplit(self.address)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if self.address else ""


def check_address(name: str, address: object, told: str, variable: str) -> None:
    """Refuse an address that is none or holds a secret; `told` is where it was given, `variable` is for a key."""
    example = "such as http://127.0.0.1:8080/v1"
    if not isinstance(address, str):
        raise WrongUse(f"model {name!r}: {told} must be a string, {example}; got {_display(address)}")
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        secret = "@" in parts.netloc
    except ValueError:
        usable, secret = False, "@" in address
    if secret:  # an address is recorded and shown
        raise WrongUse(f"model {name!r}: {told} must hold no user or password; set {variable} for the key")
    if strange := next((each for each in address if each.isspace() or not each.isprintable()), None):
        raise WrongUse(
            f"model {name!r}: {told} must hold no blanks, line ends or control characters; got {_display(address)}, "
            f"which holds {strange!a}: remove it"
        )
    if not usable:
        raise WrongUse(
            f"model {name!r}: {told} must be an http(s) address, {example}; got {_display(address)}"
        )
    if "?" in address or "#" in address:  # often a key: not shown
        raise WrongUse(
            f"model {name!r}: {told} must end with its path, {example}; it holds a '?' or '#': "
            f"remove what begins there, and set {variable} for a key"
        )


def _display(address: object) -> str:
    """A wrong address for an error, escaped; of one that may hold a password or a key, its type."""
    text = ascii(address)
    return f"a {type(address).__name__}" if any(each in text for each in "@?#") else brief(text)


def is_of(domain: str, base_url: str) -> bool:
    """Whether an address is one of the vendor's own servers, whose domain this is."""
    parts = urlsplit(base_url)
    return parts.scheme == "https" and f".{parts.hostname}".endswith(f".{domain}")
