"""`refold view` of imported runs: what the source does not record of a request is said beside it."""

import json
from pathlib import Path

from console.conftest import Refold
from support.sessions import CODEX, lines


def test_what_a_rollout_of_codex_does_not_record(refold: Refold, tmp_path: Path) -> None:
    """The system prompt is a template; a compaction lacks its request, and its summary if that is empty."""
    kept = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]}]
    rows = [
        CODEX.row("session_meta", id="s", base_instructions={"text": "You are."}),
        CODEX.message("user", "go"),
        CODEX.message("assistant", "I look."),
        CODEX.message("user", "and?"),
        CODEX.message("assistant", "so far"),
        CODEX.row("compacted", message="The summary: so far", replacement_history=kept),
        CODEX.message("assistant", "on"),
        CODEX.row("compacted", message="", replacement_history=kept),
        CODEX.message("assistant", "done"),
    ]
    file, store = tmp_path / "rollout.jsonl", tmp_path / "s.db"
    file.write_bytes(lines(*rows))
    assert 0 == refold("import", file, "--store", store).code
    asked = "this answer is a compaction's summary, and what asked for it is not in the source"
    lost = "the summary that a compaction before this left is not in the source"
    for turn, lacks in ((1, []), (2, [asked]), (3, []), (4, [lost])):
        view = json.loads(refold("view", f"@last@t{turn}", "--store", store, "-o", "json").out)
        assert (False, lacks) == (view["system_known"], view["lacks"])
        text = refold("view", f"@last@t{turn}", "--store", store).out
        assert "the source records a template" in text
        assert all(sentence in text for sentence in lacks)
