"""What the model would have seen at a turn under another policy, as a diff to what it saw."""

from collections.abc import Sequence

import msgspec

from refold.console import addresses, hostile, places
from refold.console.contexts import chosen_contexts
from refold.console.other_policies import OtherPolicies, policies_of
from refold.console.places import StorePlace
from refold.console.prices import chosen_prices
from refold.console.screen import Screen
from refold.console.whatif_table import json_of
from refold.engine.compatibility import installed_guards
from refold.reducers.errors import WrongUse
from refold.replay.turns import request_of
from refold.replay.whatif.view import Hypothesis, Row, hypothesis

_EXCERPT = 100
_MARKS = {"both": " ", "changed": "~", "recorded": "-", "derived": "+"}


async def tell_view(screen: Screen, place: StorePlace, runs: Sequence[str], others: OtherPolicies) -> int:
    """Show what was kept, what dropped and why at a turn, by default the last. Exit code 1 if anything is otherwise."""
    registry = installed_guards()
    asked = policies_of(others, registry)
    prices, contexts = chosen_prices(others.prices), chosen_contexts(others.contexts)
    if len(runs) != 1 or len(asked) != 1:
        raise WrongUse("expected one RUN@t7 and one policy: a view is of one request")
    ((name, (policy, _)),) = asked.items()
    async with places.reading(place) as store:
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
        screen.say(f"this request would not have been made: {found.found.why}")
    screen.say("  as it was, - only in the recorded request, + only under the policy, ~ shown otherwise")
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


def _tell_row(screen: Screen, row: Row) -> None:
    message = row.message
    role = message.role if message is not None else "?"
    said = "(erased)" if message is None else message.text or ", ".join(call.name for call in message.calls)
    number = f"{row.number}." if row.number else "once"
    why = f"  [{row.why}]" if row.why else ""
    line = hostile.line(
        f"{_MARKS[row.where]} {number:<6}{role:<10}{row.tokens:>7} tokens  {said[:_EXCERPT]}{why}"
    )
    style = {"recorded": "red", "derived": "green", "changed": "yellow"}.get(row.where, "")
    screen.styled(line, style)
