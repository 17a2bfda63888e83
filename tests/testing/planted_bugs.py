"""Agents with one planted bug each, and the same agents without it."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, ClassVar
from uuid import uuid4

import anyio
import msgspec

from refold.engine import (
    Agent,
    CallContext,
    DidNot,
    Happened,
    Reconciled,
    ScriptedModel,
    Tool,
    call,
    calls,
    say,
    tool,
)
from refold.reducers import Event, RunState
from refold.reducers.events import ToolReturned
from refold.reducers.guards import Guard, Inject, Judgement, Place, Refuse
from refold.testing import Ledger, Report, ViolationKind, deliver, simulate


class Bank:
    """A bank that pays once for each key, and refuses engines that were replaced, if it is asked to."""

    def __init__(self) -> None:
        self.payments: dict[str, int] = {}
        self.total = 0
        self.fenced: dict[str, int] = {}

    def pay(self, key: str, cents: int) -> None:
        if key not in self.payments:
            self.payments[key] = cents
            self.total += cents

    def transfer(self, context: CallContext, cents: int) -> None:
        """Pay, as a service that knows epochs but no keys."""
        if context.epoch < self.fenced.get(context.key, 0):
            raise ConnectionError("this engine was replaced")
        self.payments[context.key] = cents
        self.total += cents

    def fence(self, context: CallContext) -> None:
        self.fenced[context.key] = max(context.epoch, self.fenced.get(context.key, 0))


def overpaid(bank: Bank) -> Iterable[str]:
    """Check that each call paid once at most."""
    if bank.total > sum(bank.payments.values()):
        yield f"{bank.total} cents were paid for bills of {sum(bank.payments.values())}"


PAYMENTS = (call("pay", cents=30), calls(("pay", {"cents": 5}), ("pay", {"cents": 7})), say("Paid."))


def agent(*tools: Tool, lines: Iterable[Any] = PAYMENTS, **more: Any) -> Agent:
    return Agent(ScriptedModel(list(lines)), tools=tools, **more)


def make_once(bank: Bank, *, mended: bool) -> Agent:
    """The tool is declared idempotent, but pays each time that it runs."""

    @tool(replay="idempotent")
    async def pay(cents: int, context: CallContext) -> str:
        await anyio.sleep(1)
        if mended:
            bank.pay(context.key, cents)
        else:
            bank.payments[context.key] = cents
            bank.total += cents
        return "paid"

    return agent(pay)


class Quota(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="guard", tag="quota"
):
    """Refuse calls after the first result. The mended guard counts results in its own state."""

    name: str = ""

    kind: ClassVar[str] = "quota"
    version: ClassVar[int] = 1
    places: ClassVar[frozenset[Place]] = frozenset({Place.ON_CALLS})
    observes: ClassVar[frozenset[type[Event]]] = frozenset({ToolReturned})
    reads_content: ClassVar[bool] = False
    texts: ClassVar[Mapping[str, str]] = {"refused:quota": "skipped: too many calls."}

    def start(self) -> int:
        return 0

    def observe(self, own: int, event: Event) -> int:
        return own + 1

    def judge(self, own: int, state: RunState, place: Place) -> Iterable[Judgement]:
        if state.batch is not None and self.count(own) > 1:
            for each in state.batch.calls:
                yield Refuse(code="quota", call=each.id, text="refused:quota")

    def count(self, own: int) -> int:
        return own + 1


class ForgetfulQuota(Quota, frozen=True, kw_only=True, tag="quota"):
    """Counts in an attribute of the class, which is lost with its process."""

    batches: ClassVar[list[int]] = []

    def count(self, own: int) -> int:
        self.batches.append(1)
        return len(self.batches)


JUDGED: list[int] = []


class ModuleQuota(Quota, frozen=True, kw_only=True, tag="quota"):
    """Counts in a global of its module."""

    def count(self, own: int) -> int:
        JUDGED.append(1)
        return len(JUDGED)


def make_guarded(ledger: Ledger, *, mended: bool, hidden: type[Guard] = ForgetfulQuota) -> Agent:
    """The guard decides by hidden state."""

    @tool(replay="idempotent")
    async def pay(cents: int, context: CallContext) -> str:
        await ledger.effect("pay", context, once=True)
        return f"paid {cents}"

    kind = Quota if mended else hidden
    return agent(pay, policy={"guards": [{"guard": "quota"}]}, guards={"quota": kind})


def make_patient(ledger: Ledger, *, mended: bool) -> Agent:
    """The tool retries for ever, whatever its error is, also if that is its cancellation."""

    @tool(replay="idempotent", timeout=5)
    async def pay(cents: int, context: CallContext) -> str:
        while True:
            try:
                await ledger.effect("pay", context, once=True)
            except BaseException as error:
                if mended and not isinstance(error, ConnectionError):
                    raise
                continue
            return f"paid {cents}"

    return agent(pay)


def make_reconciled(bank: Bank, *, mended: bool) -> Agent:
    """The reconciler promises that no effect will follow, while a request may be on its way."""

    async def find(context: CallContext) -> Reconciled:
        await anyio.sleep(1)
        if mended:
            bank.fence(context)
        return Happened("paid") if context.key in bank.payments else DidNot(final=True)

    @tool(replay="reconcilable", reconcile=find)
    async def pay(cents: int, context: CallContext) -> str:
        await deliver(lambda: bank.transfer(context, cents))
        return "paid"

    return agent(pay)


def make_keyed(bank: Bank, *, mended: bool) -> Agent:
    """The tool makes a new key for each execution."""

    @tool(replay="idempotent")
    async def pay(cents: int, context: CallContext) -> str:
        key = context.key if mended else uuid4().hex
        await deliver(lambda: bank.pay(key, cents))
        return "paid"

    return agent(pay)


def make_early(bank: Bank, *, mended: bool) -> Agent:
    """The tool has its effect before it checks its key."""

    @tool(replay="idempotent")
    async def pay(cents: int, context: CallContext) -> str:
        known = context.key in bank.payments
        if not mended or not known:
            bank.total += cents
        bank.payments.setdefault(context.key, cents)
        await anyio.sleep(1)
        return "paid before" if known else "paid"

    return agent(pay)


NUMBERS: list[str] = []


def make_counting(accounts: dict[int, str], *, mended: bool) -> Agent:
    """The tool numbers accounts by a list in the memory of its process."""

    @tool
    async def open_account(owner: str) -> int:
        await anyio.sleep(1)
        number = len(accounts if mended else NUMBERS) + 1
        NUMBERS.append(owner)
        accounts[number] = "taken" if number in accounts else owner
        return number

    names = ("ann", "bob", "cleo")
    return agent(open_account, lines=(*(call("open_account", owner=name) for name in names), say("Done.")))


def taken(accounts: dict[int, str]) -> None:
    """Check that no account was given to two owners."""
    assert "taken" not in accounts.values(), "two owners have the same account"


class Nag(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="guard", tag="nag"
):
    """Ask for more after each response; the mended guard stops after three times."""

    most: int
    name: str = ""

    kind: ClassVar[str] = "nag"
    version: ClassVar[int] = 1
    places: ClassVar[frozenset[Place]] = frozenset({Place.ON_FINISHED})
    observes: ClassVar[frozenset[type[Event]]] = frozenset()
    reads_content: ClassVar[bool] = False
    texts: ClassVar[Mapping[str, str]] = {"more": "Go on."}

    def start(self) -> None:
        return None

    def observe(self, own: None, event: Event) -> None:
        return None

    def judge(self, own: None, state: RunState, place: Place) -> Iterable[Judgement]:
        if state.spent.steps <= self.most:
            yield Inject(code="more", text="more")


def make_nagging(ledger: Ledger, *, mended: bool) -> Agent:
    """No limit ends the run."""
    policy = {"guards": [{"guard": "nag", "most": 4 if mended else 1_000_000}], "limits": []}
    return agent(lines=(say("Done."),), policy=policy, guards={"nag": Nag})


class Bug(msgspec.Struct, frozen=True):
    """A planted bug: how to make the agent with and without it, and the kind of violation that finds it."""

    make: Callable[..., Agent]
    kind: ViolationKind
    world: Callable[[], Any] = Ledger
    check: Callable[[Any], Iterable[str] | None] | None = None
    deviations: int = 1

    def simulate(self, *, mended: bool, **options: Any) -> Report:
        def make(world: Any) -> Agent:
            return self.make(world, mended=mended)

        return simulate(make, task="Pay.", world=self.world, check=self.check, **options)


BUGS = {
    "not idempotent": Bug(make_once, ViolationKind.NOT_IDEMPOTENT, Bank),
    "hidden state of a guard": Bug(make_guarded, ViolationKind.AUDIT, deviations=0),
    "hidden state of a module": Bug(
        partial(make_guarded, hidden=ModuleQuota), ViolationKind.AUDIT, deviations=0
    ),
    "swallowed cancellation": Bug(make_patient, ViolationKind.IGNORED_CANCELLATION, deviations=0),
    "reconciler promises too much": Bug(make_reconciled, ViolationKind.FAILED_CHECK, Bank, overpaid),
    "new key for each execution": Bug(make_keyed, ViolationKind.NOT_IDEMPOTENT, Bank),
    "effect before its key is checked": Bug(make_early, ViolationKind.NOT_IDEMPOTENT, Bank),
    "state in the memory of a process": Bug(make_counting, ViolationKind.FAILED_CHECK, dict, taken),
    "endless run": Bug(make_nagging, ViolationKind.ENDLESS_RUN, deviations=0),
}
