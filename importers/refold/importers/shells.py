"""How a command ended, by the lines with which Gemini CLI's shell tool, and that of its offspring, ends a result.

The lines come after the command's own output, so the last block of them is the tool's. Source: `run_shell_command` of
Gemini CLI 0.61 and of Qwen Code 0.15.
"""

import re

from refold.reducers.vocabulary import ToolError

TOOL = "run_shell_command"
"""The name of the shell tool in both."""

_LINE = re.compile(r"^(Error|Exit Code|Signal|Background PIDs|Process Group PGID): (.*)$", re.MULTILINE)
_CUT_OFF = re.compile(
    r"(?:<untrusted_context>\s*)?Command (?:(was automatically cancelled|timed out after)|was cancelled by user)"
)
_NONE = "(none)"
_NO_SIGNAL = (_NONE, "0")


def shell_failed(output: str) -> ToolError | bool | None:
    """Whether a command failed, or how it was cut off; None where the output does not say.

    Gemini CLI leaves the exit code out where it is 0, and then still names the process group.
    """
    if cut_off := _CUT_OFF.match(output):
        return ToolError.TIMEOUT if cut_off[1] else ToolError.CANCELLED
    found = _last_block(output)
    code, signal = found.get("Exit Code"), found.get("Signal", _NONE)
    if signal not in _NO_SIGNAL or code == _NONE:
        return True
    if code is not None:
        return code != "0"
    return False if "Process Group PGID" in found else None


def _last_block(output: str) -> dict[str, str]:
    found: dict[str, str] = {}
    follows = -1
    for line in reversed(list(_LINE.finditer(output))):
        if found and line.end() + 1 != follows:
            break
        found.setdefault(line[1], line[2].strip())
        follows = line.start()
    return found
