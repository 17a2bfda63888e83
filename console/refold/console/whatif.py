"""`refold whatif`: runs under other policies, a row a run and a column a policy, and what it would have meant in all."""

from collections.abc import Sequence
from typing import Annotated

from refold.console import addresses, hostile, places
from refold.console.asking import Question
from refold.console.codes import worst
from refold.console.options import Everything, option, words
from refold.console.other_policies import OtherPolicies
from refold.console.places import StorePlace, at_once
from refold.console.processes import Jobs, alone, processes
from refold.console.progress import progress
from refold.console.screen import Screen, note
from refold.console.selection import all_runs, check_choice, families_of, sizes_of, without_grown
from refold.console.whatif_table import Table
from refold.reducers.errors import Damaged
from refold.replay.shards import HELD, Ended, Shard, shards, worked

SHARD_OF_A_STORE = 5_000
"""Events of a part that a process does in one piece: to ask costs several times what an audit does."""


def whatif_command(
    screen: Screen,
    place: StorePlace,
    runs: Annotated[list[str], words("RUN or @last; a prefix of an id will do. With --view RUN@t7.")],
    others: OtherPolicies,
    *,
    everything: Everything = False,
    every: Annotated[
        bool, option("--every", "List every run: also those that agree, and those that are inconclusive.")
    ] = False,
    view: Annotated[bool, option("--view", "Show what the model would have seen there, as a diff.")] = False,
    jobs: Jobs = None,
) -> int:
    """Ask what other policies would have decided over the same facts, and how far the record is evidence.

    Exit code 0: all agree; 1: something differs; 125: something is inconclusive, or a rule fits nothing in any of these runs,
    and nothing differs; 4: some runs could not be looked at. With -o json: a line for each run and policy, then one of totals for each policy.
    """
    if view:
        from refold.console.whatif_view import tell_view

        return at_once(tell_view(screen, place, [] if everything else runs, others))
    check_choice(runs, everything=everything)
    question = Question(others)  # what is wrong with it is said once, and of no run
    work, damage = at_once(_work(place, runs))
    question.states = sum(len(shard.runs) for shard in work) == 1
    table = Table(screen, question, every=every)
    with (
        processes(jobs, work) as executor,
        progress("asking", sum(shard.events for shard in work)) as step,
    ):
        for each in worked(work, executor, question, alone, held=HELD):
            if isinstance(each, Ended):
                table.end(each)
                step(each.shard.events)
            else:
                table.take(*each)
    if everything and not work:
        note(f"{hostile.line(str(place.path))} has no runs")
    table.finish()
    if damage is not None:
        raise damage
    return worst(table.codes)


async def _work(place: StorePlace, typed: Sequence[str]) -> tuple[list[Shard], Damaged | None]:
    """The runs that were named, or all that can be listed, in parts; and what is wrong with others."""
    async with places.reading(place) as store:
        if typed:
            sizes, damage = await sizes_of(store, await addresses.runs_of(store, typed)), None
        else:
            sizes, damage = await all_runs(store)
            sizes = await without_grown(store, sizes)
        families = await families_of(store, (run for run, _ in sizes))
    return shards(place.path, sizes, SHARD_OF_A_STORE, families=families), damage
