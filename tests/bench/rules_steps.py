"""What a question about permission rules costs over a store: asked from outside, as a process of its own.

Each case answers CPU seconds of its work. The imports, and what a first call loads, are not in them.
"""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# A script's own folder is on the path, not the one above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

import msgspec

from bench.memory import peak
from bench.serving import serve
from bench.sessions import policy, write_sessions
from refold.engine.journal import record
from refold.importers.registry import importer
from refold.importers.source import Source
from refold.importers.transcript import Transcript
from refold.reducers.guards.permissions import Permissions
from refold.reducers.parser import parse
from refold.replay.permissions.calls import CallJudge, RuleList
from refold.replay.permissions.hits import PermissionHits
from refold.replay.reader import follow_all
from refold.replay.shards import Shard
from refold.replay.whatif.comparison import ask_all
from refold.replay.whatif.rule_subset import add_guards
from refold.store import SqliteStore
from refold.store.scans import open_scan
from support.forging import write
from support.transcripts import salts

Answer = dict[str, Any]


def prepare(folder: str, calls: int) -> Answer:
    """Write the sessions and import them into a store. Seconds are those of the import."""
    files = write_sessions(Path(folder, "sessions"), calls)
    begun = time.process_time()
    sizes = asyncio.run(_import(Path(folder, "runs.db"), files))
    return {"seconds": time.process_time() - begun, "runs": sizes, "peak": peak()}


async def _import(path: Path, files: Sequence[Path]) -> list[tuple[str, int]]:
    sizes: list[tuple[str, int]] = []
    async with await SqliteStore.open(path, durability="process") as store:
        for file in files:
            source = Source.of(file.name, file.read_bytes())
            for run in Transcript(source, importer("claude_code")).runs():
                groups = run.derive(salts)
                records = [record(each.event, each.at, each.salt) for group in groups for each in group]
                await write(store, run.run, records)
                sizes.append((run.run, len(records)))
    return sizes


def whatif(folder: str, runs: Sequence[tuple[str, int]]) -> Answer:
    """`refold whatif` of the recorded policy of each run with the rules added."""
    shard = Shard(address=str(Path(folder, "runs.db")), runs=tuple(run for run, _ in runs))
    other = add_guards(parse({"guards": [policy()]}))
    begun = time.process_time()
    verdicts = Counter[str]()
    for _, found in ask_all(shard, (other,)):
        assert isinstance(found, tuple), found
        verdicts[str(found[0].verdict)] += 1
    return {"seconds": time.process_time() - begun, "peak": peak(), "found": dict(verdicts)}


def hits(folder: str, runs: Sequence[tuple[str, int]]) -> Answer:
    """`refold rules`: which rule decides each call."""
    (config,) = parse({"guards": [policy()]}).guards
    lists = (RuleList("rules", _guard(config)),)
    begun = time.process_time()
    total = PermissionHits()
    with open_scan(Path(folder, "runs.db")) as scan:
        for run, _ in runs:
            judge = CallJudge(lambda _: lists)
            follow_all(scan.records(run), judge)
            total.add(judge.result())
    seconds = time.process_time() - begun
    decided = {label: each.calls for label, each in sorted(total.rules.items())}
    return {"seconds": seconds, "peak": peak(), "found": decided}


def _guard(config: dict[str, Any]) -> Permissions:
    return msgspec.convert(config, Permissions).complete()


if __name__ == "__main__":
    serve({}, {"prepare": prepare, "whatif": whatif, "hits": hits})
