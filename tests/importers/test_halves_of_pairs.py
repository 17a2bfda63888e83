"""Half a pair is no message that a window may hold: what of it is shown nowhere stands beside the fact."""

from collections.abc import Callable, Sequence

import msgspec
import pytest

from refold.importers.items import Item, Returned
from refold.reducers.events import Diagnosed
from refold.reducers.messages import Message, MessageCall
from refold.reducers.vocabulary import Role
from support.told import END, answered, began, derived, prompted, reply, result, user

CALL = Message(role=Role.ASSISTANT, text="plugh", calls=(MessageCall("the id", "frobnicate", "quux"),))
RESULT = Message(role=Role.TOOL, text="plugh", call="the id", name="frobnicate")
CONTINUED = (answered("done"), END)

PLACES: dict[str, Callable[[Message], Sequence[Item]]] = {
    "at the beginning": lambda half: (began(user("go"), half), *CONTINUED),
    "in the first prompt": lambda half: (began(), prompted(user("go"), half), *CONTINUED),
    "in a later prompt": lambda half: (
        *(began(user("go")), answered("a"), prompted(user("go"), reply("a"), half, user("b"))),
        *CONTINUED,
    ),
    "at the beginning, and not in the first prompt": lambda half: (
        *(began(half), prompted(user("go"))),
        *CONTINUED,
    ),
}


def log_of(items: Sequence[Item]) -> str:
    _, events = derived(items)
    return "\n".join(msgspec.json.encode(each.event).decode() for each in events)


@pytest.mark.parametrize("half", [CALL, RESULT], ids=["a call", "a result"])
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_nothing_of_half_a_pair_is_lost(place: Callable[[Message], Sequence[Item]], half: Message) -> None:
    """The tool and the arguments of a call without its result are in the log, and the tool of a result
    without its call.
    """
    log = log_of(place(half))
    for text in ("plugh", "frobnicate", *(["quux"] if half is CALL else [])):
        assert text in log


def test_a_pair_that_the_first_prompt_lacks_is_told_whole() -> None:
    """Of what was said and not shown the calls are told too, not the words alone."""
    log = log_of((began(CALL, result("the id", "it went well")), prompted(user("go")), *CONTINUED))
    for text in ("plugh", "frobnicate", "quux", "it went well"):
        assert text in log


@pytest.mark.parametrize("before", [(), (answered("a"),)], ids=["before the first answer", "later"])
def test_a_result_without_a_call_names_its_tool(before: tuple[Item, ...]) -> None:
    """Which tool a result is of is said also where no call of it is known."""
    orphan = Returned(position="p", at=1, id="c9", output="it went well", name="frobnicate")
    assert "frobnicate" in log_of((began(user("go")), *before, orphan, *CONTINUED))


def test_what_each_prompt_shows_again_is_told_once() -> None:
    """Half a pair that stands in every prompt is told with the first."""
    prompts = [prompted(user("go"), CALL, *[user(f"{n}") for n in range(m)]) for m in range(4)]
    _, events = derived(
        [began(user("go")), *[each for prompt in prompts for each in (prompt, answered("a"))], END]
    )
    found = [each.event for each in events if isinstance(each.event, Diagnosed)]
    halves = [event for event in found if event.code == "half_pair"]
    assert len(prompts) == len(halves)
    assert 1 == sum(event.content is not None and "frobnicate" in event.content.text for event in halves)
