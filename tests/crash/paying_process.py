"""An agent that pays, in a process of its own, to be suspended or killed in the middle: `paying_process.py
FOLDER KIND`.

Its tool says `begun`, and pays once it is told `go` on its standard input; with KIND `program` a program that
it runs does that. The bank is a folder: a line a payment, and, with KIND `fenced`, for each call the epoch
below which it takes nothing.
"""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import anyio

from refold.engine import (
    Agent,
    CallContext,
    DidNot,
    Happened,
    Reconciled,
    Reply,
    ScriptedModel,
    Tool,
    call,
    tool,
)
from refold.store.protocol import LeaseLost

LEASE = 0.6
"""Seconds for which the run belongs to an engine that gives no sign of life."""


class Bank:
    """What is outside. With `fenced` it is told of the newest epoch of a call, and refuses older ones."""

    def __init__(self, folder: Path, *, fenced: bool) -> None:
        self._ledger, self._fences, self.fenced = folder / "ledger", folder / "fences", fenced

    def payments(self) -> list[str]:
        return self._ledger.read_text().splitlines() if self._ledger.exists() else []

    def pay(self, context: CallContext) -> str:
        if self._fences.exists() and context.epoch < int(self._fences.read_text()):
            raise PermissionError(f"epoch {context.epoch} is over")
        with self._ledger.open("a") as ledger:
            print(context.key, context.epoch, file=ledger)
        return "paid"

    def look_up(self, context: CallContext) -> Reconciled:
        if self.fenced:
            self._fences.write_text(str(context.epoch))
        if any(line.startswith(context.key) for line in self.payments()):
            return Happened("paid")
        return DidNot(final=self.fenced, note="no entry")


def pays(
    bank: Bank, before: Callable[[], object] = lambda: None, after: Callable[[], object] = lambda: None
) -> Tool:
    """The tool, a function in a thread: nobody can stop it."""

    @tool(replay="reconcilable", reconcile=bank.look_up)
    def pay(context: CallContext) -> str:
        before()
        try:
            return bank.pay(context)
        finally:
            after()

    return pay


PROGRAM = """
import sys
print("begun", flush=True)
sys.stdin.readline()
with open(sys.argv[1], "a") as ledger:
    print(sys.argv[2], file=ledger)
"""


def pays_by_program(bank: Bank, folder: Path) -> Tool:
    """The tool, of which a program of its own does the work."""

    @tool(replay="reconcilable", reconcile=bank.look_up)
    def pay(context: CallContext) -> str:
        subprocess.run([sys.executable, "-c", PROGRAM, folder / "ledger", context.key], check=True)
        return "paid"

    return pay


def payer(folder: Path, tool: Tool, *script: Reply) -> Agent:
    return Agent(model=ScriptedModel(script), tools=[tool], store=folder / "runs.db", lease=LEASE)


def wait() -> None:
    print("begun", flush=True)
    sys.stdin.readline()


def main(folder: Path, kind: str) -> None:
    done = threading.Event()
    bank = Bank(folder, fenced=kind == "fenced")
    pay = pays_by_program(bank, folder) if kind == "program" else pays(bank, wait, done.set)
    try:
        anyio.run(payer(folder, pay, call("pay")).start("Pay.", run_id="payment").result)
    except LeaseLost:
        done.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
