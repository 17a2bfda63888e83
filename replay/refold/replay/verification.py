"""`verify`: check that a log is intact and unedited: chain, order, schema, valid transitions, digests."""

import json

import msgspec
from msgspec.structs import replace

from refold.reducers import codec
from refold.reducers import events as ev
from refold.reducers.codec import digest_named, digest_of
from refold.reducers.errors import Damaged, Inconclusive, RefoldError
from refold.reducers.estimate import MissingTokenizer
from refold.reducers.evolution import state_digest
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.sizes import SIZED, misfit
from refold.reducers.state import NEW, RunState
from refold.replay.reader import Follower, Records, Step, follow
from refold.store.chain import START, check
from refold.store.checks import FORKED, can_name
from refold.store.protocol import Store, Stored
from refold.store.verify_bundle import UNNAMED, UnexplainedErasures, child_differs, ended_child

UNSEALED = "that no events were removed at the end: the log is not sealed, or no key was given"
NO_SEAL = "that no events were removed at the end: no checked signed checkpoint covers the log"
UNKEYED = "that no writer of the store recomputed the whole chain: the chain has no key"

_CHILD_ENDED = ev.kind_of(ev.ChildEnded)
_SIZED = frozenset(ev.kind_of(each) for each in SIZED)


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """The first invalid event of a log, and why, in one sentence."""

    seq: int
    kind: str
    problem: str


class Prefix(msgspec.Struct, frozen=True, kw_only=True):
    """A run that a fork continues: its events up to `seq` are shared with the fork."""

    run: str
    seq: int


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """Result of checking a log, and what remains not proven.

    `events` were checked: `contents` have a payload, `erased` had one. `digests` counts state digests derived
    again. `hash` is the log head's, hex. `unjudged`: a newer refold wrote the log from `problem.seq` on.
    `unweighed` facts have sizes that cannot be measured here, because of `unweighable`; their sizes are taken
    as recorded. `sealed` is the last event covered by a signed checkpoint (0: none), through `heads` entries;
    None if checkpoints were not checked. `loose` of the `erased` have their erasure record later in the log.
    `prefixes` are the runs that a fork continues, oldest first; their events were checked with it. `gaps` is
    what the store itself does not promise.
    """

    run: str
    events: int
    contents: int
    erased: int
    digests: int
    hash: str
    agent_state: str
    problem: Problem | None = None
    unjudged: bool = False
    sealed: int | None = None
    heads: int = 0
    loose: int = 0
    prefixes: tuple[Prefix, ...] = ()
    unmeasured: int = 0
    unweighed: int = 0
    unweighable: str = ""
    cut: int = 0
    cannot_prove: tuple[str, ...] = (UNSEALED, UNKEYED)
    gaps: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether the log is intact: every present event is as written."""
        return self.problem is None and not self.unweighed

    @property
    def damaged(self) -> bool:
        """Whether an event is not as written. If neither this nor `whole`, it is inconclusive."""
        return self.problem is not None and not self.unjudged


async def verify(store: Store, run: str, registry: Registry = BUILTIN, *, sealed: int = 0) -> Verification:
    """Check a run up to its last event or the first invalid one. Raises `UnknownRun`.

    `sealed` is the run's last event covered by a signed checkpoint.
    """
    verifier = Verifier(run, sealed=sealed)
    await follow(Records(store, run, checked=False), verifier, registry=registry)
    if verifier.problem is None:
        try:
            await _hold_prefixes(store, verifier)
            await _hold_children(store, verifier)
            await store.check()
        except Damaged as error:
            verifier.problem = error
    if isinstance(verifier.problem, Inconclusive):
        raise verifier.problem
    return replace(verifier.result(), gaps=(await store.durability()).gaps)


async def _hold_prefixes(store: Store, verifier: "Verifier") -> None:
    """Collect erasure records of a fork's parents; they may come after the fork point."""
    for prefix in () if verifier.over else verifier.prefixes:
        async for chunk in store.read(prefix.run, prefix.seq, checked=False):
            for stored in chunk:
                verifier.notice(stored, prefix.seq)


async def _hold_children(store: Store, verifier: "Verifier") -> None:
    """Check that each stored child run has the final event that this run recorded for it."""
    for stored in verifier.ended:
        child, seq, hashed = ended_child(stored.body)
        if can_name(child) and (await store.head(child)).seq:
            found = [each.hash.hex() for each in await store.read_some(child, [seq], checked=False)]
            if found != [hashed]:
                verifier.differ(stored, child_differs(child, seq))
                return


class Verifier(Follower[Verification]):
    """Checks each event against the earlier ones and stops at the first invalid one.

    It checks the hash chain itself, so the reader does not need to.
    """

    folds = True

    def __init__(self, run: str, *, sealed: int = 0) -> None:
        self._run = run
        self._owner = ""  # run of the preceding event: another one in a fork's prefix
        self._prefixes: list[Prefix] = []
        self.ended: list[Stored] = []
        """Recorded ends of child runs, to be compared with their logs."""
        self._state: RunState = NEW
        self._head = START
        self._at = 0
        self._contents = self._erased = self._digests = self._unmeasured = self._unweighed = self._cut = 0
        self._unweighable = ""
        self._bare = UnexplainedErasures(sealed)
        self._wrongs: Problem | None = None
        self._unjudged = False

    def take(self, step: Step) -> None:
        """Check one event. After an invalid event, nothing can be verified."""
        stored, problem = step.stored, self._find_problem(step)
        if problem is not None:
            self._wrongs = Problem(seq=stored.seq, kind=stored.kind, problem=problem)
            self.over = True
            return
        if self._owner not in ("", stored.run):
            self._prefixes.append(Prefix(run=self._owner, seq=self._head.seq))
        self._owner = stored.run
        self._head = stored
        if stored.kind == _CHILD_ENDED:
            self.ended.append(stored)
        erased = stored.erased
        self._bare.take(stored.seq, stored.kind, stored.body, bare=erased)
        self._contents += stored.content is not None
        self._erased += erased
        self._unmeasured += erased and stored.kind in _SIZED

    def differ(self, stored: Stored, problem: str) -> None:
        """Record a contradiction between this record and another log."""
        self._wrongs = self._wrongs or Problem(seq=stored.seq, kind=stored.kind, problem=problem)

    @property
    def prefixes(self) -> tuple[Prefix, ...]:
        """Return the runs that a fork continues, up to the last event read."""
        return tuple(self._prefixes)

    def notice(self, stored: Stored, upto: int) -> None:
        """Take an event of a parent run, shared up to `upto`, which may record an erasure."""
        self._bare.notice(stored.kind, stored.body, upto)

    def result(self) -> Verification:
        """Return the result so far."""
        return Verification(
            run=self._run,
            events=self._head.seq,
            contents=self._contents,
            erased=self._erased,
            digests=self._digests,
            hash=self._head.hash.hex(),
            agent_state=str(self._state.agent_state),
            problem=self._wrongs
            or self._find_truncation()
            or self._find_foreign_end()
            or self._find_unexplained_erasure(),
            unjudged=self._unjudged,
            loose=self._bare.loose,
            prefixes=self.prefixes,
            unmeasured=self._unmeasured,
            unweighed=self._unweighed,
            unweighable=self._unweighable,
            cut=self._cut,
        )

    def _find_truncation(self) -> Problem | None:
        # Later events cannot be read, or may be missing.
        if self.problem is None:
            return None
        return Problem(seq=self._head.seq + 1, kind="", problem=str(self.problem))

    def _find_foreign_end(self) -> Problem | None:
        # Only known at the end: a fork begins with its parent's events.
        if self._owner in ("", self._run):
            return None
        return Problem(seq=self._head.seq, kind="", problem=f"it is an event of run {self._owner}")

    def _find_unexplained_erasure(self) -> Problem | None:
        # Only known at the end: an erasure record comes after the events that it names.
        first = self._bare.first
        return first and Problem(seq=first[0], kind=first[1], problem=UNNAMED)

    def _find_problem(self, step: Step) -> str | None:
        stored = step.stored
        if self._owner not in ("", stored.run) and stored.kind != FORKED:
            return f"it is an event of run {stored.run}"
        broken = check(stored, self._head)
        if broken is not None:
            return broken
        if stored.at < self._at:
            return f"its time is {self._at - stored.at} ns before that of the event before it"
        self._at = stored.at
        try:
            return self._check_event(step)
        except RefoldError as error:
            # Reason without the place, which is reported separately.
            why = error.__cause__ if isinstance(error.__cause__, RefoldError) else error
            self._unjudged = isinstance(why, Inconclusive)
            return str(why)

    def _check_event(self, step: Step) -> str | None:
        stored, event = step.stored, step.event
        problem = (
            self._check_place(stored, event) or _check_encoding(stored, event) or self._check_state(step)
        )
        if problem is None:
            self._state = step.after
        return problem

    def _check_place(self, stored: Stored, event: ev.Event) -> str | None:
        if isinstance(event, ev.Fact | ev.Annotation) and event.at != stored.at:
            return f"its header has the time {stored.at}, its body {event.at}"
        if isinstance(event, ev.RunStarted | ev.RunForked) and event.run != stored.run:
            return f"its body is of run {event.run}"
        if isinstance(event, ev.RunForked):
            before = (self._owner, self._head.seq, self._head.hash.hex())
            if before != (event.parent, event.parent_seq, event.parent_hash) or stored.run == self._owner:
                return f"it is recorded as a fork of event {event.parent_seq} of run {event.parent}, but follows another event"
        return None

    def _check_state(self, step: Step) -> str | None:
        """Return what contradicts the preceding state."""
        event, fact = step.event, _fact_of(step.event)
        if fact is not None and (unlike := self._check_sizes(step.before, fact)):
            return unlike
        self._cut += isinstance(event, ev.ToolReturned) and event.cut and event.content is not None
        return self._check_digest(step.before, event) if isinstance(event, ev.StateDigested) else None

    def _check_sizes(self, state: RunState, fact: ev.Fact) -> str:
        try:
            return misfit(state, fact)
        except MissingTokenizer as error:
            self._unweighed, self._unweighable = self._unweighed + 1, str(error)
            return ""

    def _check_digest(self, state: RunState, event: ev.StateDigested) -> str | None:
        self._digests += 1
        derived = state_digest(state)
        if derived.state != event.state:
            return "the state of the log here differs from the recorded digest"
        wrong = [name for name, digest in derived.guards.items() if event.guards.get(name) != digest]
        return f"the state of guard {wrong[0]!r} differs from the recorded digest" if wrong else None


def _check_encoding(stored: Stored, event: ev.Event) -> str | None:
    if _is_ambiguous(stored, event):
        return "it has a duplicate field: JSON readers differ in which one they use"
    if stored.content_digest is None and _has_text(event):
        return "its payload is missing, and so is the payload's digest, which an erasure keeps"
    if not _are_digested(stored, event):
        return "the digest in its body does not match its payload"
    if isinstance(event, ev.LateResult) and event.fact.at != event.at:
        return f"its body has two times: {event.at} and {event.fact.at}"
    return None


def _are_digested(stored: Stored, event: ev.Event) -> bool:
    """Return whether the body's digests match the payload, for each message if there are several."""
    if isinstance(event, ev.LateResult):
        return _are_digested(stored, event.fact)
    words = (stored.content_digest or b"").hex()
    if isinstance(event, ev.ApprovalAnswered):
        return event.digest == words
    sizes = ev.sizes_of(event)
    if isinstance(event, ev.RunStarted | ev.ContextObserved):
        said = event.content.messages if event.content else ()
        return all(
            size.digest == digest_of(stored.salt, each) for size, each in zip(sizes, said, strict=False)
        )
    return _frames_words(event) or all(
        size.digest == digest_named(words, ev.named_in(event)) for size in sizes
    )


def _frames_words(event: ev.Event) -> bool:
    """Return whether the digest also covers a frame text that is stored elsewhere."""
    gap = event.gap if isinstance(event, ev.MessageInjected) else None
    return gap is not None and bool(gap.source or gap.sources)


def _is_ambiguous(stored: Stored, event: ev.Event) -> bool:
    """Return whether JSON readers could differ: SQLite uses the first of duplicate fields."""
    parts = [stored.body, stored.content or b"null"]
    if not isinstance(event, ev.UnknownAnnotation):
        written = codec.encode(event)  # refold writes no duplicate fields, and most logs are unchanged
        ours = (written.body, written.content or b"null")
        parts = [part for part, mine in zip(parts, ours, strict=True) if part != mine]
    return any(map(_doubles, parts))


def _doubles(data: bytes) -> bool:
    try:
        json.loads(data, object_pairs_hook=_once)
    except (KeyError, RecursionError):
        return True
    return False


def _once(pairs: list[tuple[str, object]]) -> None:
    if len({name for name, _ in pairs}) < len(pairs):
        raise KeyError


def _has_text(event: ev.Event) -> bool:
    """Return whether the event had text, so that it must have a digest."""
    match event:
        case ev.RunForked(size=size):
            return size is not None
        case ev.ApprovalAnswered(answers=answers):
            return any(answer.decision == "edit" for answer in answers)
        case ev.ModelRequested(request_only=texts):
            return bool(texts)
        case _:
            return isinstance(
                event, (*SIZED, ev.CallRefused, ev.MessageInjected, ev.MessageTrimmed, ev.SummaryRequested)
            )


def _fact_of(event: ev.Event) -> ev.Fact | None:
    """Return the fact to measure; for a late result, the result it would have been."""
    if isinstance(event, ev.LateResult):
        return replace(event.fact, content=event.content)
    return event if isinstance(event, ev.Fact) else None
