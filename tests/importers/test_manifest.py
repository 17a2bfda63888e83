"""The counts of every transcript against what was counted from the bytes without us."""

import msgspec
import pytest

from support.transcripts import FILES, WRITTEN, imported, manifest

ROWS = {row["file"]: row for row in (*manifest(), *manifest("WRITTEN.tsv"))}
# A sentence about a file, of which the fields are compared that it sums up; and what the rules leave out.
NOT_COMPARED = {"end_source", "unmarked", "beside"}
# Its ids are redacted, so a call of the session's and one of its sub-agent's look like one; in two runs they
# are two.
LIKE_IDS = {"claude_code/every-row-type-redacted.jsonl": {"tool_results"}}
# Of these it takes a text without a call for an end; by what is recorded nobody knows: no row says why the
# model stopped.
UNSEEN_ENDS = {
    "claude_code/compaction-stop-hook.jsonl",
    "claude_code/python-to-rust-port.jsonl",
    "claude_code/resume-copies-history.jsonl",
    "claude_code/sidechain-in-file.jsonl",
    "claude_code/small-rejected-write.jsonl",
    "claude_code/stop-hook-continues.jsonl",
    "claude_code/stop-hook-reflection.jsonl",
    "claude_code/subagent-tasks.jsonl",
    "claude_code/tiny-1.0.jsonl",
    "gemini_cli/jsonl-0.40.jsonl",
    "gemini_cli/two-prompts.json",
    "gemini_cli/write-files.json",
    "pi/ignorable-entries-v3.jsonl",
}


@pytest.mark.parametrize("file", FILES + WRITTEN)
def test_counts_equal_the_manifest(file: str) -> None:
    """Each column that was counted from the bytes is what the importer counts."""
    found = imported(file)
    row = ROWS[file] | ({"end": "unknown"} if file in UNSEEN_ENDS else {})
    told = {name: str(value) for name, value in msgspec.to_builtins(found.counts).items()}
    told |= {"sha256": found.sha256, "bytes": str(found.bytes)}
    left_out = NOT_COMPARED | LIKE_IDS.get(file, set())
    assert {name: row[name] for name in told if name not in left_out} == {
        name: value for name, value in told.items() if name not in left_out
    }


def test_every_transcript_is_detected() -> None:
    """The format of each file is told by its content: its folder says which it is."""
    assert {file: file.split("/")[0] for file in ROWS} == {file: imported(file).format for file in ROWS}
