"""What would have been recorded of the same answer, or of the same output, under another policy.

A policy hides secrets, words errors and caps outputs before they are recorded. Where the record has the whole of what was
said, what would stand there instead is known to the letter, and nothing has happened yet: the runs part when somebody is
shown it, and not if nobody ever is. Where it has not, they part there.
"""

from typing import NamedTuple

from msgspec.structs import replace

from refold.reducers import composition
from refold.reducers.events import Answer, Fact, ModelResponded, ToolReturned
from refold.reducers.policy import Policy, ToolOutput, text_of
from refold.reducers.secrets import PLAIN, REDACTED, Redactor
from refold.reducers.state import RunState
from refold.reducers.text import render
from refold.reducers.vocabulary import ToolError
from refold.replay.whatif.shown import Parted

_SALT = b"otherwise"  # so that no digest of it is one of the record
_FILLED = (ToolError.RAISED, ToolError.BAD_ARGUMENTS)
_PROBLEM = "{problem}"
UNHIDDEN = Parted("redaction", "what was hidden here might have been hidden otherwise, or shown")
HIDDEN = Parted("redaction", "something here would have been hidden from the log, and from the model")


class Changed(NamedTuple):
    """A fact in other words than were recorded, and what makes them others."""

    fact: Fact
    parted: Parted


def answered(fact: ModelResponded, said: Answer, new: Policy) -> Fact | Changed | Parted:
    """An answer with what the other policy's patterns hide of it. Calls of other names and arguments are other calls."""
    redactor = Redactor(patterns=new.redact, known=False)
    names = (fact.stop_raw, *(call.name for call in fact.calls))
    if any(REDACTED in text for text in (said.text, said.reasoning, *said.arguments, *names)):
        return UNHIDDEN
    asked = (*map(redactor.json, said.arguments), *map(redactor.text, names))
    if asked != (*said.arguments, *names):
        return HIDDEN
    hidden = replace(said, text=redactor.text(said.text), reasoning=redactor.text(said.reasoning))
    return fact if hidden == said else Changed(composition.told(fact, hidden, _SALT, new), HIDDEN)


def returned(fact: ToolReturned, output: str, derived: RunState, old: Policy) -> Fact | Changed | Parted:
    """A result of which the whole is recorded, in the words, with the secrets hidden and under the cap of the other policy."""
    new = derived.policy
    said = _said(fact.error, output, old, new)
    if isinstance(said, Parted):
        return said
    cap = new.tool_output or ToolOutput(max=None)
    length = fact.output_bytes if cap.unit == "bytes" else fact.size.chars
    if said == output and (cap.max is None or length <= cap.max):
        return fact
    calls = derived.batch.calls if derived.batch else ()
    tool = next((call.name for call in calls if call.id == fact.call), "")
    made = composition.returned(derived, replace(fact, output_bytes=0), said, tool, "", _SALT)
    if said == output:
        return Changed(
            made, Parted("output", f"the output of {length} {cap.unit} would have been cut to {cap.max}")
        )
    return Changed(made, HIDDEN if old.redact != new.redact else _worded(fact.error))


def _said(error: ToolError | None, output: str, old: Policy, new: Policy) -> str | Parted:
    """The output before the cap."""
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
    found = {_reworded(output, was, would, quoting, hidden) for was, would in templates} - {None}
    said = found.pop() if len(found) == 1 else None
    # What stands in the error's own words is not hidden, and what was beyond them is not known.
    if said is None or redactor.text(said) != said:
        return HIDDEN if hides else _worded(error)
    return said


def _templates(error: ToolError, old: Policy, new: Policy) -> set[tuple[str, str]]:
    """How the two policies may word an error."""
    keys = ("in_doubt", "in_doubt:happened", "cancelled") if error is ToolError.IN_DOUBT else (str(error),)
    return {(text_of(old, key), text_of(new, key)) for key in keys}


def _reworded(output: str, was: str, would: str, quoting: str, redactor: Redactor) -> str | None:
    """An error in other words, with what it quotes; None where it was not said in these."""
    before, quotes, after = was.partition(quoting) if quoting else (was, "", "")
    if not quotes:
        return would if output == was and not (quoting and quoting in would) else None
    if not output.startswith(before) or not output[len(before) :].endswith(after):
        return None
    problem = output[len(before) : len(output) - len(after)]
    return render(would, {quoting.strip("{}"): redactor.text(problem)})


def _worded(error: ToolError | None) -> Parted:
    return Parted("wording", f"the error ({error}) would have been told in other words")
