"""An agent: a model, tools and a policy, and the runs that are started with them."""

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import anyio
import msgspec

from refold.engine import arguments, clock
from refold.engine.arguments import StoreSource, source
from refold.engine.children import AgentTool, circles, never_alone, origin_of, reachable, run_of, takes_task
from refold.engine.clock import Clock, Maker, SystemClock, maker
from refold.engine.compatibility import (
    address_of,
    context_of,
    installed_guards,
    named_arguments,
    price_given,
    refuse_blind,
    refuse_other_model,
    refuse_other_price,
    refuse_other_tools,
    refuse_unmeasured,
    refuse_unpriced,
)
from refold.engine.fork import MADE_UP, Fork
from refold.engine.models.lookup import base_url_from
from refold.engine.models.protocol import Model
from refold.engine.result import RunResult
from refold.engine.run import Run, anew
from refold.engine.runtime import Runtime, versions
from refold.engine.secrets import redactor_of, refuse_secret
from refold.engine.tenure import this_process
from refold.engine.tools.protocol import Tool
from refold.engine.validation import (
    by_name,
    earlier_of,
    fallbacks_of,
    labels_of,
    model_of,
    policy_of,
    recordable,
    run_id_of,
    seed_of,
    settings_of,
    tools_of,
)
from refold.engine.world import Work, World
from refold.reducers import composition
from refold.reducers.complaints import opening
from refold.reducers.errors import Complaint, PolicyError, WrongUse
from refold.reducers.events import FORMAT, Manifest, RunStarted
from refold.reducers.guards import Registry
from refold.reducers.guards.duty import versions_of
from refold.reducers.messages import Message
from refold.reducers.meters import bounded, child_seed
from refold.reducers.policy import Policy
from refold.reducers.rules import RULES, rules_of
from refold.reducers.secrets import Redactor
from refold.reducers.sizes import refuse_without_tokenizer
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Replay, Role
from refold.store.protocol import LEASE_SECONDS, Store

_LOGGER = logging.getLogger("refold.policy")


class Agent:
    """What runs are started with.

    `model` is a `Model` or a name (`openai:gpt-5-mini`, `local:smollm2-135m`). Of a name, `base_url` is the
    address of the server, by default that in `REFOLD_BASE_URL`, else the vendor's; `timeout` is for how many
    seconds its connection may stay silent, `price` what you pay there, in dollars per million tokens read and
    written. `tools` are made with `@tool`; a plain function is taken too, as one whose calls are not repeated
    (`at_most_once`), with a warning. `policy` is a `Policy` or plain data, or the path of a file or the name
    of a preset, which `REFOLD_*` variables fill up as on the command line. `store` is a store that you keep,
    or its address as for `open_store`; without one, runs are kept in memory for as long as the agent lives.
    `settings` are sampling settings, recorded and handed to the model. `guards` are classes of further guards
    that the policy may name. `handoffs` are agents to whom a task can be handed on: each is offered as a tool
    `transfer_to_<name>`. `models` are those that the policy's `retry.fallback` names, where the name alone
    does not say enough. `clock` makes a run's clock. `lease` is for how many seconds a run belongs to an
    engine that gives no sign of life: after that, others take it over.

    Raises `PolicyError` and `WrongUse` for what cannot work.
    """

    @named_arguments
    def __init__(
        self,
        model: Model | str,
        *,
        tools: Iterable[Tool | Callable[..., object]] = (),
        policy: Policy | Mapping[str, Any] | str | os.PathLike[str] | None = None,
        system: str | None = None,
        store: StoreSource | None = None,
        settings: Mapping[str, Any] | None = None,
        guards: Registry | None = None,
        handoffs: Iterable["Agent"] = (),
        models: Mapping[str, Model] | None = None,
        name: str = "",
        base_url: str | None = None,
        price: tuple[float, float] | None = None,
        timeout: float | None = None,
        clock: Callable[[], Clock] = SystemClock,
        lease: float = LEASE_SECONDS,
    ) -> None:
        self.lease = arguments.seconds(lease, "lease")
        self.model = model_of(model, base_url=base_url, price=price, timeout=timeout)
        self.tools = by_name(tools_of(tools))
        self.registry: Registry = {
            **installed_guards(),
            **arguments.mapping(guards, "guards", "{'my_guard': MyGuard}"),
        }
        self.name = recordable(name, "name")
        self.policy, told = policy_of(policy, self.registry, self.name)
        self._environment = (*told, *base_url_from(model, base_url))
        self._given = policy is not None
        self.system = None if system is None else arguments.text(system, "system")
        self.store: StoreSource = source(store)
        self.settings = settings_of(settings)
        # Once, here: what the environment says later is not looked for.
        self.redactor = redactor_of()
        self._refuse_secrets()
        self._clock = arguments.function(clock, "clock")
        self._warned: set[Complaint] = set()
        self.models = fallbacks_of(self.policy, models)
        self._refuse_cost_without_price()
        refuse_unmeasured(self.policy, self.model)
        refuse_without_tokenizer(self.policy)
        self.add_handoffs(*arguments.listed(handoffs, "handoffs", "[Agent(..., name='billing')]"))

    def _refuse_secrets(self) -> None:
        """Refuse secrets in what is recorded as it is, for the model and the rules need it so."""
        way_out = "write what it looks like, or put it into an environment variable"
        refuse_secret(self.redactor, "policy", msgspec.json.encode(self.policy).decode(), way_out)
        redactor = self.redactor.under(self.policy.redact)
        for key, value in self.settings.items():
            refuse_secret(redactor, f"settings[{key!r}]", value, "give it to the model's own constructor")

    def add_handoffs(self, *agents: "Agent") -> None:
        """Let later runs of this agent hand tasks to these agents, which may hand tasks back.

        Raises `WrongUse` for one without a name or under a name that is taken, `PolicyError` for one without
        a price where the policy limits cost.
        """
        known = [_agent(each, f"handoffs[{place}]") for place, each in enumerate(agents)]
        offered = (
            agent.as_tool(
                f"transfer_to_{agent.name}", f"Hand a task on to the agent {agent.name}, and get its answer."
            )
            for agent in known
        )
        before, self.tools = self.tools, by_name([*self.tools.values(), *offered])
        try:
            self._refuse_cost_without_price()
        except PolicyError:
            self.tools = before
            raise

    def as_tool(self, name: str | None = None, description: str = "") -> Tool:
        """Return this agent as a tool: a call runs it on `task` and returns its last message.

        The run is a child of the caller's: in the caller's store, within what the caller has left of time,
        tokens and money, and cancelled with it. Without a name the tool has the agent's. Raises `WrongUse`
        for an agent without a name: the logs would not say whose run it is.
        """
        if not self.name:
            raise WrongUse("an agent without a name cannot be given to others: give it one, Agent(name=...)")
        takes = takes_task(name or self.name)
        described = description or f"Give a task to the agent {self.name}, and get its answer."
        return AgentTool(
            manifest=Manifest(
                name=takes.tool,
                description=described,
                schema=takes.schema,
                replay=Replay.IDEMPOTENT,
                digest=self._digest(),
                agent=self.name,
            ),
            run=never_alone,
            owner=self,
            takes=takes,
            child=self._child,
        )

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
        `result()`, `updates()` or `async with`. Raises `WrongUse` for a `run_id` that no command could name.
        """
        opened = self._opening(run_id_of(run_id), seed_of(seed))
        told = (*self._environment, *(recordable(entry, "environment") for entry in environment))
        fact = msgspec.structs.replace(opened, labels=labels_of(labels), environment=told)
        asked = Message(role=Role.USER, text=arguments.text(task, "task"))
        said = [*self._system(), *earlier_of(messages), asked]
        if messages:  # else it is the first of a person, which is the task anyway
            fact = msgspec.structs.replace(fact, task=len(said) - 1)
        # Refuses what cannot work, now rather than later.
        self._warn((*opening(composition.started(fact, said, b"", self.redactor)), *circles(self)))
        return Run(fact.run, self._runtime(seed), anew(_started(fact, said, self.redactor)))

    def resume(
        self, run_id: str, *, take_over: bool = False, store: Store | None = None, lease: float | None = None
    ) -> Run:
        """A run from its log: it goes on where the log ends, under the policy that it was started with.

        Calls that were started and must not be repeated are in doubt. A run that has ended is not changed.
        With `take_over` an engine that drives the run now loses its lease, and stops. `store` and `lease`
        stand in for the agent's own. Raises, when it is awaited, `UnknownRun`, `Held` (another engine lives
        that has it), `Damaged`, `NewerLog`, or `WrongUse` where this agent has another model, or another
        price for it, or lacks a tool or a guard of the run's.
        """
        runtime = msgspec.structs.replace(self._runtime(None, store), lease=lease or self.lease)
        return Run(run_id, runtime, None, take_over=take_over)

    def fork(
        self,
        run_id: str,
        at: int,
        *,
        say: str = "",
        results: Mapping[str, str] | None = None,
        by: str = MADE_UP,
        labels: Mapping[str, str] | None = None,
        seed: int | None = None,
        fork_id: str | None = None,
        store: Store | None = None,
    ) -> Run:
        """A new run that goes on from event `at` of another's log, with this agent's model and tools.

        What the agent was not given stays as it is there: policy, settings. `say` adds a message, `results`
        stand in for those of calls that are under way at the cut; `by` made them up. Other calls under way
        there are in doubt, unless they may be repeated. Raises, when it is awaited, `UnknownRun`, `Damaged`,
        `NewerLog`, `PolicyError`, and `WrongUse` where the log cannot be cut or edited so:
        `refold.replay.cut` names the places. Raises `WrongUse` now for a `fork_id` that no command could
        name.
        """
        opened = self._opening(run_id_of(fork_id), seed_of(seed))
        fork = Fork(
            opened=msgspec.structs.replace(opened, labels=labels_of(labels)),
            parent=run_id,
            at=at,
            runtime=self._runtime(seed, store),
            policy=self.policy if self._given else None,
            say=recordable(say, "say"),
            results={call: recordable(text, f"results[{call!r}]") for call, text in (results or {}).items()},
            by=recordable(by, "by"),
        )
        return Run(opened.run, fork.runtime, fork.begin)

    async def run(self, task: str, **options: Any) -> RunResult:
        """Start a run and wait until it has ended or waits for a person. Options as `start`."""
        return await self.start(task, **options).result()

    def run_sync(self, task: str, **options: Any) -> RunResult:
        """As `run`, where no event loop runs: in one, it raises `WrongUse`."""
        if _in_event_loop():
            raise WrongUse("run_sync: an event loop runs here; write `await agent.run(task)` instead")
        return anyio.run(partial(self.run, task, **options))

    def _warn(self, complaints: Iterable[Complaint]) -> None:
        """Log each likely mistake in the policy once: on stderr unless logging is configured."""
        for complaint in complaints:
            if complaint not in self._warned:
                self._warned.add(complaint)
                _LOGGER.warning("warning: %s", complaint)

    def _opening(self, run: str, seed: int) -> RunStarted:
        return RunStarted(
            format=FORMAT,
            at=0,
            run=run,
            rules=RULES,
            policy=self.policy,
            model=self.model.name,
            address=address_of(self.model),
            price=price_given(self.model),
            settings=self.settings,
            tools=tuple(tool.manifest for tool in self.tools.values()),
            seed=seed,
            agent=self.name,
            versions=versions(),
            guards=versions_of(self.policy, self.registry),
            context=context_of(self.model),
            worker=this_process(),
        )

    def _runtime(
        self, seed: int | None, store: StoreSource | None = None, clocks: Callable[[], Clock] | None = None
    ) -> Runtime:
        clocks = clocks or self._clock
        return Runtime(
            world=World(
                model=self.model,
                tools=self.tools,
                clock=clocks(),
                models=self.models,
                clocks=clocks,
                repeatable=seed is not None,
                redactor=self.redactor,
            ),
            store=self.store if store is None else store,
            registry=self.registry,
            salts=clock.new_salts(seed),
            check=self._check,
            lease=self.lease,
        )

    def _child(self, work: Work, task: str | None, take_over: bool) -> Run:  # noqa: FBT001
        """The run of this agent that serves a call of another; without a task from its log, as that stands.

        It has no labels: sums over labels count it once.
        """
        run, parent, call = run_of(work), work.state.setup, work.call.call
        seed = child_seed(parent.seed, call)

        def check(state: RunState) -> None:
            if state.setup.parent != origin_of(work):
                raise WrongUse(
                    f"run {run} stands where call {call} of run {parent.run} would start its own, and is another's; "
                    "take another store"
                )
            self._check(state)

        runtime = msgspec.structs.replace(
            self._runtime(seed if work.world.repeatable else None, work.journal.store, work.world.clocks),
            lease=work.journal.tenure.seconds,
            check=check,
        )
        if task is None:
            return Run(run, runtime, None, take_over=take_over)
        fact = msgspec.structs.replace(
            self._opening(run, seed), policy=bounded(self.policy, work.state), parent=origin_of(work)
        )
        said = [*self._system(), Message(role=Role.USER, text=task)]
        return Run(run, runtime, anew(_started(fact, said, self.redactor)))

    def _check(self, state: RunState) -> None:
        """Refuse to go on with a run that this agent would not go on with as it was begun."""
        if not state.ended:
            rules_of(state)
            refuse_other_model(state, self.model)
            refuse_other_price(state, self.model)
            redactor = self.redactor.under(state.policy.redact)
            offered = {
                name: composition.offered(tool.manifest, redactor) for name, tool in self.tools.items()
            }
            refuse_other_tools(state, offered)
            refuse_blind(state)

    def _system(self) -> list[Message]:
        return [] if self.system is None else [Message(role=Role.SYSTEM, text=self.system)]

    def _refuse_cost_without_price(self) -> None:
        models = (each for agent in reachable(self) for each in (agent.model, *agent.models.values()))
        refuse_unpriced(self.policy, models)

    def _digest(self) -> str:
        # Of what a child run is made of; not of the system prompt: what can be erased must not be guessed at
        # here.
        tools = {
            name: "" if isinstance(tool, AgentTool) else tool.manifest.digest
            for name, tool in self.tools.items()
        }
        parts = (self.name, self.model.name, self.settings, self.policy, tools)
        return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()


def _in_event_loop() -> bool:
    try:
        anyio.get_current_task()
    except RuntimeError:
        return False
    return True


def _agent(given: object, place: str) -> Agent:
    if not isinstance(given, Agent):
        raise arguments.wrong(place, "an agent", given)
    return given


def _started(fact: RunStarted, said: Sequence[Message], redactor: Redactor) -> Maker:
    return maker(fact, lambda _state, fact, salt: composition.started(fact, said, salt, redactor))
