"""Compare an import with the truth: the requests that the model server received, and its responses.

Each check covers one property and yields a finding for each compared place: equal, unknown (the import makes
no claim) or a difference. The words for a difference are the same in each run of a client: `limits.toml`
lists them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from clients.imported import ImportedAnswer, ImportedCall, ImportedRun
from clients.scripts import Usage
from clients.sights import canonical, differences
from clients.truth import Exchange, Truth
from clients.wires.protocol import Reply, ScriptedCall
from refold.reducers.messages import Message
from refold.reducers.vocabulary import Role


class Finding(msgspec.Struct, frozen=True, order=True):
    """A finding at a place. An empty `what` means equal; `unknown`: the import makes no claim there."""

    place: str
    what: str = ""
    unknown: bool = False
    detail: str = ""


class Pair(msgspec.Struct, frozen=True):
    """An answer of the truth and the matching answer of the import."""

    exchange: Exchange
    reply: Reply
    answer: ImportedAnswer

    @property
    def place(self) -> str:
        return self.exchange.place

    def calls(self) -> Iterator[tuple[str, ScriptedCall, ImportedCall]]:
        """The calls that both have, with their places."""
        for index, (call, found) in enumerate(
            zip(self.reply.calls, self.answer.calls, strict=False), start=1
        ):
            yield f"{self.place} call {index}", call, found


class Matched(msgspec.Struct, frozen=True):
    """The truth, the import, and the answers that belong together."""

    truth: Truth
    runs: Sequence[ImportedRun]
    pairs: Sequence[Pair]


def compare(truth: Truth, runs: Sequence[ImportedRun]) -> dict[str, list[Finding]]:
    """The findings of each property, in the order of `CHECKS`."""
    matched = Matched(truth, runs, match(truth, runs))
    return {name: list(check(matched)) for name, check in CHECKS.items()}


def match(truth: Truth, runs: Sequence[ImportedRun]) -> list[Pair]:
    """Pair the truth's answers with the import's, by text and in order; a script has few without text."""
    free = [answer for run in runs for answer in run.answers]
    pairs: list[Pair] = []
    for exchange, reply in truth.answers():
        words = reply.text.split()
        found = next((answer for answer in free if answer.text.split() == words), None)
        if found is not None:
            free.remove(found)
            pairs.append(Pair(exchange, reply, found))
    return pairs


def check_runs(matched: Matched) -> Iterator[Finding]:
    """Each agent has exactly one run, a subagent's run has a parent, and there are no other runs."""
    parents: dict[str, set[str]] = {}
    for pair in matched.pairs:
        agent = "main" if pair.exchange.agent == "compaction" else pair.exchange.agent
        parents.setdefault(agent, set()).add(pair.answer.run)
    for agent in dict.fromkeys(each.agent for each in matched.truth.asked() if each.agent != "compaction"):
        ids = parents.get(agent, set())
        yield Finding(agent, "" if len(ids) == 1 else "is in no run" if not ids else f"is in {len(ids)} runs")
    linked = [run for run in matched.runs if run.id in parents.get("sub", ())]
    yield from (Finding("sub link", "" if run.parent else "is not linked to its call") for run in linked)
    others = [run for run in matched.runs if not any(run.id in ids for ids in parents.values())]
    if others:
        yield Finding("others", f"adds {len(others)} runs that hold no answer of the truth")


def check_answers(matched: Matched) -> Iterator[Finding]:
    """Each whole answer is there once, and no other."""
    paired = {pair.place for pair in matched.pairs}
    for exchange, reply in matched.truth.answers():
        yield Finding(
            exchange.place, "" if exchange.place in paired else "lacks the answer", detail=reply.text
        )
    used = {(pair.answer.run, pair.answer.seq) for pair in matched.pairs}
    broken = [each for each in matched.truth.asked() if each.reply is not None and each.broken]
    for run in matched.runs:
        for answer in run.answers:
            if (answer.run, answer.seq) not in used:
                yield _extra(answer, broken)


def check_calls(matched: Matched) -> Iterator[Finding]:
    """The calls of each answer: how many, their names, their arguments."""
    for pair in matched.pairs:
        if len(pair.reply.calls) != len(pair.answer.calls):
            yield Finding(
                pair.place, f"has {len(pair.answer.calls)} calls instead of {len(pair.reply.calls)}"
            )
        for place, call, found in pair.calls():
            if call.name != found.name:
                yield Finding(
                    place, f"is a call of {found.name} instead of {call.name}", detail=found.arguments
                )
            elif canonical(call.arguments) != canonical(found.arguments):
                yield Finding(place, "has other arguments", detail=f"{call.arguments} -> {found.arguments}")
            else:
                yield Finding(place)


def check_results(matched: Matched) -> Iterator[Finding]:
    """The result of each call, with the text that the model received."""
    shown = matched.truth.results()
    for pair in matched.pairs:
        for place, call, found in pair.calls():
            if call.id not in shown:
                continue
            if found.result is None:
                yield Finding(place, "lacks the result", detail=shown[call.id])
            elif found.result != shown[call.id]:
                detail = f"{shown[call.id][:300]!r} -> {found.result[:300]!r}"
                yield Finding(place, "has another result", detail=detail)
            else:
                yield Finding(place)


def check_errors(matched: Matched) -> Iterator[Finding]:
    """Whether each call that has a result failed."""
    shown = matched.truth.results()
    for pair in matched.pairs:
        for place, call, found in pair.calls():
            if call.id not in shown or found.result is None:
                continue
            failed = matched.truth.fails(pair.exchange, call)
            if found.failed is None:
                yield Finding(place, f"no status, {'failed' if failed else 'succeeded'}", unknown=True)
            else:
                right = found.failed == failed
                yield Finding(
                    place, "" if right else "recorded as failed" if found.failed else "recorded as a success"
                )


def check_tokens(matched: Matched) -> Iterator[Finding]:
    """The usage of each answer: input, of it from the cache, output."""
    for pair in matched.pairs:
        usage = pair.answer.usage
        if usage is None:
            yield Finding(pair.place, "no usage", unknown=True)
            continue
        found = Usage(usage.input, usage.cache_read, usage.output)
        same = found == pair.reply.usage
        yield Finding(pair.place, "" if same else "has other usage", detail=f"{pair.reply.usage} -> {found}")


def check_order(matched: Matched) -> Iterator[Finding]:
    """The order of answers; each result precedes the next answer of its run."""
    for run in matched.runs:
        last = 0
        following = {
            answer.seq: after.seq for answer, after in zip(run.answers, run.answers[1:], strict=False)
        }
        for pair in (pair for pair in matched.pairs if pair.answer.run == run.id):
            late = pair.answer.seq < last
            last = max(last, pair.answer.seq)
            after = following.get(pair.answer.seq)
            overtaken = after is not None and any(call.returned > after for call in pair.answer.calls)
            yield Finding(
                pair.place,
                "precedes an earlier answer"
                if late
                else "has a result after the next answer"
                if overtaken
                else "",
            )


def check_system(matched: Matched) -> Iterator[Finding]:
    """The system prompt of `view` at each answer, against the one of its request."""
    yield from _seen(matched, lambda message: message.role == Role.SYSTEM)


def check_view(matched: Matched) -> Iterator[Finding]:
    """The other messages of `view` at each answer, against those of its request."""
    yield from _seen(matched, lambda message: message.role != Role.SYSTEM)


def _seen(matched: Matched, chosen: Callable[[Message], bool]) -> Iterator[Finding]:
    for pair in matched.pairs:
        sent, shown = filter(chosen, pair.exchange.messages()), filter(chosen, pair.answer.seen)
        found = differences([*sent], [*shown])
        if not found:
            yield Finding(pair.place)
        yield from (Finding(pair.place, each.what, detail=each.detail) for each in found)


def check_failures(matched: Matched) -> Iterator[Finding]:
    """Each failed request, by its position between answers."""
    expected = _failures(matched)
    found = [(run.id, count) for run in matched.runs for count in run.failures]
    runs = {pair.answer.run for pair in matched.pairs if pair.exchange.agent == "main"}
    positions = [count for id_, count in found if id_ in runs]
    for exchange, before in expected:
        if before in positions:
            positions.remove(before)
            yield Finding(exchange.place)
        else:
            kind = "broken stream" if exchange.broken else f"failure with status {exchange.status}"
            yield Finding(exchange.place, f"lacks the {kind}")
    yield from (Finding("others", f"adds a failed request behind answer {count}") for count in positions)


def check_end(matched: Matched) -> Iterator[Finding]:
    """How the main agent's run ended. An open end makes no claim about the cause."""
    runs = [pair.answer.run for pair in matched.pairs if pair.exchange.agent == "main"]
    ended = next((run.end for run in matched.runs if runs and run.id == runs[-1]), None)
    expected = matched.truth.end()
    if ended is None or ended == expected:
        yield Finding("main", "" if ended else "is in no run")
    else:
        silent = ended == "unknown" or (ended == "open" and expected != "finished")
        yield Finding("main", f"{ended} instead of {expected}", unknown=silent)


CHECKS: Mapping[str, Callable[[Matched], Iterator[Finding]]] = {
    "runs": check_runs,
    "answers": check_answers,
    "calls": check_calls,
    "results": check_results,
    "errors": check_errors,
    "tokens": check_tokens,
    "order": check_order,
    "system": check_system,
    "view": check_view,
    "failures": check_failures,
    "end": check_end,
}


def _extra(answer: ImportedAnswer, broken: Sequence[Exchange]) -> Finding:
    for exchange in broken:
        assert exchange.reply is not None
        if answer.text and exchange.reply.text.startswith(answer.text):
            return Finding(exchange.place, "has the part of a broken stream that arrived as an answer")
    return Finding("others", f"adds the answer {answer.text[:40]!r}", detail=answer.text)


def _failures(matched: Matched) -> list[tuple[Exchange, int]]:
    """The main agent's failed requests, each with the number of imported answers before it."""
    seqs = [run.answers for run in matched.runs if run.answers]
    order = [answer.seq for answers in seqs for answer in answers]
    places = {pair.place: order.index(pair.answer.seq) + 1 for pair in matched.pairs}
    found: list[tuple[Exchange, int]] = []
    before = 0
    for exchange in matched.truth.asked():
        if exchange.agent == "sub":
            continue
        if exchange.failed:
            found.append((exchange, before))
        before = places.get(exchange.place, before)
    return found
