"""A recorded fact as the log of the other policy's run would contain it.

A policy hides secrets, words errors and caps outputs before they are recorded. If the log has the whole text,
the text under the other policy is computed exactly, and the runs diverge only when something reads it. If the
log lacks the whole text, the runs diverge at the fact.

What the model and the tools reported stays the same. What refold adds to a fact follows from the policy and
is recomputed: the number of its request, sizes by the policy's estimator, the size of a preview, and whether
a failure is a context overflow.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from refold.reducers import composition
from refold.reducers import events as ev
from refold.reducers.errors import PolicyError
from refold.reducers.failures import overflows
from refold.reducers.guards import Registry
from refold.reducers.guards.duty import versions_of
from refold.reducers.history.results import PreviewResults
from refold.reducers.policy import Overflow, Policy, ToolOutput, text_of
from refold.reducers.secrets import PLAIN, REDACTED, Redactor
from refold.reducers.sizes import sized
from refold.reducers.state import RunState
from refold.reducers.text import render
from refold.reducers.vocabulary import FailureClass, ToolError
from refold.replay.whatif.mismatches import Mismatch

_SALT = b"otherwise"  # so that its digests differ from all recorded ones
_FILLED = (ToolError.RAISED, ToolError.BAD_ARGUMENTS)
_PROBLEM = "{problem}"
UNHIDDEN = Mismatch("redaction", "text redacted here might have been redacted differently, or not at all")
HIDDEN = Mismatch("redaction", "text here would have been redacted in the log and in the prompt")


class ChangedFact(NamedTuple):
    """A recorded fact whose text the other policy changes, with the mismatch that explains it."""

    fact: ev.Fact
    parted: Mismatch


def reword_response(
    fact: ev.ModelResponded, said: ev.Answer, new: Policy
) -> ev.Fact | ChangedFact | Mismatch:
    """Apply the other policy's redaction patterns to a response.

    A call with another name or other arguments is a different call.
    """
    redactor = Redactor(patterns=new.redact, known=False)
    names = (fact.stop_raw, *(call.name for call in fact.calls))
    if any(REDACTED in text for text in (said.text, said.reasoning, *said.arguments, *names)):
        return UNHIDDEN
    asked = (*map(redactor.json, said.arguments), *map(redactor.text, names))
    if asked != (*said.arguments, *names):
        return HIDDEN
    hidden = replace(said, text=redactor.text(said.text), reasoning=redactor.text(said.reasoning))
    return fact if hidden == said else ChangedFact(composition.told(fact, hidden, _SALT, new), HIDDEN)


def reword_result(
    fact: ev.ToolReturned, output: str, derived: RunState, old: Policy
) -> ev.Fact | ChangedFact | Mismatch:
    """Rewrite a result as the other policy would record it: error text, redaction and output cap.

    The whole output must be recorded.
    """
    new = derived.policy
    said = _reword_output(fact.error, output, old, new)
    if isinstance(said, Mismatch):
        return said
    cut = _find_cut(fact, new)
    if said == output and cut is None:
        return fact
    calls = derived.batch.calls if derived.batch else ()
    tool = next((call.name for call in calls if call.id == fact.call), "")
    made = composition.returned(derived, replace(fact, output_bytes=0), said, tool, "", _SALT)
    if said == output and cut is not None:
        return ChangedFact(made, cut)
    return ChangedFact(made, HIDDEN if old.redact != new.redact else _error_mismatch(fact.error))


def _reword_output(error: ToolError | None, output: str, old: Policy, new: Policy) -> str | Mismatch:
    """Return the output under the other policy, before the cap."""
    hides = old.redact != new.redact
    redactor = Redactor(patterns=new.redact, known=False)
    if hides and REDACTED in output:
        return UNHIDDEN
    if error is None:
        return redactor.text(output) if hides else output
    templates = _templates(error, old, new)
    if all(was == would for was, would in templates) and (not hides or redactor.text(output) == output):
        return output
    quoting = _PROBLEM if error in _FILLED else ""
    hidden = redactor if hides else PLAIN
    found = {_reword_error(output, was, would, quoting, hidden) for was, would in templates} - {None}
    said = found.pop() if len(found) == 1 else None
    # Text of the error template is not redacted, and text outside the template is not known.
    if said is None or redactor.text(said) != said:
        return HIDDEN if hides else _error_mismatch(error)
    return said


def _templates(error: ToolError, old: Policy, new: Policy) -> set[tuple[str, str]]:
    """Return the error texts of both policies, in pairs."""
    keys = ("in_doubt", "in_doubt:happened", "cancelled") if error is ToolError.IN_DOUBT else (str(error),)
    return {(text_of(old, key), text_of(new, key)) for key in keys}


def _reword_error(output: str, was: str, would: str, quoting: str, redactor: Redactor) -> str | None:
    """Rewrite an error with the other template; None if the output does not match the old one."""
    before, quotes, after = was.partition(quoting) if quoting else (was, "", "")
    if not quotes:
        return would if output == was and not (quoting and quoting in would) else None
    if not output.startswith(before) or not output[len(before) :].endswith(after):
        return None
    problem = output[len(before) : len(output) - len(after)]
    return render(would, {quoting.strip("{}"): redactor.text(problem)})


def _error_mismatch(error: ToolError | None) -> Mismatch:
    return Mismatch("wording", f"the error ({error}) would have had another text")


Change = Callable[[Policy], Policy]
"""Maps the recorded policy to the policy under test."""

_Weighed = (
    ev.RunStarted
    | ev.RunForked
    | ev.ContextObserved
    | ev.ModelResponded
    | ev.ModelFailed
    | ev.ToolReturned
    | ev.InputReceived
    | ev.SummaryReturned
)
_ERASED = Mismatch("unknown", "the payload here was erased, and the other policy would measure or search it")


def carry_over(
    fact: ev.Fact, recorded: RunState, derived: RunState, change: Change, registry: Registry
) -> ev.Fact | ChangedFact | Mismatch:
    """Convert a recorded fact for the other run, or return the mismatch.

    The mismatch is `unknown` if the record does not contain what is needed. Both states precede the fact.
    """
    old, new = recorded.policy, derived.policy
    if isinstance(fact, ev.RunStarted):
        old, new = fact.policy, change(fact.policy)
    try:
        apart = _check_numbers(fact, recorded, derived)
        carried = apart or _reword(_readdress(fact, derived, change, registry), derived, old, new)
        return _weigh(carried, old, new) if isinstance(carried, ev.Fact) else carried
    except PolicyError as error:  # in an unchecked policy from the log
        return Mismatch("unknown", f"a pattern cannot be searched for: {error}")


def _reword(fact: ev.Fact, derived: RunState, old: Policy, new: Policy) -> ev.Fact | ChangedFact | Mismatch:
    """Return the fact with the text that the other policy would record."""
    match fact:
        case ev.ModelResponded(content=ev.Answer() as said) if old.redact != new.redact:
            return reword_response(fact, said, new)
        case ev.ToolReturned(content=ev.Output() as said, cut=False):
            return reword_result(fact, said.output, derived, old)
        case _:
            return _check_redaction(fact, old, new) or _check_record(fact, old, new) or fact


def _readdress(fact: ev.Fact, derived: RunState, change: Change, registry: Registry) -> ev.Fact:
    if isinstance(fact, ev.ModelResponded | ev.ModelFailed | ev.SummaryReturned):
        pending = derived.request or derived.summary
        if pending is None or fact.request == pending.seq:
            return fact
        return replace(fact, request=pending.seq)
    if isinstance(fact, ev.RunForked):
        fact = replace(fact, parent_seq=derived.seq)
    if not isinstance(fact, ev.RunStarted | ev.RunForked | ev.PolicyAmended) or fact.policy is None:
        return fact
    policy = change(fact.policy)
    # The guard versions installed then do not apply to another policy.
    fact = replace(fact, policy=policy, guards=versions_of(policy, registry))
    return replace(fact, environment=()) if isinstance(fact, ev.RunStarted) else fact


def _check_numbers(fact: ev.Fact, recorded: RunState, derived: RunState) -> Mismatch | None:
    """Return a mismatch if the fact names messages by numbers that differ in the other run."""
    names = isinstance(fact, ev.ContextObserved) and (fact.kept is not None or fact.after)
    if not names or recorded.messages == derived.messages:
        return None
    return Mismatch(
        "fact", "it names messages by number, and the other run has another number of harness messages"
    )


def _check_redaction(fact: ev.Fact, old: Policy, new: Policy) -> Mismatch | None:
    """Return a mismatch if the policies' `redact` patterns hide different text of the fact."""
    if old.redact == new.redact:
        return None
    if _is_erased(fact):
        return _ERASED
    redactor = Redactor(patterns=new.redact, known=False)
    for text in _texts(fact):
        if REDACTED in text:
            return UNHIDDEN
        if redactor.text(text) != text or redactor.json(text) != text:
            return HIDDEN
    if isinstance(fact, ev.ToolReturned) and fact.cut:
        return Mismatch(
            "redaction",
            "the output was cut, and the whole output, which would have been redacted, is not recorded",
        )
    return None


def _texts(fact: ev.Fact) -> Iterator[str]:
    """Yield every text of the fact, including tool descriptions."""
    match fact:
        case ev.RunStarted(content=ev.Opening() as said) | ev.ContextObserved(content=ev.Opening() as said):
            for message in said.messages:
                yield from (message.text, message.reasoning, *(call.arguments for call in message.calls))
        case ev.ModelResponded(content=ev.Answer() as answer):
            yield from (answer.text, answer.reasoning, *answer.arguments)
        case ev.ModelFailed(content=ev.Failure() as failure):
            yield from (failure.message, failure.partial_text)
        case ev.ToolReturned(content=ev.Output() as output):
            yield output.output
        case ev.InputReceived(content=ev.Input() as put) | ev.RunForked(content=ev.Input() as put):
            yield put.text
        case ev.ApprovalAnswered(content=ev.Edits() as edits):
            yield from edits.arguments.values()
        case ev.SummaryReturned(content=ev.Summary() as summary):
            yield summary.text
        case _:
            pass
    if isinstance(fact, ev.RunStarted):
        yield from (text for tool in fact.tools for text in (tool.description, tool.schema))


def _check_record(fact: ev.Fact, old: Policy, new: Policy) -> Mismatch | None:
    """Return a mismatch if the other policy would record a different fact for the same event."""
    if isinstance(fact, ev.ToolReturned):
        return _check_output(fact, old, new)
    if isinstance(fact, ev.ModelFailed):
        return _check_failure(fact, old.overflow or Overflow(), new.overflow or Overflow())
    return None


def _check_output(fact: ev.ToolReturned, old: Policy, new: Policy) -> Mismatch | None:
    if fact.error is not None:
        keys = (str(fact.error), "in_doubt:happened", "cancelled")
        if any(text_of(old, key) != text_of(new, key) for key in keys):
            return Mismatch("wording", f"the error ({fact.error}) would have had another text")
    caps = [(cap.max, cap.unit, cap.keep) if cap.max is not None else None for cap in map(_cap, (old, new))]
    if caps[0] == caps[1] and text_of(old, "output_cut") == text_of(new, "output_cut"):
        return None
    if fact.cut:
        return Mismatch(
            "output", "the output would have been cut differently, and the whole output is not recorded"
        )
    return _find_cut(fact, new)


def _find_cut(fact: ev.ToolReturned, policy: Policy) -> Mismatch | None:
    cap = _cap(policy)
    length = fact.output_bytes if cap.unit == "bytes" else fact.size.chars
    if cap.max is None or length <= cap.max:
        return None
    return Mismatch("output", f"the output of {length} {cap.unit} would have been cut to {cap.max}")


def _cap(policy: Policy) -> ToolOutput:
    return policy.tool_output or ToolOutput(max=None)


def _check_failure(fact: ev.ModelFailed, old: Overflow, new: Overflow) -> Mismatch | None:
    if (old.patterns, old.single_patterns) == (new.patterns, new.single_patterns):
        return None
    if fact.content is None:
        return _ERASED
    said = fact.content.message
    was, would = (bool(each.patterns) and overflows(said, each.patterns or ()) for each in (old, new))
    if was and not would:
        return Mismatch(
            "overflow",
            "the recorded policy classified the failure as an overflow; its class otherwise is unknown",
        )
    return None


def _weigh(fact: ev.Fact, old: Policy, new: Policy) -> ev.Fact | Mismatch:
    """Recompute the sizes of the fact with the other policy's estimator."""
    measured_alike = (old.estimator, old.token_caps) == (new.estimator, new.token_caps)
    if isinstance(fact, ev.ToolReturned) and not _previews(new) and measured_alike:
        return replace(fact, preview=0) if _previews(old) else fact
    if not isinstance(fact, _Weighed) or _weighs_alike(fact, old, new):
        return fact
    if _is_erased(fact):
        return _ERASED
    if isinstance(fact, ev.ModelFailed) and fact.content is not None and _patterns(old) != _patterns(new):
        knob = new.overflow or Overflow()
        over = knob.patterns is not None and overflows(fact.content.message, knob.patterns)
        fact = replace(fact, failure=FailureClass.CONTEXT_OVERFLOW if over else fact.failure)
    return sized(fact, new)


def _weighs_alike(fact: _Weighed, old: Policy, new: Policy) -> bool:
    if (old.estimator, old.token_caps) != (new.estimator, new.token_caps):
        return False
    match fact:
        case ev.ModelFailed():
            return _patterns(old) == _patterns(new)
        case ev.ToolReturned():
            return _previews(old) == _previews(new)
        case ev.SummaryReturned():
            return text_of(old, "summary") == text_of(new, "summary")
        case _:
            return True


def _is_erased(fact: ev.Fact) -> bool:
    """Return whether the fact's payload is missing."""
    return ev.wordless(fact) or (isinstance(fact, ev.ModelFailed | ev.InputReceived) and fact.content is None)


def _patterns(policy: Policy) -> tuple[object, ...]:
    knob = policy.overflow or Overflow()
    return knob.patterns, knob.single_patterns


def _previews(policy: Policy) -> list[PreviewResults]:
    return [step for step in policy.history if isinstance(step, PreviewResults)]
