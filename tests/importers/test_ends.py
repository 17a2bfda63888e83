"""How runs end, by whatever format: a file that breaks off where something is still to come never says that
it was finished.
"""

import json

import pytest

from refold.importers.derivation.gap import conversations
from refold.importers.items import Answered, Item, Returned, RunBegan, RunEnded, Said
from refold.importers.registry import importer
from refold.importers.source import BadTranscript, Source
from support.sessions import DROID, only
from support.transcripts import imported, path_of

FILES = [
    "amp/written-thread.json",
    "claude_code/small-rejected-write.jsonl",
    "claude_code/tiny-1.0.jsonl",
    "copilot_cli/written-session.jsonl",
    "droid/written-session.jsonl",
    "grok_cli/written-history.jsonl",
    "kimi_cli/written-context.jsonl",
    "kimi_cli/written-wire.jsonl",
    "pi/tool-call-v3.jsonl",
    "qwen_code/written-session.jsonl",
]


def beginnings(file: str) -> list[bytes]:
    """A transcript up to each of its rows, or messages."""
    with path_of(file).open("rb") as opened:
        data = Source.opened(file, opened).whole()
    if file.endswith(".jsonl"):
        lines = data.splitlines(keepends=True)
        return [b"".join(lines[:number]) for number in range(1, len(lines))]
    thread = json.loads(data)
    messages = thread["messages"]
    return [json.dumps({**thread, "messages": messages[:upto]}).encode() for upto in range(1, len(messages))]


def waits(items: list[Item]) -> bool:
    """Whether the last that was said in a run waits for something: a prompt, a result, or a call."""
    last = next((item for item in reversed(items) if isinstance(item, Said | Answered | Returned)), None)
    if isinstance(last, Answered):
        return bool(last.calls)
    return isinstance(last, Returned) or (isinstance(last, Said) and last.by == "user")


@pytest.mark.parametrize(
    ("stop", "end"),
    [("", "finished"), ("end_turn", "finished"), ("max_tokens", "limit:token"), ("odd", "unknown")],
)
def test_an_answer_of_droid_ends_as_it_stopped(stop: str, end: str) -> None:
    """An answer without calls is an end unless it says that it stopped for another reason."""
    more = {"stop_reason": stop} if stop else {}
    found = only(RunEnded, DROID.read(DROID.answer("m", None, "hi", **more)))
    assert end == found.end


@pytest.mark.parametrize("file", FILES)
def test_what_waits_is_not_finished(file: str) -> None:
    """A session that stops after a prompt, a result or a call is no finished one, wherever in it that is."""
    looked = 0
    for data in beginnings(file):
        run: list[Item] = []
        try:
            for item in conversations(importer(imported(file).format).items(Source.of("t", data))):
                run = [] if isinstance(item, RunBegan) else run
                run.append(item)
                if isinstance(item, RunEnded) and waits(run):
                    looked += 1
                    assert "finished" != item.end, (len(data), item.end_source)
        except BadTranscript:
            continue
    assert looked
