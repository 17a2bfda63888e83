"""Agents: a model with tools and a policy, from which runs are started, resumed and forked."""

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
from refold.engine.run import Run
from refold.engine.runtime import Runtime, anew, versions
from refold.engine.secrets import redactor_of, refuse_secret
from refold.engine.tasks import in_event_loop
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
from refold.reducers.meters import child_seed, limit_child_policy
from refold.reducers.policy import Policy
from refold.reducers.rules import RULES, rules_of
from refold.reducers.secrets import Redactor
from refold.reducers.sizes import refuse_without_tokenizer
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Replay, Role
from refold.store.protocol import LEASE_SECONDS, Store

_LOGGER = logging.getLogger("refold.policy")


class Agent:
    """A model with tools and a policy, from which runs are started.

    Args:
        model: a `Model`, or a name (`openai:gpt-5-mini`, `local:smollm2-135m`).
        tools: functions made with `@tool`. Plain functions are accepted with a warning, as `at_most_once`.
        policy: a `Policy`, plain data, a file or a preset's name; `REFOLD_*` variables complete the last two.
        store: an open store, or an address as for `open_store`; the default is in memory.
        settings: sampling settings, recorded and passed to the model.
        guards: classes of additional guards that the policy may name.
        handoffs: agents that can take over a task; each is offered as a tool `transfer_to_<name>`.
        models: models for names in the policy's `retry.fallback` that need more than their name.
        base_url: address of a named model's server; the default is `REFOLD_BASE_URL`, else the vendor's.
        price: price of a named model, in dollars per million input and output tokens.
        timeout: seconds for which the connection of a named model may stay silent.
        lease: seconds without a sign of life after which other engines may take over a run.

    Raises `PolicyError` and `WrongUse` for arguments that cannot work.
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
        self.policy, variables = policy_of(policy, self.registry, self.name)
        self._environment = (*variables, *base_url_from(model, base_url))
        self._given = policy is not None
        self.system = None if system is None else arguments.text(system, "system")
        self.store: StoreSource = source(store)
        self.settings = settings_of(settings)
        # Read the environment once: later changes of it have no effect on this agent.
        self.redactor = redactor_of()
        self._refuse_secrets()
        self._clock = arguments.function(clock, "clock")
        self._warned: set[Complaint] = set()
        self.models = fallbacks_of(self.policy, models)
        self._refuse_cost_without_price()
        refuse_unmeasured(self.policy, self.model)
        refuse_without_tokenizer(self.policy)
        self.add_handoffs(*arguments.check_list(handoffs, "handoffs", "[Agent(..., name='billing')]"))

    def _refuse_secrets(self) -> None:
        """Refuse secrets in the policy and settings, which are recorded unredacted."""
        way_out = "replace it by a pattern that matches it, or read it from an environment variable"
        refuse_secret(self.redactor, "policy", msgspec.json.encode(self.policy).decode(), way_out)
        redactor = self.redactor.under(self.policy.redact)
        for key, value in self.settings.items():
            refuse_secret(redactor, f"settings[{key!r}]", value, "pass it to the constructor of the model")

    def add_handoffs(self, *agents: "Agent") -> None:
        """Let later runs of this agent hand tasks to these agents; cycles are allowed.

        Raises `WrongUse` for a missing or duplicate name, and `PolicyError` for a model without a price if
        the policy limits cost.
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

        The run is a child in the caller's store, limited to the caller's remaining time, tokens and cost, and
        cancelled with it. `name` defaults to the agent's. Raises `WrongUse` for an agent without a name.
        """
        if not self.name:
            raise WrongUse("an agent without a name cannot be a tool or a handoff: pass Agent(name=...)")
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
        """Return a new run of this agent on `task`, after the earlier `messages`.

        `environment` records which environment variables set what (`model: REFOLD_MODEL`). A fixed `seed`
        makes delays and salts deterministic, for tests; `batch: in_order` fixes the order of parallel
        results, too. The run begins with `result()`, `updates()` or `async with`. Raises `WrongUse` for a
        `run_id` that the command line could not address.
        """
        opened = self._opening(run_id_of(run_id), seed_of(seed))
        variables = (*self._environment, *(recordable(entry, "environment") for entry in environment))
        fact = msgspec.structs.replace(opened, labels=labels_of(labels), environment=variables)
        request = Message(role=Role.USER, text=arguments.text(task, "task"))
        conversation = [*self._system(), *earlier_of(messages), request]
        if messages:  # without them, the task is the first user message, which is the default
            fact = msgspec.structs.replace(fact, task=len(conversation) - 1)
        # Raises errors now rather than when the run begins.
        self._warn((*opening(composition.started(fact, conversation, b"", self.redactor)), *circles(self)))
        return Run(fact.run, self._runtime(seed), anew(_make_start(fact, conversation, self.redactor)))

    def resume(
        self, run_id: str, *, take_over: bool = False, store: Store | None = None, lease: float | None = None
    ) -> Run:
        """Return a run that continues where its log ends, under the policy it was started with.

        The outcome of a started call that must not be repeated is unknown (in doubt). A run that has ended
        stays unchanged. With `take_over`, an engine that drives the run loses its lease and stops. `store`
        and `lease` replace the agent's own. Raises, when awaited, `UnknownRun`, `Held` (another engine has
        the lease), `Damaged`, `NewerLog`, or `WrongUse` if this agent has another model or price, or lacks a
        tool or guard of the run.
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
        """Return a new run that continues from event `at` of another run, with this agent's model and tools.

        Policy and settings that this agent was not given are inherited. `say` adds a message. `results`
        replace those of calls that are pending at event `at`, by call id; `by` names their author. The
        outcome of other pending calls is unknown, unless they may be repeated. Raises, when awaited,
        `UnknownRun`, `Damaged`, `NewerLog`, `PolicyError`, and `WrongUse` if the log cannot be forked there:
        `refold.replay.cut` lists the places that can. Raises `WrongUse` at once for an invalid `fork_id`.
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
        """Start a run and wait until it ends or waits for an operator. Options as for `start`."""
        return await self.start(task, **options).result()

    def run_sync(self, task: str, **options: Any) -> RunResult:
        """Do the same as `run` without an event loop; inside one, raise `WrongUse`."""
        if in_event_loop():
            raise WrongUse("run_sync cannot run inside an event loop; use `await agent.run(task)` instead")
        return anyio.run(partial(self.run, task, **options))

    def _warn(self, complaints: Iterable[Complaint]) -> None:
        """Log each likely mistake in the policy once; it goes to stderr unless logging is configured."""
        for complaint in complaints:
            if complaint not in self._warned:
                self._warned.add(complaint)
                _LOGGER.warning("warning: %s", complaint)

    def _opening(self, run: str, seed: int, *, anonymous: bool = False) -> RunStarted:
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
            versions={} if anonymous else versions(),
            guards=versions_of(self.policy, self.registry),
            context=context_of(self.model),
            worker="" if anonymous else this_process(),
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
        """Return the run that serves a call of another agent; without a task, resume it from its log.

        It has no labels, so that sums over labels count its cost once.
        """
        run, parent, call = run_of(work), work.state.setup, work.call.call
        seed = child_seed(parent.seed, call)

        def check(state: RunState) -> None:
            if state.setup.parent != origin_of(work):
                raise WrongUse(
                    f"run id {run} is reserved for call {call} of run {parent.run}, but the store has another run "
                    "with that id; use another store"
                )
            self._check(state)

        redactor = work.world.redactor if work.world.anonymous else self.redactor
        runtime = self._runtime(
            seed if work.world.repeatable else None, work.journal.store, work.world.clocks
        )
        world = msgspec.structs.replace(runtime.world, redactor=redactor, anonymous=work.world.anonymous)
        runtime = msgspec.structs.replace(
            runtime, world=world, serve=work.serve, lease=work.journal.tenure.seconds, check=check
        )
        if task is None:
            return Run(run, runtime, None, take_over=take_over)
        fact = msgspec.structs.replace(
            self._opening(run, seed, anonymous=work.world.anonymous),
            policy=limit_child_policy(self.policy, work.state),
            parent=origin_of(work),
        )
        conversation = [*self._system(), Message(role=Role.USER, text=task)]
        return Run(run, runtime, anew(_make_start(fact, conversation, redactor)))

    def _check(self, state: RunState) -> None:
        """Refuse a run that this agent would continue differently from how it was started."""
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
        # The system prompt is left out: it can be erased, and a digest would let it be guessed.
        tools = {
            name: "" if isinstance(tool, AgentTool) else tool.manifest.digest
            for name, tool in self.tools.items()
        }
        parts = (self.name, self.model.name, self.settings, self.policy, tools)
        return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()


def _agent(given: object, place: str) -> Agent:
    if not isinstance(given, Agent):
        raise arguments.wrong_value(place, "an agent", given)
    return given


def _make_start(fact: RunStarted, messages: Sequence[Message], redactor: Redactor) -> Maker:
    return maker(fact, lambda _state, fact, salt: composition.started(fact, messages, salt, redactor))
