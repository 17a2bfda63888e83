"""Prompts that a source recorded, held against what the machine would show: what was said, what else its
harness did.
"""

import pytest

from refold.importers.derivation.derivation import Fit
from refold.reducers.events import (
    ContextObserved,
    Diagnosed,
    Event,
    ModelRequested,
    RunStarted,
)
from refold.reducers.evolution import evolve
from refold.reducers.messages import Message
from refold.reducers.state import NEW
from refold.reducers.views import remembered, view
from support.told import (
    END,
    answered,
    audited,
    began,
    derived,
    events,
    kinds,
    prompted,
    reply,
    result,
    returned,
    said,
    shown,
    system,
    user,
)

TALK = [began(system("s")), said("task"), answered("a", "1:x"), returned("1", "o")]
SHOWN = [system("s"), user("task"), reply("a", "7:x"), result("7", "o")]


@pytest.mark.parametrize(
    ("prompt", "fit", "observed"),
    [
        pytest.param(SHOWN, Fit(equal=1), 0, id="the same: nothing is told"),
        pytest.param([SHOWN[0], SHOWN[1]], Fit(changed=1), 1, id="a reply and its result dropped"),
        pytest.param(
            [SHOWN[1], *SHOWN[2:]], Fit(changed=1), 1, id="the system prompt dropped, pinned or not"
        ),
        pytest.param(
            [*SHOWN, user("hurry")], Fit(changed=1), 1, id="something said that nothing else records"
        ),
        pytest.param([SHOWN[0], user("sum"), *SHOWN[2:]], Fit(changed=1), 1, id="replaced in the middle"),
        pytest.param(
            [*SHOWN[:2], SHOWN[2], result("7", "(cut)")], Fit(changed=1), 1, id="a result shown shorter"
        ),
        pytest.param(SHOWN[:3], Fit(unequal=1, halves=1), 1, id="a call without its result"),
        pytest.param([*SHOWN[:2], SHOWN[3]], Fit(unequal=1, halves=1), 1, id="a result without its call"),
        pytest.param([], Fit(changed=1), 1, id="nothing at all"),
    ],
)
def test_a_recorded_prompt(prompt: list[Message], fit: Fit, observed: int) -> None:
    """A prompt is compared with the view; only what differs is told, and then the view is the prompt."""
    items = [*TALK, prompted(*prompt), answered("b"), END]
    deriving, written = derived(items)
    assert fit == deriving.fit
    assert observed == kinds(written).count("context_observed")
    assert audited(written).clean
    last = max(each.seq for each in written if isinstance(each.event, ModelRequested))
    wanted = [(message.role, message.text) for message in prompt]
    assert bool(fit.halves) or wanted == shown(written, last)


def test_messages_of_a_prompt_that_were_said_are_not_told_twice() -> None:
    """A prompt that has what was said needs nothing but the message itself."""
    items = [
        *TALK,
        answered("b"),
        said("and?"),
        prompted(*SHOWN, reply("b"), user("and?")),
        answered("c"),
        END,
    ]
    deriving, written = derived(items)
    assert Fit(equal=1) == deriving.fit
    assert "context_observed" not in kinds(written)


def test_what_waits_for_a_batch_to_end_is_remembered() -> None:
    """Who keeps only the words that are needed still has, at the request, those that joined while a call was
    under way.
    """
    items = [*TALK[:3], said("hook", by="hook"), TALK[3], answered("b"), END]
    state, contents, shown_then = NEW, dict[int, Event](), list[str]()
    for seq, event in enumerate(events(derived(items)[1]), start=1):
        state = evolve(state, event)
        contents = remembered(state, {**contents, seq: event})
        if isinstance(event, ModelRequested):
            shown_then = [message.text for message in view(state, contents)]
    assert ["s", "task", "a", "o", "hook"] == shown_then


def test_a_nudge_that_is_said_anew_each_time_moves_alone() -> None:
    """What a harness takes out and says again at the end leaves the replies where they are."""
    first = [began(), prompted(user("task"), user("nudge")), answered("a", "1:x"), returned("1", "o")]
    prompt = prompted(user("task"), reply("a", "1:x"), result("1", "o"), user("nudge"))
    _, written = derived([*first, prompt, answered("b"), END])
    change = next(each for each in events(written) if isinstance(each, ContextObserved))
    assert ((1, 1), (3, 4)) == change.kept
    assert change.content is not None
    assert ["nudge"] == [message.text for message in change.content.messages]


def test_the_first_prompt_begins_the_run() -> None:
    """What was said before the first answer, and the prompt has not, is kept beside."""
    _, written = derived([began(), said("hidden"), prompted(user("task")), answered("a"), END])
    start = events(written)[0]
    assert isinstance(start, RunStarted)
    assert start.content is not None
    assert ["task"] == [message.text for message in start.content.messages]
    assert ["not_shown"] == [each.code for each in events(written) if isinstance(each, Diagnosed)]


def test_the_task_is_the_persons_first_message() -> None:
    """What a harness says before the person is no task."""
    _, written = derived([began(), said("boilerplate", by="harness"), said("task"), answered("a"), END])
    start = events(written)[0]
    assert isinstance(start, RunStarted)
    assert 1 == start.task
