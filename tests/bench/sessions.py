"""Sessions of a coding agent to ask permission rules about: files as Claude Code writes them, and the rules.

Half of the calls run a script, most of them several commands; the others read, edit, search or fetch. No two
scripts are the same, as in real sessions. One session in ten has a call that the rules refuse.

Only the standard library is imported here: what is measured beside us reads the same sessions and rules, in
an environment of its own.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.prose import prose

CALLS = 50
"""Calls of a session."""
CWD = "/srv/shop"
_REFUSED_IN = 10
_NAMES = ("ledger", "orders", "basket", "search", "mail", "stock", "prices", "report", "session", "taxes")

Row = tuple[str, str, tuple[str, ...], str]
RULES: tuple[Row, ...] = (
    ("refuse", "Bash", ("command", "git push --force*"), "no forced push"),
    ("refuse", "Bash", ("command", "rm -rf /*"), "removes a folder outside the project"),
    ("refuse", "Bash", ("command", "sudo *"), "no root"),
    ("ask", "Bash", ("command", "npm publish *"), "publishes"),
    ("ask", "Bash", ("command", "docker push *"), "publishes"),
    ("ask", "WebFetch", ("host", "pastebin.com"), "uploads"),
    ("refuse", "Read", ("path", "**/.env"), "secrets"),
    ("refuse", "Edit", ("path", ".git/**"), "the repository itself"),
    ("refuse", "Write", ("path", "/etc/**"), "outside the project"),
    ("permit", "Bash", ("command", "git *"), ""),
    ("permit", "Bash", ("command", "npm test *"), ""),
    ("permit", "Read", ("path", "src/**"), ""),
)
"""Effect, tool, condition and reason of each rule; what no rule is about is permitted."""


def policy() -> dict[str, Any]:
    """The rules as the guard `permissions`."""
    rules: list[dict[str, Any]] = []
    for effect, tool, (kind, glob), say in RULES:
        condition = glob if kind == "command" else [glob]
        rules.append({"effect": effect, "tool": tool, kind: condition, **({"say": say} if say else {})})
    return {"guard": "permissions", "rules": rules}


def write_sessions(folder: Path, calls: int) -> list[Path]:
    """Sessions with so many calls together, as files of a folder."""
    folder.mkdir(exist_ok=True)
    files: list[Path] = []
    for number in range((calls + CALLS - 1) // CALLS):
        file = folder / f"session-{number:05}.jsonl"
        rows = _rows(number, min(CALLS, calls - number * CALLS))
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        files.append(file)
    return files


def _rows(number: int, calls: int) -> Iterator[dict[str, Any]]:
    chance = random.Random(number)
    refused = chance.randrange(calls) if number % _REFUSED_IN == 0 else -1
    session = {"isSidechain": False, "sessionId": f"s{number}", "cwd": CWD, "version": "2.1.70"}
    parent = None

    def row(place: int, kind: str, message: dict[str, Any]) -> dict[str, Any]:
        nonlocal parent
        second = f"{place // 3600 % 24:02}:{place // 60 % 60:02}:{place % 60:02}"
        beside = {"uuid": f"{number}-{place}", "parentUuid": parent, "timestamp": f"2026-03-02T{second}.000Z"}
        parent = beside["uuid"]
        return {"type": kind, **session, **beside, "message": {"role": kind, **message}}

    yield row(0, "user", {"content": prose(600, number)})
    for place in range(calls):
        tool, given = ("Bash", {"command": "sudo make install"}) if place == refused else _call(chance)
        id_ = f"toolu_{number}_{place}"
        call = {"type": "tool_use", "id": id_, "name": tool, "input": given}
        usage = {"input_tokens": 900 + 40 * place, "output_tokens": 120, "cache_read_input_tokens": 0}
        said = {"type": "text", "text": prose(300, number + place)}
        answer = {"id": f"m{number}-{place}", "model": "claude-sonnet-4-5", "stop_reason": "tool_use"}
        yield row(2 * place + 1, "assistant", {**answer, "usage": usage, "content": [said, call]})
        text = prose(1_500, number * 7 + place)
        result = {"type": "tool_result", "tool_use_id": id_, "content": text, "is_error": False}
        yield row(2 * place + 2, "user", {"content": [result]})


def _call(chance: random.Random) -> tuple[str, dict[str, Any]]:
    name, n = chance.choice(_NAMES), chance.randrange(100_000)
    file = f"{CWD}/src/{name}/{name}_{n}.py"
    kind = chance.randrange(10)
    if kind < 5:
        return "Bash", {"command": _script(chance, name, n), "description": f"Look at {name} {n}"}
    if kind < 7:
        return "Read", {"file_path": file, "offset": n, "limit": 200}
    if kind == 7:
        return "Edit", {
            "file_path": file,
            "old_string": prose(200, n % 999),
            "new_string": prose(240, n % 997),
        }
    if kind == 8:
        return "Grep", {"pattern": f"def {name}_{n}", "path": f"{CWD}/src"}
    return "WebFetch", {"url": f"https://docs.example.com/{name}/{n}", "prompt": f"How does {name} work?"}


def _script(chance: random.Random, name: str, n: int) -> str:
    scripts = (
        f"cd {CWD} && git status && git diff src/{name}/{name}_{n}.py",
        f'cd web && npm test -- --grep "{name} {n}" 2>&1 | tail -n 40',
        f"grep -rn '{name}_{n}' src tests | head -20",
        f"git add src/{name}/{name}_{n}.py && git commit -m 'Mend {name} {n}'",
        f"python -m pytest tests/{name} -q -k {name}_{n} || true",
        f'for f in src/{name}/*.py; do wc -l "$f"; done; echo {n}',
        f"mkdir -p build/{name} && cp src/{name}/{name}_{n}.py build/{name}/",
        f"ls -la src/{name}/{n}",
    )
    return chance.choice(scripts)
