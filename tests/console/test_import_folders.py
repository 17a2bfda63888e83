"""Folders in which each event of a run is a file: what they hold is one transcript."""

import json
from pathlib import Path
from typing import Any

from console.conftest import Refold
from support.openhands import act, event
from support.sessions import session

Json = dict[str, Any]
STATE: Json = {"id": "c-1", "execution_status": "finished", "agent": {"llm": {"model": "m"}}}


def conversation() -> list[Json]:
    """The events of a conversation with one call."""
    told = {"role": "user", "content": [{"type": "text", "text": "list it"}]}
    ran = {"content": [{"type": "text", "text": "a.py"}], "is_error": False}
    return [
        event(0, "SystemPromptEvent", system_prompt={"type": "text", "text": "You are."}, tools=[]),
        event(1, "MessageEvent", source="user", llm_message=told),
        act(2, "c1", "R1"),
        event(3, "ObservationEvent", tool_call_id="c1", observation=ran, source="environment"),
    ]


def write(folder: Path, events: list[Json]) -> None:
    """A file an event, as the SDK writes them."""
    folder.mkdir(parents=True)
    for number, each in enumerate(events):
        (folder / f"event-{number:05}-{number:032x}.json").write_text(json.dumps(each, indent=1))
    (folder / ".eventlog.lock").write_text("")


def test_a_folder_of_events_is_one_run(refold: Refold, tmp_path: Path) -> None:
    """The events of a folder, with the state beside it, are one run, whichever folder around them is
    named.
    """
    uses = [{"response_id": "R1", "prompt_tokens": 30, "completion_tokens": 4, "cache_read_tokens": 20}]
    sums = {"prompt_tokens": 30, "completion_tokens": 4, "cache_read_tokens": 20, "cache_write_tokens": 0}
    stats = {"usage_to_metrics": {"agent": {"token_usages": uses, "accumulated_token_usage": sums}}}
    home = tmp_path / "home" / "c-1"
    write(home / "events", conversation())
    (home / "base_state.json").write_text(json.dumps({**STATE, "stats": stats}))
    (home / "notes.json").write_text("{}")
    store = tmp_path / "runs.db"
    (told, *others) = map(
        json.loads, refold("import", tmp_path / "home", "--store", store, "-o", "json").out.splitlines()
    )
    told = next(each for each in (told, *others) if "runs" in each and each.get("format") == "openhands")
    assert (1, 1, 1, 30, 4, "finished") == (
        told["runs"],
        told["tool_calls"],
        told["tool_results"],
        told["input_tokens"],
        told["output_tokens"],
        told["end"],
    )
    shown = json.loads(refold("show", "@last", "--store", store, "-o", "json").out)
    assert ("c-1", "m", 30) == (shown["labels"]["source.key"], shown["model"], shown["usage"]["input"])
    again = refold("import", home, "--store", store, "-o", "json")
    assert 0 == again.code
    assert 1 == len(refold("ls", "--store", store).out.strip().splitlines()) - 1


def test_events_without_a_state_are_a_run_too(refold: Refold, tmp_path: Path) -> None:
    """The folder of the events alone is imported without what the state beside it says: it was not given."""
    write(tmp_path / "c" / "events", conversation())
    (tmp_path / "c" / "base_state.json").write_text(json.dumps(STATE))
    (line,) = refold("import", tmp_path / "c" / "events", "--dry-run", "-o", "json").out.splitlines()[:1]
    told = json.loads(line)
    assert (1, 1, "open") == (told["runs"], told["tool_calls"], told["end"])


def test_a_damaged_event_does_not_hide_the_others(refold: Refold, tmp_path: Path) -> None:
    """An event whose file breaks off is diagnosed, and the others are read."""
    write(tmp_path / "events", conversation())
    (damaged,) = (tmp_path / "events").glob("event-00001-*")
    damaged.write_text(damaged.read_text()[:40])
    ran = refold("import", tmp_path / "events", "--store", tmp_path / "runs.db")
    assert (1, True) == (ran.code, "calls 1" in ran.out)


def test_files_beside_events_are_files_of_their_own(refold: Refold, tmp_path: Path) -> None:
    """A session that lies in the same folder is imported as it always was; a link among the events is not
    followed.
    """
    write(tmp_path / "events", conversation())
    (tmp_path / "events" / "session.jsonl").write_text(session("hello"))
    (tmp_path / "elsewhere.json").write_text(json.dumps(act(9, "c9", "R9")))
    (tmp_path / "events" / "event-00009-9.json").symlink_to(tmp_path / "elsewhere.json")
    ran = refold("import", tmp_path / "events", "--store", tmp_path / "runs.db")
    assert ("openhands" in ran.out, "claude_code" in ran.out, "calls 1" in ran.out) == (True, True, True)
