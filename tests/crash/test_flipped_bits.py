"""A real engine killed with SIGKILL after payments, and then one bit of its write-ahead log flipped: nothing
is paid again.
"""

import random
import shutil
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from crash.paid_process import PAYMENTS, payer, payments
from refold.console.main import main as refold
from refold.store import DamagedStore, wal

PROCESS = Path(__file__).with_name("paid_process.py")
FRAME = 4096 + wal.FRAME


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an engine that reported its run as completed, and was killed."""
    folder = tmp_path_factory.mktemp("killed")
    process = subprocess.Popen(
        [sys.executable, str(PROCESS), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert "done\n" == process.stdout.readline()
    finally:
        process.kill()
        process.communicate(timeout=30)
    assert [str(number) for number in range(PAYMENTS)] == payments(folder)
    return folder


def bits(log: bytes) -> list[int]:
    """One in each frame, and the last ones of the log."""
    chance = random.Random(3)
    frames = range((len(log) - wal.HEADER) // FRAME)
    some = [8 * (wal.HEADER + frame * FRAME) + chance.randrange(8 * FRAME) for frame in frames]
    return [8 * 20, *some, 8 * len(log) - 1]


def test_nothing_is_paid_again(killed: Path, tmp_path: Path) -> None:
    """Whichever bit is flipped, no engine takes the run up, and nothing is paid or written."""
    log = (killed / "runs.db-wal").read_bytes()
    for bit in bits(log):
        folder = Path(shutil.copytree(killed, tmp_path / str(bit)))
        changed = bytearray(log)
        changed[bit // 8] ^= 1 << bit % 8
        (folder / "runs.db-wal").write_bytes(changed)
        with pytest.raises(DamagedStore, match="-wal is"):
            anyio.run(payer(folder, folder / "runs.db").resume("payment").result)
        assert PAYMENTS == len(payments(folder))
        assert bytes(changed) == (folder / "runs.db-wal").read_bytes()
        shutil.rmtree(folder)


@pytest.mark.parametrize("part", [0.0, 0.5, 0.99])
def test_commands_say_so(
    killed: Path, tmp_path: Path, part: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """`verify`, `show` and `ls` end with exit code 3 and name the frame; `resume` begins nothing."""
    folder = Path(shutil.copytree(killed, tmp_path / "copy"))
    log = bytearray((folder / "runs.db-wal").read_bytes())
    log[int((len(log) - 1) * part)] ^= 1
    (folder / "runs.db-wal").write_bytes(log)
    store = ["--store", str(folder / "runs.db")]
    for words in (
        ["verify", "payment"],
        ["show", "payment"],
        ["ls"],
        ["audit", "--all"],
        ["resume", "payment"],
    ):
        assert 3 == refold([*words, *store]), words
        told = capsys.readouterr()
        assert "-wal is" in told.out + told.err, words
    assert PAYMENTS == len(payments(folder))


def test_no_log_that_a_crash_cut_off_is_refused(killed: Path, tmp_path: Path) -> None:
    """Cut off at any byte the log is that of a crash: nothing is reported, and `verify` does not end with
    exit code 3.
    """
    log = (killed / "runs.db-wal").read_bytes()
    chance = random.Random(5)
    for cut in sorted(chance.randrange(len(log)) for _ in range(12)):
        folder = Path(shutil.copytree(killed, tmp_path / str(cut)))
        (folder / "runs.db-shm").unlink()
        (folder / "runs.db-wal").write_bytes(log[:cut])
        assert "" == wal.wal_problem(folder / "runs.db")
        assert 3 != refold(["verify", "--all", "--store", str(folder / "runs.db")])
        shutil.rmtree(folder)
