"""The formats that can be imported, and which of them a file is: by its content, never by its name.

Each importer is loaded when it is first asked. The best match wins; two equal best ones are refused, for nothing is
guessed silently: whoever knows better names the format.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import cast

import msgspec

from refold.importers.protocol import Importer, Match
from refold.importers.source import Source
from refold.importers.unsupported import Unsupported, identify
from refold.reducers.errors import WrongUse, nearest

FORMATS: Mapping[str, str] = MappingProxyType(
    {
        "amp": "amp:AMP",
        "atif": "atif:ATIF",
        "claude_code": "claude_code.importer:CLAUDE_CODE",
        "codex": "codex.importer:CODEX",
        "copilot_cli": "copilot_cli:COPILOT_CLI",
        "droid": "droid:DROID",
        "gemini_cli": "gemini_cli.importer:GEMINI_CLI",
        "grok_cli": "grok_cli:GROK_CLI",
        "inspect": "inspect_logs.importer:INSPECT",
        "kimi_cli": "kimi_cli:KIMI_CLI",
        "langfuse": "langfuse:LANGFUSE",
        "mini_swe_agent": "mini_swe_agent.importer:MINI_SWE_AGENT",
        "openai_agents": "openai_agents:OPENAI_AGENTS",
        "openai_messages": "openai_messages:OPENAI_MESSAGES",
        "opencode": "opencode.importer:OPENCODE",
        "openhands": "openhands.importer:OPENHANDS",
        "otel": "otel.importer:OTEL",
        "pi": "pi.importer:PI",
        "pydantic_ai": "pydantic_ai.importer:PYDANTIC_AI",
        "qwen_code": "qwen_code:QWEN_CODE",
        "swe_agent": "swe_agent.importer:SWE_AGENT",
        "tau_bench": "tau_bench:TAU_BENCH",
        "who_when": "who_when:WHO_WHEN",
    }
)
"""By name: the module of `refold.importers`, and the importer in it."""


CERTAIN = 80
"""How sure a match is that something which no other format has stands behind."""


class Candidate(msgspec.Struct, frozen=True):
    """A format that a file may be of: how surely, 0 to 100, and what of it says so."""

    format: str
    score: int
    why: str


class UnknownFormat(WrongUse):
    """A file of none of the formats, or of two equally: nothing is imported. `candidates` are the best, if any.

    `known`: it is of a kind that is known, and not read.
    """

    def __init__(self, name: str, candidates: Sequence[Candidate], known: Unsupported | None = None) -> None:
        super().__init__(name, tuple(candidates), known)
        self.name, self.candidates, self.known = name, tuple(candidates), known

    @property
    def packed(self) -> bool:
        """Whether the file is packed in a way that is not read: there may be a transcript in it."""
        return self.known is not None and self.known.packed

    def __str__(self) -> str:
        if self.known is not None:
            return f"{self.name}: {self.known}" if self.packed else f"{self.name}: this is {self.known}"
        if not self.candidates:
            return (
                f"{self.name}: no transcript of a known format ({', '.join(FORMATS)}); name one by --format"
            )
        both = " and ".join(f"{each.format} ({each.why})" for each in self.candidates)
        return f"{self.name}: it may be {both}: say which by --format"


class OtherFormat(UnknownFormat):
    """A file that looks like one of a format, and most of what it holds says nothing there: nothing is imported."""

    def __init__(self, name: str, closest: Candidate, problem: str) -> None:
        super().__init__(name, (closest,))
        self.closest, self.problem = closest, problem

    def __str__(self) -> str:
        return (
            f"{self.name}: no transcript of a known format. {self.closest.format} is the closest ({self.closest.why}), but "
            f"{self.problem}; to import it as that all the same, say so by --format {self.closest.format}"
        )


def importer(name: str) -> Importer:
    """The importer of a format. Raises `WrongUse` for a name that none has."""
    if name not in FORMATS:
        raise WrongUse(f"there is no format {name!r}{nearest(name, FORMATS)}")
    module, _, attribute = FORMATS[name].partition(":")
    return cast("Importer", getattr(import_module(f"refold.importers.{module}"), attribute))


def candidates(source: Source) -> list[Candidate]:
    """The formats that a source may be of, the surest first; equal ones by name."""
    found = ((name, importer(name).match(source)) for name in FORMATS)
    matches: list[tuple[str, Match]] = [(name, match) for name, match in found if match is not None]
    ranked = sorted(matches, key=lambda each: (-each[1].score, each[0]))
    return [Candidate(name, match.score, match.why) for name, match in ranked]


def detected(source: Source) -> Candidate:
    """The format of a source. Raises `UnknownFormat` where it is none, or two that are equally sure."""
    found = candidates(source)
    if (not found or found[0].score < CERTAIN) and (known := identify(source)) is not None:
        raise UnknownFormat(source.name, (), known)
    best = [each for each in found if each.score == found[0].score]
    if len(best) != 1:
        raise UnknownFormat(source.name, best)
    return best[0]
