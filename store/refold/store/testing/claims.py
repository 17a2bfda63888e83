"""Tests of leases and of runnable runs."""
# ruff: noqa: SIM300 - the expected value is on the left

from math import inf, nan

import anyio
import pytest

from refold.reducers.errors import WrongUse
from refold.store.protocol import LEASE_SECONDS, Conflict, Held, Lease, LeaseLost, Store, UnknownRun
from refold.store.testing.logs import Promises, append, records, take

LATER = LEASE_SECONDS + 1


class ClaimPromises(Promises):
    """Tests of leases, takeovers, waking and waiting."""

    async def test_a_lease_keeps_others_out(self, store: Store) -> None:
        """While a run is leased, `lease` raises `Held` with the holder, the token and the remaining time."""
        lease = await store.lease("r", holder="one")
        with pytest.raises(Held) as caught:
            await store.lease("r", holder="other")
        held, claim = caught.value, await store.claim("r")
        await store.append("r", 0, lease, records(1))
        assert ("r", "one", lease.token) == (held.run, held.holder, held.token)
        assert 0 < held.seconds <= LEASE_SECONDS
        assert claim is not None
        assert ("r", "one", lease.token) == (claim.run, claim.holder, claim.token)
        assert 0 < claim.seconds <= LEASE_SECONDS

    async def test_of_many_who_ask_one_gets_the_lease(self, store: Store) -> None:
        """If eight engines request a run at once, one gets the lease and seven get `Held`."""
        got, held = list[Lease](), list[Held]()

        async def ask(store: Store, holder: str) -> None:
            try:
                got.append(await store.lease("r", holder=holder))
            except Held as error:
                held.append(error)

        async with anyio.create_task_group() as tasks:
            for n in range(8):
                tasks.start_soon(ask, store, f"engine {n}")
        assert (1, 7) == (len(got), len(held))

    async def test_taking_over_a_lease_that_ran_out(self, store: Store) -> None:
        """After a takeover of an expired lease, its old holder cannot append, even with the right number."""
        old = await store.lease("r", holder="one")
        await store.append("r", 0, old, records(2))
        self.pass_time(LATER)
        new = await store.lease("r", holder="other")
        with pytest.raises(LeaseLost) as caught:
            await store.append("r", 2, old, records(1))
        with pytest.raises(LeaseLost):
            await store.renew(old)
        await store.release(old)
        claim = await store.claim("r")
        await store.append("r", 2, new, records(1))
        assert new.token > old.token
        assert (old.token, new.token) == (caught.value.token, caught.value.current)
        assert ("other", new.token) == (claim.holder, claim.token) if claim else False

    async def test_taking_over_a_lease_that_is_known(self, store: Store) -> None:
        """`over` takes the run if it is the token of the current lease; an older token does not."""
        first = await store.lease("r", holder="one")
        second = await store.lease("r", holder="other", over=first.token)
        with pytest.raises(LeaseLost):
            await store.append("r", 0, first, records(1))
        with pytest.raises(Held):
            await store.lease("r", holder="third", over=first.token)
        await store.append("r", 0, second, records(1))

    async def test_over_a_lease_that_nobody_has(self, store: Store) -> None:
        """For a free run, `over` is ignored."""
        lease = await store.lease("r", holder="one", over=7)
        await store.append("r", 0, lease, records(1))

    async def test_a_lease_that_ran_out_and_that_nobody_took(self, store: Store) -> None:
        """The holder of an expired lease may append and renew it until another engine leases the run."""
        lease = await store.lease("r", holder="one")
        self.pass_time(LATER)
        await store.append("r", 0, lease, records(1))
        assert ["r"] == list(await store.due(9))
        await store.renew(lease, 60)
        assert [] == list(await store.due(9))
        self.pass_time(59)
        with pytest.raises(Held):
            await store.lease("r", holder="other")

    async def test_tokens_only_grow(self, store: Store) -> None:
        """Each lease has a greater token than all before it, however those ended."""
        tokens = list[int]()
        for turn in range(6):
            lease = await take(store, "r")
            tokens.append(lease.token)
            if turn % 2:
                await store.release(lease, None if turn == 3 else 5)
        assert sorted(set(tokens)) == tokens

    async def test_a_lease_that_was_let_go(self, store: Store) -> None:
        """After `release` the lease is lost, and the run is free and not due."""
        lease = await store.lease("r", holder="one")
        await store.append("r", 0, lease, records(1))
        await store.release(lease)
        assert await store.claim("r") is None
        assert [] == list(await store.due(9))
        with pytest.raises(LeaseLost):
            await store.append("r", 1, lease, records(1))
        with pytest.raises(LeaseLost):
            await store.renew(lease)
        await store.release(lease, 0)
        assert await store.claim("r") is None

    async def test_letting_go_for_a_while(self, store: Store) -> None:
        """A run released with `after` is due after that many seconds; with 0 it is due at once."""
        await append(store, "r", records(1))
        await store.release(await take(store, "r"), after=10)
        claim = await store.claim("r")
        assert claim is not None
        assert "" == claim.holder
        assert 0 < claim.seconds <= 10
        assert [] == list(await store.due(9))
        self.pass_time(11)
        assert ["r"] == list(await store.due(9))
        await store.release(await store.lease("r", holder="one"), after=0)
        assert ["r"] == list(await store.due(9))

    async def test_who_takes_a_due_run_has_it(self, store: Store) -> None:
        """A due run has no holder; once leased, it is not due."""
        await self._wait(store, "r")
        await store.wake("r")
        claim = await store.claim("r")
        assert claim is not None
        assert "" == claim.holder
        assert claim.seconds <= 0
        assert ["r"] == list(await store.due(9))
        await store.lease("r", holder="one")
        assert [] == list(await store.due(9))

    @pytest.mark.parametrize("woken", [False, True])
    async def test_the_last_append_releases_the_run(self, store: Store, woken: bool) -> None:  # noqa: FBT001
        """An append with `release` ends the lease, and the run waits for nothing, even if it was woken."""
        lease = await store.lease("r", holder="one")
        await store.append("r", 0, lease, records(1))
        if woken:
            await store.wake("r")
        with pytest.raises(Conflict):
            await store.append("r", 7, lease, records(1), release=True)
        assert await store.claim("r") is not None
        await store.append("r", 1, lease, records(2), release=True)
        assert 3 == (await store.head("r")).seq
        assert await store.claim("r") is None
        assert [] == list(await store.due(9))
        with pytest.raises(LeaseLost):
            await store.append("r", 3, lease, records(1))
        await append(store, "r", records(1))

    async def test_taking_due_runs(self, store: Store) -> None:
        """`take_due` leases due runs, longest waiting first, without those to be skipped."""
        for run in ("a", "b", "c", "d"):
            await append(store, run, records(1))
            await store.release(await take(store, run), after=0)
            self.pass_time(1)
        taken = await store.take_due(2, holder="one", skip=["b"])
        assert ["a", "c"] == [lease.run for lease in taken]
        for lease in taken:
            await store.append(lease.run, 1, lease, records(1))
            claim = await store.claim(lease.run)
            assert claim is not None
            assert "one" == claim.holder
        assert ["b", "d"] == list(await store.due(9))
        assert () == tuple(await store.take_due(0, holder="two"))
        assert ["b", "d"] == [lease.run for lease in await store.take_due(9, holder="two")]
        self.pass_time(LATER)
        assert {"a", "b", "c", "d"} == {lease.run for lease in await store.take_due(9, holder="three")}

    async def test_many_who_take_due_runs_get_different_ones(self, store: Store) -> None:
        """Concurrent callers of `take_due` share the due runs."""
        runs = {f"r{number}" for number in range(12)}
        for run in runs:
            await append(store, run, records(1))
            await store.release(await take(store, run), after=0)
        taken = list[str]()

        async def work(holder: str) -> None:
            while leases := await store.take_due(2, holder=holder):
                taken.extend(lease.run for lease in leases)

        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(work, f"w{number}")
        assert sorted(runs) == sorted(taken)

    async def test_waking_a_run_that_waits(self, store: Store) -> None:
        """Both an idle run and one that waits for a time are due as soon as they are woken."""
        await self._wait(store, "a")
        await self._wait(store, "b", after=60)
        await store.wake("a")
        await store.wake("b")
        assert {"a", "b"} == set(await store.due(9))

    @pytest.mark.parametrize("most", [0, -1])
    async def test_asking_for_none_of_the_runs_that_are_due(self, store: Store, most: int) -> None:
        """`due` returns no runs for a maximum of zero or less."""
        await self._wait(store, "a")
        await store.wake("a")
        assert [] == list(await store.due(most))

    @pytest.mark.parametrize("after", [None, 60.0])
    async def test_waking_a_run_that_is_held(self, store: Store, after: float | None) -> None:
        """A leased run that is woken is due as soon as it is released, whatever `after` its holder gave."""
        await append(store, "r", records(1))
        lease = await take(store, "r")
        await store.wake("r")
        assert [] == list(await store.due(9))
        await store.release(lease, after)
        assert ["r"] == list(await store.due(9))

    async def test_who_takes_over_has_seen_why_it_was_woken(self, store: Store) -> None:
        """The next lease consumes a wake: after its release the run is not due."""
        await append(store, "r", records(1))
        await take(store, "r")
        await store.wake("r")
        await store.release(await take(store, "r"))
        assert [] == list(await store.due(9))

    async def test_due_in_order(self, store: Store) -> None:
        """`due` lists the longest waiting runs first, includes abandoned ones, and respects the maximum."""
        for run in ("late", "woken", "left", "early"):
            await self._wait(store, run)
        await store.release(await store.lease("late", holder="one"), after=40)
        await store.release(await store.lease("early", holder="one"), after=5)
        await store.lease("left", holder="one", seconds=10)
        self.pass_time(20)
        await store.wake("woken")
        self.pass_time(21)
        await store.wake("early")  # it was due already and keeps its place
        assert ["early", "left", "woken", "late"] == list(await store.due(9))
        assert ["early", "left"] == list(await store.due(2))
        assert [] == list(await store.due(0))

    async def test_a_run_without_events(self, store: Store) -> None:
        """A run without events can be leased but is never due; waking it raises `UnknownRun`."""
        await store.lease("r", holder="one")
        self.pass_time(LATER)
        assert [] == list(await store.due(9))
        assert await store.claim("r") is not None
        assert await store.claim("other") is None
        for run in ("r", "other"):
            with pytest.raises(UnknownRun):
                await store.wake(run)

    async def test_a_clock_that_was_set_back(self, store: Store) -> None:
        """If the clock is set back, a lease lasts at most its own length, counted from the next request."""
        await store.lease("r", holder="one")
        self.pass_time(-3600)
        for seconds in (20, LATER - 20):
            with pytest.raises(Held) as caught:
                await store.lease("r", holder="other")
            assert 0 < caught.value.seconds <= LEASE_SECONDS
            self.pass_time(seconds)
        await store.lease("r", holder="other")

    async def test_waiting_over_a_clock_that_was_set_back(self, store: Store) -> None:
        """If the clock is set back, waiting and abandoned runs are due after at most their own wait, counted
        from the next call of `due`.
        """
        await self._wait(store, "r")
        await self._wait(store, "s", after=5)
        await store.lease("r", holder="one")
        self.pass_time(-3600)
        assert [] == list(await store.due(9))
        self.pass_time(6)
        assert ["s"] == list(await store.due(9))
        self.pass_time(LATER)
        assert {"r", "s"} == set(await store.due(9))

    async def test_a_clock_that_was_set_forward(self, store: Store) -> None:
        """If the clock is set forward, leases expire early; a holder may still renew its lease."""
        lease = await store.lease("r", holder="one")
        self.pass_time(3_000_000)
        await store.renew(lease)
        await store.append("r", 0, lease, records(1))
        with pytest.raises(Held):
            await store.lease("r", holder="other")

    @pytest.mark.parametrize("seconds", [-1.0, nan, inf, 1e300])
    async def test_a_lease_of_no_length(self, store: Store, seconds: float) -> None:
        """Negative and infinite lengths raise `WrongUse` and lease nothing."""
        with pytest.raises(WrongUse):
            await store.lease("r", holder="one", seconds=seconds)
        lease = await store.lease("r", holder="one")
        with pytest.raises(WrongUse):
            await store.renew(lease, seconds)

    @pytest.mark.parametrize("holder", ["", "a\nb", "\x1b[31m", "\ud800"])
    async def test_a_holder_without_a_name(self, store: Store, holder: str) -> None:
        """A holder's name that is empty or not one printable line raises `WrongUse`."""
        with pytest.raises(WrongUse):
            await store.lease("r", holder=holder)

    async def _wait(self, store: Store, run: str, after: float | None = None) -> None:
        """Create a free run with one event."""
        lease = await store.lease(run, holder="a test")
        await store.append(run, 0, lease, records(1))
        await store.release(lease, after)
