"""An agent that pays three times and completes, in a process of its own that never closes its store:
`paid_process.py FOLDER`.
"""

import sys
from pathlib import Path

import anyio

from refold.engine import Agent, ScriptedModel, Tool, call, say, tool
from refold.store import SqliteStore
from refold.store.protocol import Store

PAYMENTS = 3


def payments(folder: Path) -> list[str]:
    """What was paid, a line each."""
    ledger = folder / "ledger"
    return ledger.read_text().splitlines() if ledger.exists() else []


def pays(folder: Path) -> Tool:
    @tool
    def pay(number: int) -> str:
        with (folder / "ledger").open("a") as ledger:
            print(number, file=ledger)
        return "paid"

    return pay


def payer(folder: Path, store: Store | Path, done: int = 0) -> Agent:
    """The agent, for a run in which so many payments stand already."""
    script = [*(call("pay", number=number) for number in range(done, PAYMENTS)), say("All paid.")]
    return Agent(model=ScriptedModel(script), tools=[pays(folder)], store=store)


async def main(folder: Path) -> None:
    store = await SqliteStore.open(folder / "runs.db")
    await payer(folder, store).start("Pay.", run_id="payment").result()
    print("done", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]))
