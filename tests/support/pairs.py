"""The same runs in two stores, a file and a schema in PostgreSQL, and commands that run over both."""

import difflib
import re
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import anyio

from refold.engine import Agent, ScriptedModel, call, say
from refold.engine.models.script import Line
from refold.store import open_store
from support import runs
from support.clocks import VirtualClock

SECRET = "s3cret-pass"
ASK: dict[str, Any] = {"approvals": {"chain": [{"approver": "human", "tools": ["act"]}]}}
LIMITED: dict[str, Any] = {"limits": [{"type": "step", "value": 2}]}

# What differs between any two stores, or between two moments.
VARIABLE = (
    (r'"(seed|duration|downtime)":-?[0-9]+', "NUMBER"),
    (r"\b[0-9a-f]{64}\b", "HASH"),
    (r"\b([0-9a-f]{16}){1,2}\b", "ID"),
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "ID"),
    (r"\b2[0-9]{3}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+( ?UTC|Z)?", "TIME"),
    (r"\b1[0-9]{18}\b", "TIME"),
    (r"[0-9.]+ s, [0-9,]+ events/s", "SPEED"),
    (r"\b[0-9.]+ (s|ms|min)\b", "SECONDS"),
)
# What a server does not promise is listed for PostgreSQL only.
GAPS = re.compile(
    r"\n +(unproved +)?that (acknowledged events survive|a power cut leaves|the server notices)[^\n]*"
    r'|,?"that (acknowledged events survive|a power cut leaves|the server notices)[^"]*"'
)


class Ran(Protocol):
    """What a command did."""

    @property
    def code(self) -> int: ...
    @property
    def out(self) -> str: ...
    @property
    def err(self) -> str: ...


R = TypeVar("R", bound=Ran)


def with_password(address: str) -> str:
    """The address with a password, which a server that trusts this machine does not check."""
    return address.replace("postgres@", f"postgres:{SECRET}@", 1)


def agent(store: Any, *script: Line, policy: dict[str, Any] | None = None) -> Agent:
    """An agent whose every run is the same to the byte, wherever it is stored."""
    return Agent(
        model=ScriptedModel(script),
        tools=[runs.look, runs.act],
        policy=policy,
        store=store,
        clock=lambda: VirtualClock(jumps=True),
    )


def fill(address: str) -> None:
    """Runs of an engine: `r1` ended by a guard, `r2` by a limit, `r3` at rest, and `r4`, a fork of `r2`."""

    async def drive() -> None:
        async with await open_store(address, durability="process") as store:
            await runs.recorded_run(store)
            look = call("look", path="a")
            limited = agent(store, look, look, say("Done."), policy=LIMITED)
            await limited.start("Look.", run_id="r2", seed=1).result()
            await (
                agent(store, call("act", what="paint"), policy=ASK)
                .start("Paint.", run_id="r3", seed=2)
                .result()
            )
            await agent(store, say("Otherwise.")).fork("r2", 2, fork_id="r4").result()

    anyio.run(drive)


class Pair(Generic[R]):
    """Runs each command over both stores, and compares what it printed."""

    def __init__(self, refold: Callable[..., R], file: str, address: str, shown: str) -> None:
        self._refold = refold
        self.stores = ((file, file), (address, shown))
        self.seen: list[str] = []

    def run(self, *words: object, option: str = "--store", names: Sequence[str] = ()) -> R:
        """Run the command in both, and return what it did in PostgreSQL; fail at a difference.

        `{n}` in a word is 0 or 1, for files of each store's own. `names` are patterns of what also differs.
        """
        ran = list[R]()
        texts = list[list[str]]()
        for number, (store, shown) in enumerate(self.stores):
            typed = [str(word).replace("{n}", str(number)) for word in words]
            done = self._refold(*typed, *([option, store] if option else []))
            assert SECRET not in done.out + done.err, (typed, done)
            self.seen += [done.out, done.err]
            ran.append(done)
            texts.append([plain(text, store, shown, names) for text in (done.out, done.err)])
        (first, second), (before, after) = ran, texts
        difference = "\n".join(
            line
            for one, other in zip(before, after, strict=True)
            for line in difflib.unified_diff(one.splitlines(), other.splitlines(), lineterm="", n=0)
        )
        assert (first.code, difference) == (second.code, ""), (
            f"{words}: {first.code}, {second.code}\n{difference}"
        )
        return second


def plain(text: str, store: str, shown: str, names: Sequence[str]) -> str:
    """A text without what must differ between two stores."""
    for name in (f"'{shown}'", shown, store):
        text = text.replace(name, "STORE")
    text = GAPS.sub("", text)
    for pattern, name in (*VARIABLE, *((name, "NAME") for name in names)):
        text = re.sub(pattern, name, text)
    return re.sub("  +", "  ", text)
