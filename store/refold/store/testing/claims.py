"""The promises about leases and about runs that want an engine."""
# ruff: noqa: SIM300 - the expected value stands on the left

from math import inf, nan

import anyio
import pytest

from refold.reducers.errors import WrongUse
from refold.store.protocol import LEASE_SECONDS, Held, Lease, LeaseLost, Store, UnknownRun
from refold.store.testing.logs import Promises, append, records, take

LATER = LEASE_SECONDS + 1


class ClaimPromises(Promises):
    """Leases, taking over, waking, waiting."""

    async def test_a_lease_keeps_others_out(self, store: Store) -> None:
        """While one has the run, another gets `Held`, which says who has it, under which token and for how
        long.
        """
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
        """Of eight that ask for a run at once one gets it, and seven are told that it is held."""
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
        """Who let its lease run out is fenced out by the next: it appends nothing, though the number is
        right.
        """
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
        """`over` the token of the very lease that is held takes the run; an older one does not."""
        first = await store.lease("r", holder="one")
        second = await store.lease("r", holder="other", over=first.token)
        with pytest.raises(LeaseLost):
            await store.append("r", 0, first, records(1))
        with pytest.raises(Held):
            await store.lease("r", holder="third", over=first.token)
        await store.append("r", 0, second, records(1))

    async def test_over_a_lease_that_nobody_has(self, store: Store) -> None:
        """`over` forbids nothing: a free run is taken as without it."""
        lease = await store.lease("r", holder="one", over=7)
        await store.append("r", 0, lease, records(1))

    async def test_a_lease_that_ran_out_and_that_nobody_took(self, store: Store) -> None:
        """Its holder may still append, and renewing it makes it as good as new."""
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
        """However leases end, each has a greater token than those before it."""
        tokens = list[int]()
        for turn in range(6):
            lease = await take(store, "r")
            tokens.append(lease.token)
            if turn % 2:
                await store.release(lease, None if turn == 3 else 5)
        assert sorted(set(tokens)) == tokens

    async def test_a_lease_that_was_let_go(self, store: Store) -> None:
        """After `release` the lease is lost, the run is free, and wants no engine."""
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
        """A run released `after` some seconds is due then and not before; one released after 0 at once."""
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
        """A run that is due is not held; taken up, it is not due."""
        await self._wait(store, "r")
        await store.wake("r")
        claim = await store.claim("r")
        assert claim is not None
        assert "" == claim.holder
        assert claim.seconds <= 0
        assert ["r"] == list(await store.due(9))
        await store.lease("r", holder="one")
        assert [] == list(await store.due(9))

    async def test_waking_a_run_that_waits(self, store: Store) -> None:
        """A run with nothing to do, and one that waits for a time, are due as soon as they are woken."""
        await self._wait(store, "a")
        await self._wait(store, "b", after=60)
        await store.wake("a")
        await store.wake("b")
        assert {"a", "b"} == set(await store.due(9))

    @pytest.mark.parametrize("most", [0, -1])
    async def test_asking_for_none_of_the_runs_that_are_due(self, store: Store, most: int) -> None:
        """Where no run is asked for, or fewer than none, no run is given."""
        await self._wait(store, "a")
        await store.wake("a")
        assert [] == list(await store.due(most))

    @pytest.mark.parametrize("after", [None, 60.0])
    async def test_waking_a_run_that_is_held(self, store: Store, after: float | None) -> None:
        """It is not due while it is held, and is at once when it is let go, whatever its holder meant to wait
        for.
        """
        await append(store, "r", records(1))
        lease = await take(store, "r")
        await store.wake("r")
        assert [] == list(await store.due(9))
        await store.release(lease, after)
        assert ["r"] == list(await store.due(9))

    async def test_who_takes_over_has_seen_why_it_was_woken(self, store: Store) -> None:
        """A wake is answered by the next engine that takes the run up: its release leaves nothing due."""
        await append(store, "r", records(1))
        await take(store, "r")
        await store.wake("r")
        await store.release(await take(store, "r"))
        assert [] == list(await store.due(9))

    async def test_due_in_order(self, store: Store) -> None:
        """Those that wait longest come first, abandoned ones among them; no more than asked for."""
        for run in ("late", "woken", "left", "early"):
            await self._wait(store, run)
        await store.release(await store.lease("late", holder="one"), after=40)
        await store.release(await store.lease("early", holder="one"), after=5)
        await store.lease("left", holder="one", seconds=10)
        self.pass_time(20)
        await store.wake("woken")
        self.pass_time(21)
        await store.wake("early")  # has waited all the time, and keeps its place
        assert ["early", "left", "woken", "late"] == list(await store.due(9))
        assert ["early", "left"] == list(await store.due(2))
        assert [] == list(await store.due(0))

    async def test_a_run_without_events(self, store: Store) -> None:
        """It may be leased, and is never due: there is nothing to take up. To wake it is `UnknownRun`."""
        await store.lease("r", holder="one")
        self.pass_time(LATER)
        assert [] == list(await store.due(9))
        assert await store.claim("r") is not None
        assert await store.claim("other") is None
        for run in ("r", "other"):
            with pytest.raises(UnknownRun):
                await store.wake(run)

    async def test_a_clock_that_was_set_back(self, store: Store) -> None:
        """A lease lasts no longer than it was given for, counted from when the run is first asked for."""
        await store.lease("r", holder="one")
        self.pass_time(-3600)
        for seconds in (20, LATER - 20):
            with pytest.raises(Held) as caught:
                await store.lease("r", holder="other")
            assert 0 < caught.value.seconds <= LEASE_SECONDS
            self.pass_time(seconds)
        await store.lease("r", holder="other")

    async def test_waiting_over_a_clock_that_was_set_back(self, store: Store) -> None:
        """Who waits, and who is abandoned, is due no later than it would have been, counted from the next
        look.
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
        """Leases run out early, and their holders go on if the run was not taken."""
        lease = await store.lease("r", holder="one")
        self.pass_time(3_000_000)
        await store.renew(lease)
        await store.append("r", 0, lease, records(1))
        with pytest.raises(Held):
            await store.lease("r", holder="other")

    @pytest.mark.parametrize("seconds", [-1.0, nan, inf, 1e300])
    async def test_a_lease_of_no_length(self, store: Store, seconds: float) -> None:
        """Negative and endless times are `WrongUse`, and take nothing."""
        with pytest.raises(WrongUse):
            await store.lease("r", holder="one", seconds=seconds)
        lease = await store.lease("r", holder="one")
        with pytest.raises(WrongUse):
            await store.renew(lease, seconds)

    @pytest.mark.parametrize("holder", ["", "a\nb", "\x1b[31m", "\ud800"])
    async def test_a_holder_without_a_name(self, store: Store, holder: str) -> None:
        """A name that cannot stand in a line is `WrongUse`."""
        with pytest.raises(WrongUse):
            await store.lease("r", holder=holder)

    async def _wait(self, store: Store, run: str, after: float | None = None) -> None:
        """A run with an event, that is free."""
        lease = await store.lease(run, holder="a test")
        await store.append(run, 0, lease, records(1))
        await store.release(lease, after)
