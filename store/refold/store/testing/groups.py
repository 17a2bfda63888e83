"""The promises about appends of many runs at one moment: shared commits, separate fates."""
# ruff: noqa: SIM300 - the expected value stands on the left

import anyio
import pytest
from anyio.lowlevel import checkpoint

from refold.store.chain import START, check
from refold.store.protocol import Conflict, Head, Lease, LeaseLost, Store, StoreError
from refold.store.testing.helpers import Promises, append, events, records, said, take

RUNS = 64
TURNS = 4


class GroupPromises(Promises):
    """Many runs, many writers, some of whom fail."""

    async def test_64_runs_at_once(self, store: Store) -> None:
        """Each has all that it appended, in order, in a chain that holds, and nothing of another's."""

        async def live(store: Store, run: str, number: int) -> None:
            lease, seq = await store.lease(run, holder="one"), 0
            for turn in range(TURNS):
                head = await store.append(run, seq, lease, records(1 + (number + turn) % 4, 100 * turn))
                assert head.seq == seq + 1 + (number + turn) % 4
                seq = head.seq

        async with anyio.create_task_group() as tasks:
            for number in range(RUNS):
                tasks.start_soon(live, store, f"run-{number}", number)
        for number in range(RUNS):
            wanted = [
                said(each) for turn in range(TURNS) for each in records(1 + (number + turn) % 4, 100 * turn)
            ]
            got, previous = await events(store, f"run-{number}"), START
            assert wanted == [said(event) for event in got]
            for event in got:
                assert check(event, previous) is None
                previous = event

    async def test_bad_appends_among_good_ones(self, store: Store) -> None:
        """Those that conflict, and those under a lost lease, fail each with its own error; all others are written."""
        ended = dict[str, Head | StoreError]()

        async def one(store: Store, run: str, seq: int, lease: Lease) -> None:
            try:
                ended[run] = await store.append(run, seq, lease, records(3, 10))
            except StoreError as error:
                ended[run] = error

        asked = list[tuple[str, int, Lease]]()
        for number in range(30):
            run = f"run-{number}"
            old = await take(store, run)
            await store.append(run, 0, old, records(2))
            lease = await take(store, run) if number % 3 else old
            asked.append((run, 5 if number % 3 == 1 else 2, lease))
            if number % 3 == 0:
                await take(store, run)
        async with anyio.create_task_group() as tasks:
            for each in asked:
                tasks.start_soon(one, store, *each)
        sizes = [len(await events(store, run)) for run, _, _ in asked]
        kinds = [type(ended[run]) for run, _, _ in asked]
        assert [LeaseLost, Conflict, Head] * 10 == kinds
        assert [2, 2, 5] * 10 == sizes

    async def test_what_hangs_on_a_failed_append_fails(self, store: Store) -> None:
        """Of appends of a run that count on one another, none is written after one that failed."""
        failed = list[int]()

        async def one(store: Store, lease: Lease, seq: int) -> None:
            with pytest.raises(Conflict):
                await store.append("r", seq, lease, records(2))
            failed.append(seq)

        await append(store, "r", records(1))
        lease = await take(store, "r")
        async with anyio.create_task_group() as tasks:
            for seq in (2, 4, 6):
                tasks.start_soon(one, store, lease, seq)
        assert 1 == (await store.head("r")).seq
        assert [2, 4, 6] == sorted(failed)

    @pytest.mark.parametrize("moment", [0, 1, 2, 3, 5, 8, 13, 30, 100])
    async def test_some_are_cancelled(self, store: Store, moment: int) -> None:
        """Of appends made at once, those cancelled happened whole or not at all, and the others happened."""

        async def one(store: Store, run: str, lease: Lease, scope: anyio.CancelScope) -> None:
            with scope:
                await store.append(run, 0, lease, records(3))

        scopes = {f"run-{number}": anyio.CancelScope() for number in range(12)}
        leases = {run: await store.lease(run, holder="one") for run in scopes}
        async with anyio.create_task_group() as tasks:
            for run, scope in scopes.items():
                tasks.start_soon(one, store, run, leases[run], scope)
            for _ in range(moment):
                await checkpoint()
            for number in range(0, 12, 2):
                scopes[f"run-{number}"].cancel()
        seqs = {run: (await store.head(run)).seq for run in scopes}
        assert {0, 3} >= set(seqs.values())
        assert [3] * 6 == [seqs[f"run-{number}"] for number in range(1, 12, 2)]
        for run, seq in seqs.items():  # and what was not written then is not written later
            await store.append(run, seq, leases[run], records(1))
