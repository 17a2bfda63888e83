"""Policies that must touch a transcript, by what was counted in it, and what `whatif` says of each.

`python tests/support/whatif_law.py` prints what is said of all transcripts, and of which share it says that
it cannot judge. Of every transcript of the repository there is one policy of each kind, made for what
happened in it: a limit below what was used, a refusal of what was called.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from refold.importers.registry import detect_format, importer
from refold.importers.source import Source
from refold.importers.transcript import Transcript
from refold.reducers.events import (
    Diagnosed,
    Event,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    SourceRecorded,
    ToolReturned,
)
from refold.reducers.messages import Usage
from refold.reducers.parser import parse
from refold.replay import known
from refold.replay.reader import follow_all
from refold.replay.whatif.comparison import Comparison
from refold.replay.whatif.tables import Contexts
from refold.replay.whatif.verdict import Verdict, WhatIf
from support.following import unchained
from support.transcripts import FILES, manifest, path_of, salts

Plain = dict[str, Any]
# Of some or all of their tokens nobody can say whether they are the session's or a sub-agent's, who has a run
# of its own.
_WITH_AGENTS = {
    "claude_code/call-without-result.jsonl",
    "claude_code/every-row-type-redacted.jsonl",
    "claude_code/sidechain-in-file.jsonl",
}
_DECLARED = {
    row["file"]: int(row["input_tokens"]) + int(row["output_tokens"])
    for row in manifest()
    if row["runs"] == "1" and row["input_tokens"] != "-" and row["file"] not in _WITH_AGENTS
}
_UNLIMITED = 2**50  # more than any run used, of whatever is counted


class Counted(msgspec.Struct, frozen=True):
    """What happened in a run, as its log has it; `declared` are the tokens of its file as the manifest counts
    them.

    `shown`: messages in the longest request; `span` in nanoseconds, `cost` in nano-dollars. Of `partly`
    answers the tokens are not the provider's own count, and `unpriced` have no price; neither have
    `failures`. Of `unmarked` results nobody knows whether they are errors. `failed`: calls that were alone in
    their answer and came back with an error, and the model was told. `whole`: the model was asked, and all of
    the source is in facts.
    """

    answers: int
    failures: int
    tools: tuple[str, ...]
    tokens: int
    declared: int
    partly: int
    shown: int
    span: int
    cost: int
    unpriced: int
    results: int
    unmarked: int
    failed: int
    whole: bool


_LOST = frozenset(
    {
        "result_without_call",
        "not_json",
        "no_object",
        "unknown_part",
        "cut",
        "cut_off",
        "requests_missing",
        "calls_missing",
        "left_branch",
        "subagent_rows",
    }
)


class Found(msgspec.Struct, frozen=True):
    """A run of a file under the policy of one kind. `must`: that policy cannot have left it as it was."""

    file: str
    counted: Counted
    kind: str
    must: bool
    whatif: WhatIf


class Kind(msgspec.Struct, frozen=True):
    """A kind of policy: over everything else as it was, for a run with these counts, and which runs it must
    touch.

    `contexts`: the lengths that who asks says there were.
    """

    over: Callable[[Counted], Plain]
    touches: Callable[[Counted], bool]
    contexts: Contexts | None = None


def _limit(**limit: Any) -> Plain:
    return {"limits": [limit]}


def _asked(approver: str, **more: Any) -> Plain:
    return {"approvals": {"chain": [{"approver": approver, **more}]}}


def _left_out(**history: Any) -> Plain:
    return {"history": [{"do": "observed"}, history]}


def never(_: Counted) -> bool:
    """No run is one that such a policy must touch."""
    return False


# Of the tools in the transcripts those that write no file, run no code and drive no browser, read one by one.
QUIET = frozenset(
    {
        *("Read", "Grep", "Glob", "LS", "TodoWrite", "AskUserQuestion", "ExitPlanMode", "WebSearch", "read"),
        *("read_file", "web_search", "tool_search", "think", "finish", "submit", "find_file", "open"),
        *("list_files", "list_directory", "todowrite", "grep", "glob", "final_result", "view"),
    }
)
GIVEN = Contexts("of every model", lambda model, address: 200_000)
KINDS: Mapping[str, Kind] = {
    "every call is rejected": Kind(lambda _: _asked("reject"), lambda run: bool(run.tools)),
    "every call ends the run": Kind(
        lambda _: _asked("gate", sensitive=["*"], then="terminate"), lambda run: bool(run.tools)
    ),
    "the preset prod": Kind(
        lambda _: {"approvals": {"preset": "prod_any"}}, lambda run: bool({*run.tools} - QUIET)
    ),
    "the preset dev": Kind(
        lambda _: {"approvals": {"preset": "dev_any"}}, lambda run: bool({*run.tools} - QUIET)
    ),
    "a person is asked about every call": Kind(lambda _: _asked("human"), lambda run: bool(run.tools)),
    "one step": Kind(lambda _: _limit(type="step", value=1), lambda run: run.answers > 1),
    "one token less than were counted": Kind(
        lambda run: _limit(type="token", value=max(0, run.tokens - 1)), lambda run: run.tokens > 0
    ),
    "half of the tokens that its file has": Kind(
        lambda run: _limit(type="token", value=run.declared // 2),
        lambda run: run.declared > 0 and run.answers > 0,
    ),
    "half of what it cost": Kind(
        lambda run: _limit(type="cost", value=run.cost / 2 / 10**9, unpriced="refuse"),
        lambda run: run.cost > 0,
    ),
    "one message less than were shown": Kind(
        lambda run: _limit(type="message", value=max(1, run.shown - 1)), lambda run: run.shown > 1
    ),
    "half of the time that it took": Kind(
        lambda run: {
            **_limit(type="time", value=run.span / 2 / 10**9, credit={"person": False}),
            "call_timeout": {"min": 0},
        },
        lambda run: run.span > 0,
    ),
    "no call of its tools": Kind(
        lambda run: {"guards": [{"guard": "tool_cap", "tools": list(run.tools) or ["-"], "max": 0}]},
        lambda run: bool(run.tools),
    ),
    "nothing but the last message": Kind(
        lambda _: _left_out(do="tail", last=1, systems="first"), lambda run: run.shown > 6
    ),
    "no batch of which every call failed": Kind(
        lambda _: {"guards": [{"guard": "errors", "rounds": 1}]}, lambda run: run.failed > 0
    ),
    "more tokens than any run has": Kind(lambda _: _limit(type="token", value=_UNLIMITED), never),
    "more money than any run costs": Kind(lambda _: _limit(type="cost", value=_UNLIMITED / 10**9), never),
    "more time than any run takes": Kind(lambda _: _limit(type="time", value=9 * 10**9), never),
    "half of the context": Kind(
        lambda _: _left_out(do="drop_oldest", fraction=0.5, when={"tokens": {"share": 0.5}}), never
    ),
    "half of a context that was given": Kind(
        lambda _: _left_out(do="drop_oldest", fraction=0.5, when={"tokens": {"share": 0.5}}), never, GIVEN
    ),
    "what the tools leave of the context": Kind(
        lambda _: _left_out(do="token_tail", budget={"context": _UNLIMITED, "minus_tools": True}), never
    ),
    "two batches that only read": Kind(lambda _: {"guards": [{"guard": "read_only", "batches": 2}]}, never),
}


@cache
def found() -> Sequence[Found]:
    """What is said of each run under the policy of each kind; each transcript is derived once."""
    return [each for file in FILES for each in _of_file(file)]


def _of_file(file: str) -> Iterator[Found]:
    with path_of(file).open("rb") as opened:
        source = Source.opened(file, opened)
        for run in Transcript(source, importer(detect_format(source).format)).runs():
            log = [each for group in run.derive(salts) for each in group]
            span = log[-1].at - log[0].at
            counted = _counted([each.event for each in log], span, _DECLARED.get(file, 0))
            policies = {
                name: parse({"preset": "observed", **kind.over(counted)}) for name, kind in KINDS.items()
            }
            comparisons = {
                name: Comparison(run.run, policy, contexts=KINDS[name].contexts)
                for name, policy in policies.items()
            }
            follow_all(unchained(each.event for each in log), *comparisons.values())
            for name, comparison in comparisons.items():
                must = KINDS[name].touches(counted)
                yield Found(file, counted, name, must, comparison.result())


def _counted(events: Sequence[Event], span: int, declared: int) -> Counted:
    answers = {seq: event for seq, event in enumerate(events, 1) if isinstance(event, ModelResponded)}
    calls = [call for answer in answers.values() for call in answer.calls if call.complete]
    alone = {answer.calls[0].id for answer in answers.values() if len(answer.calls) == 1}
    # At another attempt no limit is looked at: nothing was decided since.
    requests = [event for event in events if isinstance(event, ModelRequested) and event.attempt == 1]
    reported = {
        event.seq
        for event in events
        if isinstance(event, SourceRecorded)
        and event.content
        and event.content.text.startswith("usage reported")
    }
    return Counted(
        answers=len(answers),
        failures=sum(isinstance(event, ModelFailed) for event in events),
        tools=tuple(dict.fromkeys(call.name for call in calls)),
        tokens=sum(answer.usage.input + answer.usage.output for answer in answers.values()),
        declared=declared,
        partly=sum(answer.usage == Usage() or seq not in reported for seq, answer in answers.items()),
        shown=max((sum(last - first + 1 for first, last in each.messages) for each in requests), default=0),
        span=span,
        cost=sum(answer.cost_nanousd or 0 for answer in answers.values()),
        unpriced=sum(answer.cost_nanousd is None for answer in answers.values()),
        results=sum(isinstance(event, ToolReturned) and event.error is None for event in events),
        unmarked=sum(isinstance(event, ToolReturned) and known.failed(event) is None for event in events),
        failed=sum(
            isinstance(event, ToolReturned) and bool(event.error) and event.call in alone
            for event in events[: max(answers, default=0)]
        ),
        whole=bool(requests) and not any(map(_lost, events)),
    )


def _lost(event: Event) -> bool:
    """Whether an import says that something of the source is in no fact."""
    match event:
        case Diagnosed(code=code):
            return code in _LOST
        case SourceRecorded(what=what):
            return what in ("uncalled", "hosted_call")
        case _:
            return False


def unjudged(kind: str) -> int:
    """How many whole runs cannot be judged under the policy of this kind."""
    here = [each for each in found() if each.kind == kind and each.counted.whole]
    return sum(each.whatif.verdict is Verdict.INCONCLUSIVE for each in here)


def table() -> str:
    """What is said under the policy of each kind, and of how many of the runs that it must touch."""
    rows = [f"{'policy':36} {'touches':>7}  " + "  ".join(f"{word:>8}" for word in Verdict)]
    for kind in KINDS:
        here = [each for each in found() if each.kind == kind]
        counts = Counter(each.whatif.verdict for each in here)
        rows.append(
            f"{kind:36} {sum(each.must for each in here):>7}  "
            + "  ".join(f"{counts[word]:>8}" for word in Verdict)
        )
    everything = Counter(each.whatif.verdict for each in found())
    share = 100 * everything[Verdict.INCONCLUSIVE] / len(found())
    return "\n".join([*rows, f"{share:.1f} % of {len(found())} cannot be judged"])


if __name__ == "__main__":
    print(table())
