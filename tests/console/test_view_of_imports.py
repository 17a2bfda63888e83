"""`refold view` of imported runs: what the source does not record of a request is said beside it."""

import json
from pathlib import Path

from console.conftest import Refold
from support.clients import TIME


def test_what_a_rollout_of_codex_does_not_record(refold: Refold, tmp_path: Path) -> None:
    """The system prompt is a template; of a compaction neither what asked for its summary nor a summary without words is there."""
    kept = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]}]

    def said(role: str, words: str) -> tuple[str, dict[str, object]]:
        return "response_item", {
            "type": "message",
            "role": role,
            "content": [{"type": "output_text", "text": words}],
        }

    found = [
        ("session_meta", {"id": "s", "base_instructions": {"text": "You are."}}),
        said("user", "go"),
        said("assistant", "I look."),
        said("user", "and?"),
        said("assistant", "so far"),
        ("compacted", {"message": "The summary: so far", "replacement_history": kept}),
        said("assistant", "on"),
        ("compacted", {"message": "", "replacement_history": kept}),
        said("assistant", "done"),
    ]
    rows = [{"timestamp": TIME.format(1), "type": kind, "payload": payload} for kind, payload in found]
    file, store = tmp_path / "rollout.jsonl", tmp_path / "s.db"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert 0 == refold("import", file, "--store", store).code
    asked = "this answer is a compaction's summary, and what asked for it is not in the source"
    lost = "the summary that a compaction before this left is not in the source"
    for turn, lacks in ((1, []), (2, [asked]), (3, []), (4, [lost])):
        view = json.loads(refold("view", f"@last@t{turn}", "--store", store, "-o", "json").out)
        assert (False, lacks) == (view["system_known"], view["lacks"])
        text = refold("view", f"@last@t{turn}", "--store", store).out
        assert "the source records a template" in text
        assert all(sentence in text for sentence in lacks)
