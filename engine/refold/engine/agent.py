"""An agent: a model, tools and a policy, and the runs that are started with them."""

import importlib.metadata
import json
import os
import platform
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import anyio
import msgspec

from refold.engine import entropy
from refold.engine.clock import Clock, SystemClock
from refold.engine.guards import installed_guards
from refold.engine.models.protocol import Model
from refold.engine.models.resolve import resolve_model
from refold.engine.result import RunResult
from refold.engine.run import Run, Setting
from refold.engine.stores import StoreSource
from refold.engine.tools.protocol import Tool
from refold.engine.world import World
from refold.reducers import composing
from refold.reducers.errors import PolicyError, WrongUse
from refold.reducers.events import Fact, Manifest, RunStarted
from refold.reducers.guards import Registry
from refold.reducers.guards.duty import versions_of
from refold.reducers.limits import CostLimit
from refold.reducers.messages import Message
from refold.reducers.numbers import nano
from refold.reducers.parsing import checked, parse
from refold.reducers.policy import Policy
from refold.reducers.rules import RULES, rules_of
from refold.reducers.state import RunState
from refold.reducers.text import clean
from refold.reducers.vocabulary import Role
from refold.store import MemoryStore


class Agent:
    """What runs are started with.

    `model` is a `Model` or a name (`openai:gpt-5-mini`, `local:smollm2-135m`). `policy` is a `Policy` or plain
    data. `store` is a store that you keep, or the path of a SQLite file; without one, runs are kept in memory for
    as long as the agent lives. `settings` are sampling settings, recorded and handed to the model. `guards` are
    classes of further guards that the policy may name. `clock` makes a run's clock.

    Raises `PolicyError` and `WrongUse` for what cannot work, before anything is started.
    """

    def __init__(
        self,
        *,
        model: Model | str,
        tools: Iterable[Tool] = (),
        policy: Policy | Mapping[str, Any] | None = None,
        system: str | None = None,
        store: StoreSource | None = None,
        settings: Mapping[str, Any] | None = None,
        guards: Registry | None = None,
        name: str = "",
        clock: Callable[[], Clock] = SystemClock,
    ) -> None:
        self.model = resolve_model(model) if isinstance(model, str) else model
        self.tools = _by_name(tools)
        self.registry: Registry = {**installed_guards(), **(guards or {})}
        self.policy = (
            checked(policy, self.registry)
            if isinstance(policy, Policy)
            else parse(policy or {}, self.registry)
        )
        self.system, self.name = system, _text(name, "name")
        self.store: StoreSource = MemoryStore() if store is None else store
        self.settings = {
            _text(key, "settings"): _setting(key, value) for key, value in (settings or {}).items()
        }
        self._clock = clock
        self._refuse_cost_without_price()

    def start(
        self,
        task: str,
        *,
        messages: Sequence[Message] = (),
        labels: Mapping[str, str] | None = None,
        environment: Sequence[str] = (),
        seed: int | None = None,
        run_id: str | None = None,
    ) -> Run:
        """A new run of this agent on `task`, after the earlier `messages`, if any.

        `environment` says what environment variables chose (`model: REFOLD_MODEL`): it is recorded, no more.

        With a `seed` of your own, waits and salts are the same each time: for tests. (In which order parallel
        tools return is the world's affair; `batch: in_order` settles that too.) Nothing happens before
        `result()`, `updates()` or `async with`.
        """
        opening = [*self._system(), *messages, Message(role=Role.USER, text=task)]
        chosen = entropy.seed() if seed is None else seed
        if not 0 <= chosen < 1 << 63:
            raise WrongUse(f"seed: expected 0 to 2**63 - 1, got {chosen}")
        fact = RunStarted(
            at=0,
            run=run_id or entropy.run_id(),
            rules=RULES,
            policy=self.policy,
            model=self.model.name,
            address=_address(self.model),
            settings=self.settings,
            tools=tuple(map(_manifest, self.tools.values())),
            seed=chosen,
            agent=self.name,
            labels={
                _text(key, "labels"): _text(value, f"labels[{key!r}]")
                for key, value in (labels or {}).items()
            },
            environment=tuple(_text(entry, "environment") for entry in environment),
            versions=versions(),
            guards=versions_of(self.policy, self.registry),
        )
        composing.started(fact, opening, b"")  # refuses messages that cannot be sent, now rather than later

        def make(state: RunState, at: int, salt: bytes) -> Fact:  # noqa: ARG001
            return composing.started(msgspec.structs.replace(fact, at=at), opening, salt)

        return Run(fact.run, self._setting(seed), make)

    def resume(self, run_id: str) -> Run:
        """A run from its log: it goes on where the log ends, under the policy that it was started with.

        Calls that were started and must not be repeated are told to the model as in doubt. A run that has ended
        is not changed. Raises, when it is awaited, `UnknownRun`, `Damaged`, `NewerLog`, or `WrongUse` where
        this agent has another model, or lacks a tool or a guard of the run's.
        """
        return Run(run_id, self._setting(None), None)

    def run_sync(self, task: str, **options: Any) -> RunResult:
        """Start a run and wait for it, where no event loop runs: in one, it raises `WrongUse`. Options as `start`."""
        if _in_event_loop():
            raise WrongUse(
                "run_sync: an event loop runs here; write `await agent.start(task).result()` instead"
            )
        run = self.start(task, **options)
        return anyio.run(run.result)

    def _setting(self, seed: int | None) -> Setting:
        return Setting(
            world=World(self.model, self.tools, self._clock()),
            store=self.store,
            registry=self.registry,
            salts=entropy.salts(seed),
            worker=f"{socket.gethostname()}:{os.getpid()}",
            versions=versions(),
            check=self._check,
        )

    def _check(self, state: RunState) -> None:
        """Refuse to go on with a run that this agent would not go on with as it was begun."""
        run = state.setup.run
        if state.ended:
            return
        rules_of(state)
        if self.model.name != state.setup.model:
            raise WrongUse(
                f"run {run} was started with the model {state.setup.model}, and this agent has {self.model.name}; "
                "resume it with that model"
            )
        if _address(self.model) != state.setup.address:
            raise WrongUse(
                f"run {run} asked its model at {state.setup.address or 'the usual address'}, and this agent would ask "
                f"at {_address(self.model) or 'the usual one'}: what was said there would go elsewhere; give the same "
                "base_url (--base-url)"
            )
        for manifest in state.setup.tools:
            tool = self.tools.get(manifest.name)
            if tool is None:
                raise WrongUse(
                    f"run {run} was offered the tool {manifest.name}, which this agent lacks; add it"
                )
            now = _manifest(tool)
            if (now.schema, now.replay) != (manifest.schema, manifest.replay):
                raise WrongUse(
                    f"run {run}: the tool {manifest.name} has another schema or replay class now than it was "
                    "offered with; resume it with the tool as it was"
                )
        for watch in state.guards:
            if watch.guard is None:
                raise WrongUse(f"run {run}: its guard {watch.name} is {watch.blind}; install it as it was")

    def _system(self) -> list[Message]:
        return [] if self.system is None else [Message(role=Role.SYSTEM, text=self.system)]

    def _refuse_cost_without_price(self) -> None:
        for place, limit in enumerate(self.policy.limits):
            if isinstance(limit, CostLimit) and limit.value is not None and not self.model.priced:
                raise PolicyError(
                    f"limits[{place}]",
                    f"a cost limit, but no price is known for {self.model.name}; take the limit out",
                )


def _in_event_loop() -> bool:
    try:
        anyio.get_current_task()
    except RuntimeError:
        return False
    return True


def versions() -> dict[str, str]:
    """What ran: recorded with each run."""
    return {"refold": importlib.metadata.version("refold"), "python": platform.python_version()}


def _by_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    named: dict[str, Tool] = {}
    for tool in tools:
        if tool.name in named:
            raise WrongUse(f"two tools are called {tool.name!r}; give one another name")
        named[tool.name] = tool
    return named


def _address(model: Model) -> str:
    return str(getattr(model, "address", ""))


def _text(value: object, place: str) -> str:
    """The text, if it is one that can be written down."""
    if not isinstance(value, str) or clean(value) != value:
        raise WrongUse(f"{place}: expected text, got {value!r}")
    return value


def _setting(key: str, value: Any) -> str:
    try:
        said = json.dumps(value, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise WrongUse(f"settings[{key!r}]: expected a value that JSON can write: {error}") from error
    return _text(said, f"settings[{key!r}]")


def _manifest(tool: Tool) -> Manifest:
    return Manifest(
        name=tool.name,
        description=tool.schema.description,
        schema=tool.schema.schema,
        replay=tool.replay,
        timeout=None if tool.timeout is None else nano(tool.timeout),
        digest=tool.digest,
    )
