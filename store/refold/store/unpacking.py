"""Unpacking a bundle into a store."""

from pathlib import Path

import msgspec

from refold.reducers.errors import WrongUse
from refold.store.bundles import DamagedBundle, batches, open_bundle
from refold.store.files import write_atomically
from refold.store.opening import open_store
from refold.store.protocol import Store
from refold.store.verify_bundle import Bundle, PackedRun


class Unpacked(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `unpack`: the path of the store, and the number of runs and events."""

    path: str
    runs: int
    events: int


async def unpack(path: Path, target: Path) -> Unpacked:
    """Create a store at `target` with a bundle's runs; events and hashes are unchanged. A failure leaves no
    file.

    The seal is not copied: it covers a log of heads that the bundle does not contain. Raises as `reading`,
    and `WrongUse` if `target` exists.
    """
    with write_atomically(target) as partial, open_bundle(path) as bundle:
        async with await open_store(partial) as store:
            for run in bundle.runs:
                await _unpack_run(store, bundle, run, path)
            bundle.check_rest()
    return Unpacked(path=str(target), runs=len(bundle.runs), events=bundle.events)


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
