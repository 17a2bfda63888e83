"""The benchmark of permission rules runs: for a handful of calls, and never by the clock."""

from pathlib import Path

from bench.rules_steps import hits, prepare, whatif


def test_rules_are_asked_about_all_sessions(tmp_path: Path) -> None:
    """One session in ten has a refused call; each of the others agrees, and every call is counted."""
    prepared = prepare(str(tmp_path), calls=120)
    files = sorted(tmp_path.glob("*/*.jsonl"))
    assert [50, 50, 20] == [file.read_text().count('"tool_use", "id"') for file in files]
    assert 3 == len(prepared["runs"])
    assert {"diverges": 1, "agree": 2} == whatif(str(tmp_path), prepared["runs"])["found"]
    found = hits(str(tmp_path), prepared["runs"])["found"]
    assert 1 == found["Bash sudo *"]
