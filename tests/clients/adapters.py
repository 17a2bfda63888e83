"""The real clients: package, version, and a configuration for headless runs against the model server."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from clients.scripts import Script

DRIVERS = Path(__file__).with_name("drivers")
MODEL = "scripted-model"
RULES = {
    "codex": ".codex/rules/default.rules",
    "gemini": ".gemini/policies/rules.toml",
    "opencode": ".config/opencode/opencode.json",
}
"""The clients with permission rules that refold reads, and where their files lie in the home."""


class Setting(msgspec.Struct, frozen=True):
    """Where a client runs: a fresh home, a work folder, the server's URL, and the folder of its programs."""

    home: Path
    folder: Path
    url: str
    programs: Path
    script: Script
    rules: bool = False
    """Whether the client refuses the program `touch` by its own permission rules."""

    def write(self, path: str, text: str) -> None:
        """Write a file in the home."""
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def write_json(self, path: str, value: Mapping[str, Any]) -> None:
        """Write a JSON file in the home."""
        self.write(path, json.dumps(value, indent=1))


class Commands(msgspec.Struct, frozen=True):
    """The commands of a client; the prompt is added to each. `again` resumes the last session."""

    first: tuple[str, ...]
    again: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """A client: `format` is what refold calls its transcripts, `transcripts` where they lie below the home.

    `python`: the oldest Python that its package runs on. `also`: what its package forgets to require.
    `skips`: the scripts that it cannot play, with the reason. `links`: a script of its package puts its
    program into place.
    """

    name: str
    registry: Literal["npm", "pypi"]
    package: str
    version: str
    format: str
    prepare: Callable[[Setting], Commands]
    transcripts: tuple[str, ...]
    python: tuple[int, int] = (3, 11)
    also: tuple[str, ...] = ()
    skips: Mapping[str, str] = {}
    links: bool = False

    @property
    def exports(self) -> bool:
        """Whether its sessions lie in a database, and it exports them by a command."""
        return not self.transcripts


def _codex(setting: Setting) -> Commands:
    limit = "model_auto_compact_token_limit = 100000" if setting.script.compacts else ""
    setting.write(
        ".codex/config.toml",
        f"""
model = "{MODEL}"
model_provider = "scripted"
model_context_window = 200000
{limit}
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[model_providers.scripted]
name = "scripted"
base_url = "{setting.url}/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
request_max_retries = 3
stream_max_retries = 3
[analytics]
enabled = false
[projects."{setting.folder}"]
trust_level = "trusted"
""",
    )
    if setting.rules:
        setting.write(RULES["codex"], 'prefix_rule(pattern = ["touch"], decision = "forbidden")\n')
    program = str(setting.programs / "codex")
    options = ("--skip-git-repo-check", "--json")
    return Commands(
        (program, "exec", *options),
        (program, "exec", "resume", "--last", *options),
        {"SCRIPTED_KEY": "none"},
    )


def _gemini(setting: Setting) -> Commands:
    threshold = {"compressionThreshold": 0.0002} if setting.script.compacts else {}
    setting.write_json(
        ".gemini/settings.json",
        {
            "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
            "telemetry": {"enabled": False},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
            "model": {"name": "gemini-2.5-pro", **threshold},
        },
    )
    if setting.rules:
        rule = 'toolName = "run_shell_command"\ncommandPrefix = "touch"\ndecision = "deny"\npriority = 900\n'
        setting.write(RULES["gemini"], f"[[rule]]\n{rule}")
    program = (str(setting.programs / "gemini"), "--skip-trust", "-m", "gemini-2.5-pro", "-y")
    environment = {
        "GEMINI_API_KEY": "none",
        "GOOGLE_GEMINI_BASE_URL": setting.url,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "GEMINI_TELEMETRY_ENABLED": "false",
    }
    return Commands((*program, "-p"), (*program, "-r", "latest", "-p"), environment)


def _qwen(setting: Setting) -> Commands:
    threshold = {"chatCompression": {"contextPercentageThreshold": 0.01}} if setting.script.compacts else {}
    setting.write_json(
        ".qwen/settings.json",
        {
            "security": {"auth": {"selectedType": "openai"}, "folderTrust": {"enabled": False}},
            "telemetry": {"enabled": False},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"enableAutoUpdate": False, "chatRecording": True},
            "model": {"name": MODEL, **threshold},
        },
    )
    program = (str(setting.programs / "qwen"), "--auth-type", "openai", "--openai-api-key", "none")
    words = (*program, "--openai-base-url", f"{setting.url}/v1", "-m", MODEL, "-y")
    return Commands((*words, "-p"), (*words, "-c", "-p"))


def _opencode(setting: Setting) -> Commands:
    limits = {"context": 200_000, "output": 8_000}
    model = {"name": MODEL, "tool_call": True, "reasoning": True, "limit": limits}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Scripted",
        "options": {"baseURL": f"{setting.url}/v1", "apiKey": "none"},
        "models": {MODEL: model},
    }
    rules = {"permission": {"bash": {"*": "allow", "touch *": "deny"}}} if setting.rules else {}
    setting.write_json(
        RULES["opencode"],
        {
            **rules,
            "autoupdate": False,
            "share": "disabled",
            "model": f"scripted/{MODEL}",
            "small_model": f"scripted/{MODEL}",
            "provider": {"scripted": provider},
        },
    )
    off = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    program = (str(setting.programs / "opencode"), "run", "--model", f"scripted/{MODEL}", "--auto")
    return Commands(program, (*program, "-c"), {f"OPENCODE_DISABLE_{name}": "1" for name in off})


def _pi(setting: Setting) -> Commands:
    cost = {"input": 1, "output": 2, "cacheRead": 0.1, "cacheWrite": 0}
    model = {"id": MODEL, "name": MODEL, "reasoning": False, "input": ["text"], "cost": cost}
    provider = {
        "baseUrl": f"{setting.url}/v1",
        "api": "openai-completions",
        "apiKey": "none",
        "models": [{**model, "contextWindow": 200_000, "maxTokens": 8_000}],
    }
    setting.write_json(".pi/agent/models.json", {"providers": {"scripted": provider}})
    retry = {"enabled": True, "baseDelayMs": 300}
    setting.write_json(".pi/agent/settings.json", {"quietStartup": True, "retry": retry})
    program = (str(setting.programs / "pi"), "--offline", "--provider", "scripted", "--model", MODEL)
    return Commands(
        (*program, "-p"), (*program, "-c", "-p"), {"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1"}
    )


def _mini(setting: Setting) -> Commands:
    trajectory = setting.home / "mini" / "run.traj.json"
    trajectory.parent.mkdir()
    program = (str(setting.programs / "mini"), "-y", "--exit-immediately", "-m", f"openai/{MODEL}")
    options = ("-o", str(trajectory), "-c", "mini.yaml", "-c", "model.cost_tracking=ignore_errors")
    environment = {
        "OPENAI_API_KEY": "none",
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it asks the network for prices
    }
    at_server = ("-c", f"model.model_kwargs.api_base={setting.url}/v1")
    return Commands((*program, *options, *at_server, "-t"), (), environment)


def _driven(name: str) -> Callable[[Setting], Commands]:
    """An SDK, started by a driver in its own environment."""

    def prepare(setting: Setting) -> Commands:
        (setting.home / "out").mkdir()
        driver = (str(setting.programs / "python"), str(DRIVERS / f"drive_{name}.py"))
        words = (*driver, setting.url, str(setting.home / "out"))
        # An evaluation is never resumed; a conversation of OpenHands is, by the id that its driver gives it.
        return Commands(words, words if name == "openhands" else (), {"LITELLM_LOCAL_MODEL_COST_MAP": "True"})

    return prepare


_NO_AGENTS = "it has no subagents"

CLIENTS: dict[str, Client] = {
    client.name: client
    for client in (
        Client(
            name="codex",
            registry="npm",
            package="@openai/codex",
            version="0.169.0",
            format="codex",
            prepare=_codex,
            transcripts=(".codex/sessions",),
            skips={"subagent": "its subagents are asynchronous and need a second tool call to wait for each"},
        ),
        Client(
            name="gemini",
            registry="npm",
            package="@google/gemini-cli",
            version="0.61.0",
            format="gemini_cli",
            prepare=_gemini,
            transcripts=(".gemini/tmp/*/chats",),
        ),
        Client(
            name="qwen",
            registry="npm",
            package="@qwen-code/qwen-code",
            version="0.15.10",
            format="qwen_code",
            prepare=_qwen,
            transcripts=(".qwen/projects/*/chats",),
        ),
        Client(
            name="opencode",
            registry="npm",
            package="opencode-ai",
            version="1.18.33",
            format="opencode",
            prepare=_opencode,
            transcripts=(),
            links=True,
        ),
        Client(
            name="pi",
            registry="npm",
            package="@mariozechner/pi-coding-agent",
            version="0.73.1",
            format="pi",
            prepare=_pi,
            transcripts=(".pi/agent/sessions",),
            skips={"subagent": _NO_AGENTS},
        ),
        Client(
            name="mini",
            registry="pypi",
            package="mini-swe-agent",
            version="2.4.6",
            format="mini_swe_agent",
            prepare=_mini,
            transcripts=("mini",),
            skips={
                "subagent": _NO_AGENTS,
                "resume": "it resumes nothing",
                "compaction": "it compacts nothing",
            },
            also=("mcp",),  # its litellm imports it
        ),
        Client(
            name="openhands",
            registry="pypi",
            package="openhands-sdk",
            version="1.58.0",
            format="openhands",
            prepare=_driven("openhands"),
            transcripts=("out",),
            python=(3, 12),
            also=("openhands-tools==1.58.0",),
            skips={"subagent": _NO_AGENTS, "compaction": "its condenser has to be configured"},
        ),
        Client(
            name="inspect",
            registry="pypi",
            package="inspect-ai",
            version="0.3.285",
            format="inspect",
            prepare=_driven("inspect"),
            transcripts=("out",),
            also=("openai",),
            skips={
                "subagent": _NO_AGENTS,
                "resume": "it resumes nothing",
                "compaction": "it compacts nothing",
            },
        ),
    )
}
