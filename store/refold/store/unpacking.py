"""Unpacking a bundle into a store."""

from os import PathLike
from pathlib import Path

import msgspec

from refold.reducers.errors import WrongUse
from refold.store.bundles import DamagedBundle, batches, open_bundle
from refold.store.files import write_atomically
from refold.store.opening import SQLITE, open_store, store_address
from refold.store.protocol import Store
from refold.store.verify_bundle import Bundle, PackedRun


class Unpacked(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `unpack`: the address of the store without passwords, and the number of runs and events."""

    path: str
    runs: int
    events: int


async def unpack(path: Path, target: str | PathLike[str]) -> Unpacked:
    """Write a bundle's runs to the store at the address `target`; events and hashes are unchanged.

    A file is created, and a failure leaves none. Runs are added to a database after the whole bundle was
    checked; if it fails while they are written, the error is raised and the runs before it stay.

    The seal is not copied: it covers a log of heads that the bundle does not contain. Raises as
    `open_bundle`, and `WrongUse` if the file exists, or the database has one of the runs.
    """
    address = store_address(target)
    if address.scheme == SQLITE:
        with write_atomically(Path(address.path)) as partial:
            runs, events = await _write(path, partial)
    else:
        with open_bundle(path) as bundle:
            names = [run.id for run in bundle.runs]
            for run in bundle.runs:
                for _ in batches(bundle.lines(run)):
                    pass
            bundle.check_rest()
        async with await open_store(target) as store:
            for name in names:
                if (await store.head(name)).seq:
                    raise WrongUse(f"{address.shown}: has a run {name!r} already; nothing was written")
        runs, events = await _write(path, target)
    return Unpacked(path=address.shown, runs=runs, events=events)


async def _write(path: Path, target: str | PathLike[str]) -> tuple[int, int]:
    with open_bundle(path) as bundle:
        async with await open_store(target) as store:
            for run in bundle.runs:
                await _unpack_run(store, bundle, run, path)
            bundle.check_rest()
        return len(bundle.runs), bundle.events


async def _unpack_run(store: Store, bundle: Bundle, run: PackedRun, path: Path) -> None:
    origin = bundle.origin(run)
    lease, seq, head = await store.lease(run.id, holder="refold unpack"), origin.seq if origin else 0, b""
    for records in batches(bundle.lines(run)):
        try:
            stands = await store.append(run.id, seq, lease, records)
        except WrongUse as error:  # a fork of what is not there
            raise DamagedBundle(str(path), str(error)) from error
        seq, head = stands.seq, stands.hash
    assert (seq, head) == (run.events, run.head), "the chain of a store is that of a bundle"
    await store.release(lease)
