"""What the SDK of OpenHands makes of a result before its model is shown it: it stands in no event, and follows from what does.

Source: `to_llm_content` of its observations, and `maybe_truncate`, in openhands-sdk 1.58.
"""

import hashlib

from refold.importers.fields import JSON, at, table, text

ERROR = "[An error occurred during execution.]\n"
REJECTED = "Action rejected: "

MOST_SHOWN = 30_000
"""Characters of a command's output that the model is shown; of more, the middle is cut."""

_CLIPPED = "<response clipped><NOTE>Due to the max output limit, only part of the full response has been shown to you."
_SAVED = " The complete output has been saved to {path} - you can use other tools to view the full content (truncated part starts around line {line})."
_NOTE_ENDS = "</NOTE>"


def render_observation(seen: JSON, said: str) -> str:
    """What the model is shown of an observation that says this: an error under its heading, a command with how it went."""
    if isinstance(at(seen, "metadata"), dict) and "exit_code" in table(seen, "metadata"):
        said = _render_command(seen, said)
    return f"{ERROR}\n{said}" if at(seen, "is_error") is True else said


def _render_command(seen: JSON, said: str) -> str:
    how = at(seen, "metadata")
    shown = f"{text(how, 'prefix')}{said}{text(how, 'suffix')}"
    if folder := text(how, "working_dir"):
        shown += f"\n[Current working directory: {folder}]"
    if interpreter := text(how, "py_interpreter_path"):
        shown += f"\n[Python interpreter: {interpreter}]"
    if (code := at(how, "exit_code")) != -1:
        shown += f"\n[Command finished with exit code {code}]"
    return _clip(shown, text(seen, "full_output_save_dir"))


def _clip(shown: str, folder: str) -> str:
    """Head and tail of what is too long, and between them a note, which names the file that has all of it, if one does."""
    if len(shown) <= MOST_SHOWN:
        return shown
    head = (MOST_SHOWN - len(_CLIPPED + _NOTE_ENDS) + 1) // 2
    note = _CLIPPED
    if folder:
        digest = hashlib.sha256(shown.encode(errors="replace")).hexdigest()[:8]
        path = f"{folder}/terminal_output_{digest}.txt"
        note += _SAVED.format(path=path, line=len(shown[:head].splitlines()) + 1)
    note += _NOTE_ENDS
    left = max(0, MOST_SHOWN - len(note))
    head = min(head, left)
    return shown[:head] + note + (shown[-(left - head) :] if left > head else "")
