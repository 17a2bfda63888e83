"""A worker in a process of its own, to be killed: `worker.py FOLDER STORE STEPS AT_ONCE LEASE`."""

import os
import sys
from pathlib import Path

import anyio

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))  # a script's own folder is on the path, not the one above it

from refold.engine import Worker  # noqa: E402
from refold.engine.worker import Failed, News  # noqa: E402
from storm.agents import agent, note_heads, trace  # noqa: E402
from storm.places import open_place  # noqa: E402


async def main(folder: Path, address: str, steps: int, concurrency: int, lease: float) -> None:
    store = await open_place(address)
    note_heads(store, folder / "recorded")

    def tell(news: News) -> None:
        (folder / f"at_work.{os.getpid()}").touch()
        if isinstance(news, Failed):
            trace(folder / "told", f"{news.run} {'lost' if news.lost else 'failed'} {news.problem!r}")

    async with store:
        worker = Worker(
            store, agent(steps, folder / "effects"), concurrency=concurrency, lease=lease, poll=0.1, tell=tell
        )
        await worker.run()


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
