"""`refold doctor`: whether a store can be used, and what it promises."""

import time
from typing import Annotated

import msgspec

from refold.console import locations
from refold.console.locations import StorePlace
from refold.console.options import option
from refold.console.screen import Screen, worst
from refold.reducers.errors import Damaged, Inconclusive
from refold.reducers.rules.order import RULES
from refold.replay import figures
from refold.store.protocol import Store

STALLED = "WAIT: synchronous_standby_names is set, and no synchronous standby is connected"
SKEW = 1.0
"""Seconds by which the clocks of this machine and of the server may differ without a warning."""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What was found out about a store.

    `power_cut` and `loss`: whether an append that returned survives a power cut and the loss of the store's
    disk; None: unknown. `skew` is how far the server's clock is ahead of this machine's, in seconds; None for
    a file. `damage` is what a search for hidden rows found; None: not searched.
    """

    store: str
    rules: int
    runs: int
    events: int
    power_cut: bool | None
    loss: bool | None
    refuses_edits: bool | None
    stalled: bool
    settings: dict[str, str]
    gaps: tuple[str, ...]
    skew: float | None
    damage: str | None


async def doctor_command(
    screen: Screen,
    place: StorePlace,
    *,
    deep: Annotated[
        bool, option("--deep", "Also search the whole store for rows that readers would not see.")
    ] = False,
) -> int:
    """Check that the store can be read, and report what its settings promise.

    Example: refold doctor --store postgresql://db.example/agents

    With -o json: one object. Exit code 1 if an append that returned may be lost in a power cut, edits are not
    refused, or no append returns now; 3 for damage, 125 if that is unknown.
    """
    async with locations.reading(place) as store:
        found = await _diagnose(store, place, deep=deep)
    screen.result(found, lambda: _tell(screen, found))
    codes = [_code(found.power_cut), _code(found.refuses_edits), int(found.stalled)]
    return worst([*codes, Damaged.exit_code if found.damage else 0])


def _code(promised: bool | None) -> int:  # noqa: FBT001
    return Inconclusive.exit_code if promised is None else int(not promised)


async def _diagnose(store: Store, place: StorePlace, *, deep: bool) -> Diagnosis:
    begun = time.time()
    durability = await store.durability()
    middle = (begun + time.time()) / 2
    runs = events = 0
    async for chunk in store.runs():
        runs, events = runs + len(chunk), events + sum(head.seq for _, head in chunk)
    return Diagnosis(
        store=place.shown,
        rules=RULES,
        runs=runs,
        events=events,
        power_cut=durability.power_cut,
        loss=durability.loss,
        refuses_edits=durability.refuses_edits,
        stalled=durability.stalled,
        settings=dict(durability.settings),
        gaps=durability.gaps,
        skew=None if durability.clock is None else round(durability.clock - middle, 3),
        damage=await _search(store) if deep else None,
    )


async def _search(store: Store) -> str:
    try:
        await store.check()
    except Damaged as error:
        return str(error)
    return ""


def _tell(screen: Screen, found: Diagnosis) -> None:
    screen.heading(f"store {found.store}")
    screen.facts(
        {
            "has": f"{figures.quantity(found.runs, 'run')}, {figures.quantity(found.events, 'event')}",
            "settings": ", ".join(f"{name} {value}" for name, value in found.settings.items()) or None,
            "writes": STALLED if found.stalled else None,
            "power cut": _answer(found.power_cut, "an append that returned survives it"),
            "lost disk": _answer(found.loss, "an append that returned survives it, on a standby"),
            "clock": _describe_skew(found.skew),
            "edits": _answer(found.refuses_edits, "the store refuses them", "NOT refused"),
            "damage": None if found.damage is None else found.damage or "no hidden rows found",
            "unproved": found.gaps,
        }
    )


def _answer(known: bool | None, good: str, bad: str = "an append that returned may be lost") -> str:  # noqa: FBT001
    return "unknown" if known is None else good if known else bad


def _describe_skew(skew: float | None) -> str | None:
    if skew is None:
        return None
    ahead = "ahead of" if skew > 0 else "behind"
    near = abs(skew) <= SKEW
    return f"the server's is {abs(skew):.3f} s {ahead} this machine's" + ("" if near else ": set both by NTP")
