"""Turn operations of a script into calls of the offered tools, by the names of tools and parameters."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from clients.scripts import Delegate, Edit, Malformed, Operation, Shell, UnknownTool
from clients.wires.protocol import ScriptedCall, Tool

SHELLS = ("exec_command", "shell", "run_shell_command", "bash", "terminal")
EDITORS = ("apply_patch", "replace", "edit", "file_editor")
AGENTS = {"task": "general", "agent": "general-purpose", "invoke_agent": "generalist"}
"""Tools that start a subagent, with the type of agent to request."""

SUBMISSION = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""The output that ends a run of mini-swe-agent. To this client an answer without a call is an error."""


def call_of(operation: Operation, tools: Iterable[Tool], folder: Path, id_: str) -> ScriptedCall:
    """Return a call that does the operation in the work folder, with one of the request's tools.

    Raises LookupError if no tool can do it.
    """
    offered = {tool.name: tool for tool in tools}
    match operation:
        case Shell(command, fails):
            tool = _first(offered, SHELLS)
            return ScriptedCall(id_, tool.name, _arguments(tool, _shell(tool, command)), fails=fails)
        case Malformed(marker):
            cut = f'{{"command": "touch {marker}", "cmd": "touch {marker}", '
            return ScriptedCall(id_, _first(offered, SHELLS).name, cut, fails=None)
        case UnknownTool(name):
            return ScriptedCall(id_, name, '{"x": 1}', fails=True)
        case Edit():
            return _edit(operation, offered, folder, id_)
        case Delegate(prompt):
            if not offered.keys() & AGENTS.keys():
                return call_of(Shell("echo no sub-agents"), offered.values(), folder, id_)
            tool = _first(offered, AGENTS)
            return ScriptedCall(id_, tool.name, _arguments(tool, _delegation(prompt, AGENTS[tool.name])))


def _first(offered: Mapping[str, Tool], names: Iterable[str]) -> Tool:
    for name in names:
        if name in offered:
            return offered[name]
    raise LookupError(f"none of {', '.join(names)} among the tools of the request: {', '.join(offered)}")


def _arguments(tool: Tool, values: Mapping[str, Any]) -> str:
    """The values that the tool has a parameter for, as JSON."""
    return json.dumps({name: value for name, value in values.items() if name in tool.properties})


def _shell(tool: Tool, command: str) -> dict[str, Any]:
    words = tool.properties.get("command", {}).get("type") == "array"
    return {
        "command": ["bash", "-lc", command] if words else command,
        "cmd": command,
        "description": "scripted",
        "is_background": False,
        "yield_time_ms": 30_000,  # Codex moves longer commands to the background
    }


def _edit(edit: Edit, offered: Mapping[str, Tool], folder: Path, id_: str) -> ScriptedCall:
    if not offered.keys() & {*EDITORS}:
        command = Shell(f"sed -i 's/{edit.old}/{edit.new}/' {edit.path}")
        return call_of(command, offered.values(), folder, id_)
    tool = _first(offered, EDITORS)
    if tool.name == "apply_patch":
        patch = (
            f"*** Begin Patch\n*** Update File: {edit.path}\n@@\n-{edit.old}\n+{edit.new}\n*** End Patch\n"
        )
        text = patch if tool.free_text else json.dumps({"input": patch})
        return ScriptedCall(id_, tool.name, text, free_text=tool.free_text, fails=None)
    path = str(folder / edit.path)
    values: dict[str, Any] = dict.fromkeys(("path", "filePath", "file_path"), path)
    values |= dict.fromkeys(("oldString", "old_string", "old_str"), edit.old)
    values |= dict.fromkeys(("newString", "new_string", "new_str"), edit.new)
    values |= {"command": "str_replace", "instruction": "scripted edit"}
    values["edits"] = [{"oldText": edit.old, "newText": edit.new}]
    return ScriptedCall(id_, tool.name, _arguments(tool, values), fails=None)


def _delegation(prompt: str, agent: str) -> dict[str, Any]:
    return {"prompt": prompt, "description": "scripted", "agent_name": agent, "subagent_type": agent}
