"""The newest version of each client whose transcripts were tested: of a newer one nobody knows whether its format moved.

A client was run against a scripted model, and what was imported was held against its requests; or its transcripts are among
those in `tests/transcripts`.
"""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import msgspec

from refold.importers.items import Item, Place, RunBegan, Unread


class Tested(msgspec.Struct, frozen=True):
    """A client, and the newest version of it that was tested; `label` is the one of a run that has its version."""

    client: str
    version: str
    label: str = "version"


TESTED: Mapping[str, Tested] = MappingProxyType(
    {
        "claude_code": Tested("Claude Code", "2.1.220"),
        "codex": Tested("Codex", "0.169.0", "cli_version"),
        "copilot_cli": Tested("Copilot CLI", "1.0.10"),
        "gemini_cli": Tested("Gemini CLI", "0.61.0"),
        "inspect": Tested("Inspect", "0.3.285"),
        "kimi_cli": Tested("Kimi CLI's wire protocol", "1.9"),
        "mini_swe_agent": Tested("mini-swe-agent", "2.4.6"),
        "opencode": Tested("OpenCode", "1.18.33"),
        "openhands": Tested("OpenHands SDK", "1.58.0"),
        "pi": Tested("Pi", "0.73.1"),
        "qwen_code": Tested("Qwen Code", "0.15.10"),
        "swe_agent": Tested("SWE-agent", "1.1.0"),
    }
)
"""By format. A format whose transcripts name no version of their client is here all the same: it was tested with this one."""

NEWER = "newer_version"
"""The code of the diagnosis of a run that a newer client wrote."""

_NUMBERS = re.compile(r"v?(\d{1,9}(?:\.\d{1,9}){0,3})")


def is_newer(version: str, tested: str) -> bool:
    """Whether a version is newer than another; one that is no version is not."""
    mine, theirs = _parts(version), _parts(tested)
    return bool(mine) and mine > theirs


def _parts(version: str) -> tuple[int, ...]:
    """The numbers of a version, without the zeros at its end."""
    found = _NUMBERS.match(version)
    numbers = [int(number) for number in found[1].split(".")] if found else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def warn_of_versions(format: str, item: Item) -> Iterator[Unread]:  # noqa: A002
    """The warning behind the beginning of a run that a newer client wrote than was tested."""
    tested = TESTED.get(format)
    if tested is None or not isinstance(item, RunBegan):
        return
    version = item.labels.get(tested.label, "")
    if is_newer(version, tested.version):
        problem = (
            f"{tested.client} {version[:40]} wrote it, and {tested.version} is the newest that this reader was tested with:"
            " what is new in it may be missing, or misread"
        )
        yield Place(item.position, item.at).odd(NEWER, problem)
