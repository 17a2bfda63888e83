"""The request itself: what it shows besides the window, which tools it offers, and of which model it is asked."""

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from refold.reducers.checkpoint import encoded
from refold.reducers.errors import UnexpectedEvent
from refold.reducers.events import ModelRequested, Purpose, RequestText, Said
from refold.reducers.limits import LimitHit
from refold.reducers.meters import call_deadline
from refold.reducers.offers import offer_digest
from refold.reducers.policy import Policy, has_text
from refold.reducers.rules.ends import Values, said
from refold.reducers.rules.flow import Check, Flow, Rule
from refold.reducers.rules.reminders import Reminder, offered, reminders
from refold.reducers.state import RunState
from refold.reducers.vocabulary import Cause, Role


class Request(Rule):
    """P10: ask the model, as the next step."""

    __slots__ = ()

    def bound(self, policy: Policy, guards: Sequence[Any]) -> Check | None:
        """The check with what a request of this policy may say besides its window."""
        return partial(_request, reminders(policy, guards))


def _request(said: Sequence[Reminder], flow: Flow) -> bool:
    state = flow.state
    texts = tuple([text for reminder in said for text in reminder(state)])
    step = state.spent.steps + 1
    flow.say(_requested(state, step, 1, texts, tools=offered(state, texts), model=model_next(state)))
    return True


def request_again(flow: Flow) -> bool:
    """After a back-off: the next attempt at the same step, or at the same grace request, shown the same texts.

    Each in the words of the policy in force; but for those of a guard that an amendment took out, and its words with it.
    """
    state = flow.state
    assert state.backoff is not None
    step, attempt, model = state.spent.steps, state.backoff.event.attempt, state.model
    if state.failure is None:
        flow.say(_requested(state, step, attempt, (), tools=None, model=model))
        return True
    before, asked = state.failure.asked, state.failure.asked.event
    again = _requested(
        state,
        step,
        attempt,
        tuple([text for text in asked.request_only if has_text(state.policy, text.text)]),
        tools=asked.tools,
        model=model,
        purpose=asked.purpose,
        promised=before.until,
    )
    flow.say(again)
    return True


def request_grace(state: RunState) -> ModelRequested:
    """At a limit: one more request, without tools, in which the model says what was done."""
    found = granted_by(state)
    values: Values = {"limit": found.name, "max": found.value}
    text = RequestText(role=Role.USER, text="grace", cause=Cause.GRACE, values=values)
    return _requested(
        state, state.spent.steps, 1, (text,), tools=(), model=model_next(state), purpose="grace"
    )


def model_next(state: RunState) -> str:
    """The model of the next request, "" for the run's own: a success returns to that one, unless the policy stays."""
    fallback, answer = state.policy.retry.fallback, state.answer
    failed = state.failure is not None or (answer is not None and answer.silent)
    return state.model if failed or (fallback is not None and fallback.sticky) else ""


def granted_by(state: RunState) -> LimitHit:
    """The limit that ends the run, after one last request if it granted it."""
    if state.limit is None:
        raise UnexpectedEvent("model_requested", "no limit tripped that could grant a last request")
    return state.limit


def _requested(
    state: RunState,
    step: int,
    attempt: int,
    texts: tuple[RequestText, ...],
    *,
    tools: tuple[str, ...] | None,
    model: str,
    purpose: Purpose = "step",
    promised: int | None = None,
) -> ModelRequested:
    words = [said(state, text.role, text.text, text.values) for text in texts]
    texts = tuple([replace(text, size=size) for text, (_, size) in zip(texts, words, strict=True)])
    return ModelRequested(
        step=step,
        attempt=attempt,
        view=view_digest(state, texts, tools, model),
        messages=state.window.ranges,
        input_tokens=state.window.tokens + sum([text.size.tokens for text in texts]),
        deadline=call_deadline(state, promised),
        tools=tools,
        request_only=texts,
        purpose=purpose,
        model=model,
        content=Said(texts=tuple([each.texts[0] for each, _ in words])) if words else None,
    )


def view_digest(
    state: RunState,
    texts: tuple[RequestText, ...] = (),
    tools: tuple[str, ...] | None = None,
    model: str = "",
) -> str:
    """A digest of all that the next request shows: the window, the tools offered, the model and its settings.

    It leaves out the clock, the run's id and the provider's ids; the words are in it by their digests, which are
    salted where they are not the harness's own: views compare within a lineage, and in replays.
    """
    setup, seen = state.setup, state.window.digest
    offer = setup.offer
    if model or tools is not None:
        shown = setup.tools if tools is None else tuple(tool for tool in setup.tools if tool.name in tools)
        offer = offer_digest(model or setup.model, setup.settings, shown)
    if texts:
        seen += encoded([(text.role, text.place, text.size.digest) for text in texts])
    return hashlib.sha256(seen + offer.encode()).hexdigest()
