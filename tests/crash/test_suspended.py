"""A real engine suspended with SIGSTOP in the middle of a payment, past its lease, and woken after another
took over.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio

from crash.paying_process import Bank, payer, pays
from refold.engine import say
from refold.replay import audit, verify
from refold.store import SqliteStore

PROCESS = Path(__file__).with_name("paying_process.py")
PATIENCE = 30.0


@contextmanager
def suspended(folder: Path, kind: str) -> "Iterator[subprocess.Popen[str]]":
    """A process that stands still in the middle of a payment."""
    process = subprocess.Popen(
        [sys.executable, str(PROCESS), str(folder), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert "begun\n" == process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        yield process
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


def woken(process: "subprocess.Popen[str]") -> None:
    """It goes on with the payment where it stood, and comes to its end."""
    process.send_signal(signal.SIGCONT)
    process.communicate("go\n", timeout=PATIENCE)
    assert 0 == process.returncode


def taken_over(folder: Path, bank: Bank) -> list[str]:
    """Another engine waits for the lease to run out and goes on.

    What the model was shown last, and the run's end.
    """

    async def main() -> list[str]:
        result = await payer(folder, pays(bank), say("Well.")).resume("payment").result()
        async with await SqliteStore.open(folder / "runs.db", readonly=True) as store:
            assert (await verify(store, "payment")).whole
            assert (await audit(store, "payment")).clean
        return [result.messages[-2].text, str(result.state)]

    return anyio.run(main)


def test_a_payment_of_which_nobody_knows_whether_it_is_still_to_come_is_in_doubt(tmp_path: Path) -> None:
    """While the first engine may wake up, the second does not pay, though the bank knows of no payment."""
    bank = Bank(tmp_path, fenced=False)
    with suspended(tmp_path, "plain") as process:
        told, state = taken_over(tmp_path, bank)
        assert [] == bank.payments()
        woken(process)
    assert 1 == len(bank.payments())
    assert told.startswith("in_doubt: the call was started")
    assert "COMPLETED" == state


def test_a_payment_of_a_dead_process_is_in_doubt_too(tmp_path: Path) -> None:
    """After a SIGKILL the program that the tool had started pays; the next engine has not paid a second
    time.
    """
    bank = Bank(tmp_path, fenced=False)
    with suspended(tmp_path, "program") as process:
        process.kill()
        process.wait(PATIENCE)
        told, state = taken_over(tmp_path, bank)
        assert [] == bank.payments()
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        # The program holds the other end of this pipe: it has paid when that is closed.
        assert process.stdout is not None
        assert "" == process.stdout.read()
    assert 1 == len(bank.payments())
    assert told.startswith("in_doubt: the call was started")
    assert "COMPLETED" == state


def test_a_bank_that_refuses_older_epochs_is_believed_at_once(tmp_path: Path) -> None:
    """The second engine pays though the first may wake up; when it does, its epoch is over, and nothing
    moves.
    """
    bank = Bank(tmp_path, fenced=True)
    with suspended(tmp_path, "fenced") as process:
        assert ["paid", "COMPLETED"] == taken_over(tmp_path, bank)
        paid = bank.payments()
        woken(process)
    assert 1 == len(paid)
    assert paid == bank.payments()
