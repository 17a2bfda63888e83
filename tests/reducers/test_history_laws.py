"""The laws of every history pass, over any window, any knobs, and any passes one after the other."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.reducers.estimate import ESTIMATORS
from refold.reducers.history import Pass, Plan, Scene, Share, When, plan_step
from refold.reducers.history.results import head_and_tail, shares
from refold.reducers.messages import Size
from refold.reducers.vocabulary import Role
from refold.reducers.window import MessageRef, Window, adds_up, append, numbers, refs
from support.plans import TEXTS, applied, lengths

FRESH = 1000  # what is put in gets numbers from here on

_SMALL = st.integers(0, 6)
_TOKENS = st.integers(1, 80)
_FRACTION = st.sampled_from([0.05, 0.3, 0.5, 0.75, 1])
_CHARS = st.integers(0, 60)


def _knobs(**knobs: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=knobs)


def _one(
    do: str, needed: dict[str, Any], **more: st.SearchStrategy[Any]
) -> st.SearchStrategy[dict[str, Any]]:
    cut = st.sampled_from(["drop", "extend"])
    return st.fixed_dictionaries({"do": st.just(do), **needed}, optional={"pair_cut": cut, **more})


_BUDGET = st.one_of(
    _TOKENS,
    st.fixed_dictionaries(
        {"context": _TOKENS}, optional={"minus_output": st.integers(0, 40), "minus_tools": st.booleans()}
    ),
)
_ROLES = st.lists(st.sampled_from(["user", "assistant", "tool"]), max_size=3, unique=True)
PASSES: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "tail": _one("tail", {"last": _SMALL}, systems=st.sampled_from(["all", "first"]), salvage=st.booleans()),
    "drop_oldest": _one("drop_oldest", {"fraction": _FRACTION}),
    "token_tail": _one("token_tail", {"budget": _BUDGET}, min_last=_SMALL, count_system=st.booleans()),
    "compact": _one("compact", {"budget": _TOKENS}, tail_fraction=_FRACTION),
    "trim_messages": _one(
        "trim_messages",
        {"cap": st.one_of(st.none(), st.integers(1, 40))},
        last=st.one_of(st.none(), _SMALL),
        roles=_ROLES,
        codec=st.sampled_from(["chars4", "char"]),
        marker=st.sampled_from(["within", "beside"]),
        single=st.booleans(),
    ),
    "age_results": _one(
        "age_results",
        {"keep_last": _SMALL},
        soft=st.fixed_dictionaries({"over": _CHARS, "head": st.integers(0, 9), "tail": st.integers(0, 9)}),
        hard=st.fixed_dictionaries({"over": _CHARS}),
    ),
    "preview_results": _one(
        "preview_results", {"tokens": st.integers(1, 10), "chars": st.just(20), "lines": st.just(2)}
    ),
    "digest": _one(
        "digest", {"keep_last": _SMALL, "per_message": st.integers(1, 9), "total": st.integers(1, 60)}
    ),
    "summarise": _one(
        "summarise",
        {},
        keep_first=_SMALL,
        keep_last=_SMALL,
        from_last_user=st.booleans(),
        keep_tokens=st.one_of(st.none(), _TOKENS),
        min_gain=st.integers(0, 40),
        min_messages=_SMALL,
        cut_at=st.sampled_from(["any", "user"]),
        role=st.sampled_from(["user", "system"]),
    ),
}


_KINDS: dict[str, list[Role]] = {
    "s": [Role.SYSTEM],
    "u": [Role.USER],
    "a": [Role.ASSISTANT],
    "1": [Role.ASSISTANT, Role.TOOL],
    "3": [Role.ASSISTANT, *[Role.TOOL] * 3],
}


def conversation(estimator: str, lead: int, kinds: list[str], sizes: list[int]) -> Window:
    """Any conversation: parallel batches, system messages (mostly first), results that a preview would
    cut.
    """
    window, number = Window(estimator=estimator), 0
    for kind in [*"s" * lead, *kinds]:
        unit = number + 1
        for role in _KINDS[kind]:
            size, number = sizes[number % len(sizes)] + number, number + 1
            chars, reasoning = size % 61, size % 47 if role is Role.ASSISTANT else 0
            ref = MessageRef(
                number=number,
                role=role,
                seq=number,
                unit=unit,
                size=Size(
                    chars=chars,
                    reasoning=reasoning,
                    tokens=-(-(chars + reasoning) // 4),
                    digest=f"{number:x}",
                ),
                preview=size % 13 if role is Role.TOOL and chars > 12 else 0,
            )
            window = append(window, ref)
    return window


WINDOWS = st.builds(
    conversation,
    st.sampled_from(sorted(ESTIMATORS)),
    st.integers(0, 2),
    st.lists(st.sampled_from("uuaa1133s"), max_size=9),
    st.lists(st.integers(0, 9999), min_size=1, max_size=4),
)
SCENES = st.builds(
    Scene,
    window=WINDOWS,
    tools=st.integers(0, 20),
    forced=st.booleans(),
    single=st.booleans(),
    texts=st.just(TEXTS),
)


def step_of(plain: dict[str, Any]) -> Pass:
    step: Pass = msgspec.convert(plain, Pass)
    return step


def check(scene: Scene, plan: Plan, after: Window) -> None:
    """The laws between a window and what a plan makes of it."""
    before, left = refs(scene.window), refs(after)
    numbers = [ref.number for ref in left]
    assert len(numbers) == len(set(numbers))
    assert [ref.number for ref in before if ref.number in numbers] == [
        number for number in numbers if number in {ref.number for ref in before}
    ], "order is kept"
    assert [ref.number for ref in before if ref.pinned] == [ref.number for ref in left if ref.pinned]
    for ref in before:
        assert 1 == len({other.number in numbers for other in before if other.unit == ref.unit}), (
            "whole units"
        )
    for place, ref in enumerate(left):
        if ref.gap and ref.role is not Role.SYSTEM:
            assert place >= _leading(left), "system messages first"
    gone = [ref for ref in before if ref.number not in numbers]
    shown = {ref.number: ref for ref in left}
    changed = [ref for ref in before if ref.number in shown and shown[ref.number] != ref]
    assert {shorter.number for shorter in plan.shorter} == {ref.number for ref in changed}
    assert gone or changed, "a plan changes something"
    for made in [
        ref for ref in left if ref not in before and ref.number not in {old.number for old in before}
    ]:
        assert any(not ref.gap for ref in gone), "and does not say the same again"
        assert made.gap
        assert made.gap.covers == sum(ref.gap.covers if ref.gap else 1 for ref in gone)
    assert 1 >= len([ref for ref in left if ref.gap and ref.gap.source])
    assert adds_up(after), "totals, ranges and digest are those of what stays"


def _leading(left: list[MessageRef]) -> int:
    return next((place for place, ref in enumerate(left) if ref.role is not Role.SYSTEM), len(left))


@pytest.mark.parametrize("do", list(PASSES))
@given(data=st.data(), scene=SCENES)
def test_laws_of_one_pass(do: str, data: Any, scene: Scene) -> None:
    """Pinned kept, units whole, order kept, the same answer twice, nothing more once it is done."""
    step = step_of(data.draw(PASSES[do]))
    as_it_was = msgspec.json.encode(scene.window)
    plan = plan_step(scene, step)
    assert plan == plan_step(scene, step)
    assert as_it_was == msgspec.json.encode(scene.window)
    if plan is None:
        return
    after = applied(scene, plan, FRESH)
    check(scene, plan, after)
    if do != "drop_oldest":
        assert plan_step(msgspec.structs.replace(scene, window=after), step) is None


@given(scene=SCENES, plain=st.one_of(*[PASSES[do] for do in ("tail", "token_tail", "compact")]))
def test_a_budget_that_is_kept_plans_nothing(scene: Scene, plain: dict[str, Any]) -> None:
    """A pass with a budget that has no plan would drop nothing more."""
    step = step_of(plain)
    plan = plan_step(scene, step)
    if plan is None and scene.window.count:
        wish = step.plan(scene)
        drop = numbers((wish and wish.drop) or ())
        stays = {ref.number for ref in refs(scene.window) if ref.pinned or ref.gap}
        assert step.pair_cut == "extend" or drop <= stays


@given(scene=SCENES, passes=st.lists(st.one_of(*PASSES.values()), min_size=2, max_size=4))
def test_laws_of_passes_together(scene: Scene, passes: list[dict[str, Any]]) -> None:
    """The laws hold for each pass whatever ran before it, and in the end no pass has anything to do."""
    steps, number, quiet = [step_of(plain) for plain in passes], FRESH, False
    rounds = 2 * scene.window.count + 6
    while not quiet:
        quiet, rounds = True, rounds - 1
        assert rounds, f"no end: {passes}"
        for step in steps:
            plan = plan_step(scene, step)
            if plan is None:
                continue
            quiet, number = False, number + 1
            after = applied(scene, plan, number)
            check(scene, plan, after)
            scene = msgspec.structs.replace(scene, window=after)


@given(scene=SCENES, plain=PASSES["trim_messages"])
def test_a_trimmed_message_is_never_above_its_cap(scene: Scene, plain: dict[str, Any]) -> None:
    """What is shown of a message has no more tokens than the cap, or than it has parts."""
    every = {"single": False, "roles": ["user", "assistant", "tool"], "last": None, "marker": "within"}
    step = step_of({**plain, **every})
    cap, each = plain["cap"], 4 if plain.get("codec", "chars4") == "chars4" else 1
    plan = plan_step(scene, step)
    shorter = {shorter.number: shorter for shorter in plan.shorter} if plan else {}
    for ref in refs(scene.window):
        if cap is not None and ref.role is not Role.SYSTEM:
            cut = shorter.get(ref.number)
            chars, reasoning = lengths(ref, cut) if cut else (ref.size.chars, ref.size.reasoning)
            tokens = -(-chars // each) - (-reasoning // each)
            assert tokens <= max(cap, bool(chars) + bool(reasoning))


@given(counts=st.lists(st.integers(0, 50), max_size=8), cap=st.integers(1, 60))
def test_shares_add_up(counts: list[int], cap: int) -> None:
    """Shares add up to the cap where there is that much, none is above its part, none is nothing of
    something.
    """
    given_ = shares(counts, cap)
    some = sum(1 for count in counts if count)
    assert max(min(cap, sum(counts)), some if sum(counts) > cap else 0) == sum(given_)
    assert all(min(1, count) <= share <= count for share, count in zip(given_, counts, strict=True))


@given(cap=st.integers(1, 99), marker=st.integers(0, 99))
def test_head_marker_and_tail_are_the_cap(cap: int, marker: int) -> None:
    """Head, tail, and the marker if it is shown, are the cap together, the tail no shorter than the head."""
    head, tail, shown = head_and_tail(cap, marker)
    assert cap == head + tail + (marker if shown else 0)
    assert head <= tail <= head + 1 if shown else tail == 0


@given(
    scene=SCENES,
    when=st.builds(
        When,
        always=st.booleans(),
        messages=st.none() | st.integers(1, 12),
        tokens=st.none() | _TOKENS | st.builds(Share, share=_FRACTION),
        at_least=st.booleans(),
        measure=st.sampled_from(["window", "whole"]),
        model=st.sampled_from([(), ("a",), ("B", "x")]),
        model_case=st.booleans(),
        after_step=st.none() | st.integers(0, 3),
        turn_start=st.booleans(),
    ),
    context=st.none() | st.integers(1, 200),
    model=st.sampled_from(["", "abc", "X"]),
    step=st.integers(1, 5),
    turn_start=st.booleans(),
)
def test_conditions_only_narrow(
    scene: Scene, when: When, context: int | None, model: str, step: int, turn_start: bool
) -> None:
    """A condition that holds holds without any one of those that it is made of, if one is left."""
    moment = msgspec.structs.replace(scene, context=context, model=model, step=step, turn_start=turn_start)
    if not when.holds(moment):
        return
    lifted: dict[str, Any] = {
        "messages": None,
        "tokens": None,
        "model": (),
        "after_step": None,
        "turn_start": False,
    }
    for field, nothing in lifted.items():
        less = msgspec.structs.replace(when, **{field: nothing})
        if any(getattr(less, name) != empty for name, empty in lifted.items()):
            assert less.holds(moment)
