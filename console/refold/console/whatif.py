"""`refold whatif`: runs under other policies, and the prompts under them."""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from refold.console import addresses, descriptions, locations
from refold.console.addresses import (
    all_runs,
    check_choice,
    families_of,
    is_path,
    sizes_of,
    without_grown,
)
from refold.console.executors import ExecutorOptions, start_workers
from refold.console.locations import StorePlace
from refold.console.options import Everything, option, words
from refold.console.processes import progress
from refold.console.screen import Screen, note, worst
from refold.console.session_question import ask_question
from refold.console.whatif_question import (
    OtherPolicies,
    choose_contexts,
    choose_prices,
    note_rules,
    policies_of,
)
from refold.console.whatif_table import WhatIfTable, json_of
from refold.engine.compatibility import installed_guards
from refold.reducers.errors import Damaged, ExternalFailure, WrongUse
from refold.replay.cuts import request_of
from refold.replay.dispatch import run_task
from refold.replay.shards import HELD, Shard, ShardEnd, shards
from refold.replay.whatif.view import Hypothesis, MessageRow, hypothesis
from refold.store.sequential import at_once

SHARD_OF_A_STORE = 5_000
"""Events that a process examines in one piece: this costs several times what an audit does."""


def whatif_command(
    screen: Screen,
    place: StorePlace,
    runs: Annotated[
        list[str], words("RUN or @last (ids may be prefixes), or a PATH of transcripts; with --view RUN@t7.")
    ],
    others: OtherPolicies,
    *,
    everything: Everything = False,
    every: Annotated[
        bool, option("--every", "List every run, including those that agree and those that are inconclusive.")
    ] = False,
    view: Annotated[bool, option("--view", "Show the prompt under the policy, as a diff.")] = False,
    executor: ExecutorOptions,
) -> int:
    """Test other policies on recorded runs: compute what they would have decided, and how far the record is
    evidence.

    Example: refold whatif ~/.claude/projects --policy claude:$HOME/.claude/settings.json

    A PATH has a slash: its transcripts are imported into the store first, each once.

    Exit code 0: all agree; 1: something differs; 125: nothing differs, but something is inconclusive or a
    rule matches nothing in any of these runs; 4: some runs could not be examined. With -o json: a line for
    each run and policy, then one of totals for each policy.
    """
    if view:
        return at_once(tell_view(screen, place, [] if everything else runs, others))
    check_choice(runs, everything=everything)
    note_rules(others.policy)
    question = ask_question(others)  # report an invalid policy once, before any run
    imported = 0
    if any(map(is_path, runs)):
        from refold.console.imports import import_runs

        runs, imported = import_runs(place, runs, executor.jobs)
    work, damage = at_once(_work(place, runs))
    question.states = sum(len(shard.runs) for shard in work) == 1
    table = WhatIfTable(screen, question, every=every)
    with (
        start_workers(executor, work) as workers,
        progress("examining", sum(shard.events for shard in work)) as step,
    ):
        for each in run_task(work, workers, question, held=HELD):
            if isinstance(each, ShardEnd):
                table.end(each)
                step(each.shard.events)
            else:
                table.take(*each)
    if everything and not work:
        if damage is not None:
            raise damage
        note(f"{descriptions.line(place.shown)} has no runs")
    table.finish()
    if damage is not None:
        raise damage
    return worst([*table.codes, *([ExternalFailure.exit_code] if imported > 1 else [])])


async def _work(place: StorePlace, typed: Sequence[str]) -> tuple[list[Shard], Damaged | None]:
    """Return the named runs, or all that can be listed, in parts; and the damage that hides others."""
    async with locations.reading(place) as store:
        if typed:
            sizes, damage = await sizes_of(store, await addresses.runs_of(store, typed)), None
        else:
            sizes, damage = await all_runs(store)
            sizes = await without_grown(store, sizes)
        families = await families_of(store, (run for run, _ in sizes))
    return shards(place.address, sizes, SHARD_OF_A_STORE, families=families), damage


_EXCERPT = 100
_MARKS = {"both": " ", "changed": "~", "recorded": "-", "derived": "+"}


async def tell_view(screen: Screen, place: StorePlace, runs: Sequence[str], others: OtherPolicies) -> int:
    """Show which messages a prompt would keep or drop, and why, by default for the last turn.

    Exit code 1 if it differs.
    """
    registry = installed_guards()
    asked = policies_of(others, registry)
    prices, contexts = choose_prices(others.prices), choose_contexts(others.contexts)
    if len(runs) != 1 or len(asked) != 1:
        raise WrongUse("expected one RUN@t7 and one policy: --view shows one request")
    ((name, (policy, _)),) = asked.items()
    async with locations.reading(place) as store:
        run, upto = await addresses.place_of(store, runs[0])
        at = upto or await request_of(store, run)
        found = await hypothesis(store, run, at, policy, registry, prices=prices, contexts=contexts)
    document = {**msgspec.structs.asdict(found), "found": json_of(found.found)}
    screen.result(document, lambda: _tell(screen, name, found))
    same = found.asked and found.tools[0] == found.tools[1] and all(row.where == "both" for row in found.rows)
    return 0 if same else 1


def _tell(screen: Screen, name: str, found: Hypothesis) -> None:
    screen.heading(f"run {found.run}, turn {found.step}, asked at event {found.seq}: under {name}")
    if not found.asked:
        screen.say(f"this request would not have been sent: {found.found.why}")
    screen.say("  unchanged, - only in the recorded request, + only under the policy, ~ changed")
    for row in found.rows:
        _tell_row(screen, row)
    was, would = found.tokens
    rows = [("tokens", f"about {was} recorded, {would} under the policy")]
    if found.asked and found.tools[0] != found.tools[1]:
        rows.append(
            (
                "tools",
                f"{', '.join(found.tools[1]) or 'none'}; recorded: {', '.join(found.tools[0]) or 'none'}",
            )
        )
    screen.pairs(rows)


def _tell_row(screen: Screen, row: MessageRow) -> None:
    message = row.message
    role = message.role if message is not None else "?"
    said = "(erased)" if message is None else message.text or ", ".join(call.name for call in message.calls)
    number = f"{row.number}." if row.number else "once"
    why = f"  [{row.why}]" if row.why else ""
    line = descriptions.line(
        f"{_MARKS[row.where]} {number:<6}{role:<10}{row.tokens:>7} tokens  {said[:_EXCERPT]}{why}"
    )
    style = {"recorded": "red", "derived": "green", "changed": "yellow"}.get(row.where, "")
    screen.styled(line, style)
