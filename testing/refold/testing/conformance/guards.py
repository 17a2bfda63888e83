"""The conformance tests of a guard in one class."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import NoneType
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refold.engine.tools.protocol import Tool
from refold.reducers.events import KINDS, Event, Manifest, kind_of
from refold.reducers.evolution import encode_value
from refold.reducers.folds import decode_snapshot, encode_snapshot
from refold.reducers.guards import BUILTIN, Judgement, Place, Registry
from refold.reducers.parser import parse
from refold.reducers.pending import bare
from refold.reducers.state import NEW
from refold.testing.audits import audit_events
from refold.testing.conformance.hash_seeds import RUNS, digests, digests_elsewhere, task_of
from refold.testing.conformance.traces import (
    Moment,
    Seen,
    long_run,
    moments,
    policy_with_guards,
    verdicts,
    watch,
)
from refold.testing.strategies.driver import MARKER, TOOLS
from refold.testing.strategies.events import events
from refold.testing.strategies.logs import logs, manifest_of
from refold.testing.strategies.policies import policies

_SLACK = 64  # bytes: digits of counts and of the ids of calls
_SCALARS = (str, bytes, int, float, NoneType)  # equal ones need not be the same object
_ROUNDS = 200


class GuardConformance:
    """Tests of the contract of `Guard`. Override `guard`; and `entries`, `tools` and `examples` as needed.

    The tests follow the guard through generated runs, and call its methods after each event: in more states
    than an engine would. Hypothesis's settings apply, except for its deadline.
    """

    def guard(self) -> type[Any]:
        """Return the class of the guard."""
        raise NotImplementedError(f"{type(self).__name__}.guard: return the class of your guard")

    def entries(self) -> Sequence[Mapping[str, Any]]:
        """Return entries of a policy's `guards`: one for each configuration to test.

        By default, the guard without options.
        """
        return [{"guard": self.guard().kind}]

    def tools(self) -> Sequence[Tool | Manifest]:
        """Return the tools of the generated runs. Return those that the entries name."""
        return TOOLS

    def examples(self) -> Iterable[Sequence[Event]]:
        """Return logs that are tested besides the generated ones, such as runs in which the guard acts."""
        return ()

    @property
    def installed(self) -> Registry:
        """Return the built-in guards and this one."""
        return {**BUILTIN, self.guard().kind: self.guard()}

    def test_declarations(self) -> None:
        """The class has a kind, a version, places, and the kinds of events that it observes."""
        guard = self.guard()
        assert isinstance(guard.kind, str), f"kind: expected text, got {guard.kind!r}"
        assert guard.kind, "kind: expected a name, got an empty text"
        assert type(guard.version) is int, f"version: expected a whole number, got {guard.version!r}"
        assert guard.version >= 1, f"version: expected 1 or more, got {guard.version}"
        assert guard.places, "places: none, so the guard never acts"
        strange = [each for each in guard.places if not isinstance(each, Place)]
        assert not strange, f"places: expected members of Place, got {strange}"
        unknown = [str(each) for each in guard.observes if each not in KINDS.values()]
        assert not unknown, f"observes: expected classes of events, got {', '.join(unknown)}"
        assert isinstance(guard.reads_content, bool), (
            f"reads_content: expected a bool, got {guard.reads_content!r}"
        )
        config = getattr(guard, "__struct_config__", None)
        assert config is not None, "the class is not a msgspec.Struct, so a policy cannot configure it"
        assert config.frozen, "the class is not frozen, so a configuration could change during a run"

    def test_configurations(self) -> None:
        """A policy accepts each entry, and records it in a form that gives an equal guard."""
        for entry in self.entries():
            policy = parse({"guards": [dict(entry)]}, self.installed)
            assert policy == parse(msgspec.json.decode(msgspec.json.encode(policy)), self.installed)
            assert self._built(entry) == self._built(entry), f"{entry}: two guards of one entry are not equal"

    def test_it_never_raises(self) -> None:
        """No event of any log makes a method raise, and every verdict is one that the engine knows."""

        def check(guard: Any, log: list[Moment]) -> None:
            own = guard.start()
            for moment in log:
                own, made = _stepped(guard, own, moment)
                for place, each in made:
                    strange = [one for one in each if not isinstance(one, Judgement)]
                    assert not strange, f"{_place(moment)}: judge at {place} returned {strange}, not verdicts"

        self._explore(check)

    def test_events_out_of_order_do_not_raise(self) -> None:
        """A log may begin anywhere: events that nothing led to make no method raise."""

        for entry in self.entries():
            guard = self._built(entry)

            def follow(log: list[Event], guard: Any = guard) -> None:
                own = guard.start()
                for seq, event in enumerate(log, 1):
                    own, _ = _stepped(guard, own, Moment(seq, event, NEW))

            _given(st.lists(events(), max_size=8), follow)

    def test_its_verdicts_can_be_applied(self) -> None:
        """No verdict ends a run with `guard_failed`: each text exists, and each stop can end the run."""

        def check(_guard: Any, log: list[Moment]) -> None:
            for moment in log:
                failed = getattr(moment.event, "code", None) == "guard_failed"
                assert not failed, (
                    f"{_place(moment)}: the guard failed. It raised, or returned a verdict with an unknown `text` "
                    "or with a `trigger` that has no move from there"
                )

        self._explore(check)

    def test_it_is_pure(self) -> None:
        """The same events give the same states and verdicts, and no argument is changed."""

        def check(guard: Any, log: list[Moment]) -> None:
            own = guard.start()
            for moment, first, again in zip(log, watch(guard, log), watch(guard, log), strict=True):
                assert first == again, (
                    f"{_place(moment)}: two guards differ after equal events: {first} and {again}"
                )
                before = encode_value(own)
                after = guard.observe(own, moment.event) if type(moment.event) in guard.observes else own
                verdicts(guard, after, moment.state)
                assert before == encode_value(own), f"{_place(moment)}: observe changed its argument `own`"
                assert first.own == encode_value(after), f"{_place(moment)}: judge changed its argument `own`"
                own = after

        self._explore(check)

    def test_processes_agree(self) -> None:
        """Processes with other hash seeds decide the same: no decision depends on the order of a set."""
        entries = [dict(entry) for entry in self.entries()]
        task = task_of(self.guard(), entries, self._manifests())
        both = zip(digests(task, self.guard()), digests_elsewhere(task), strict=True)
        for run, (here, elsewhere) in enumerate(both):
            assert here == elsewhere, (
                f"{entries[run // RUNS]}, run {run % RUNS}: its decisions or its state differ between processes with "
                "other hash seeds; sort sets before you iterate over them, and use no hash()"
            )

    def test_unchanged_state_is_the_same_object(self) -> None:
        """An event that changes nothing returns the very state that was passed in."""

        def check(guard: Any, log: list[Moment]) -> None:
            own = guard.start()
            for moment in log:
                if type(moment.event) in guard.observes:
                    after = guard.observe(own, moment.event)
                    same = (
                        after is own or isinstance(own, _SCALARS) or encode_value(after) != encode_value(own)
                    )
                    assert same, f"{_place(moment)}: observe returned an equal copy of `own`; return `own`"
                    own = after

        self._explore(check)

    def test_its_state_survives_a_snapshot(self) -> None:
        """A state that is encoded and decoded is equal, so a run continues from a snapshot as before."""

        def check(_guard: Any, log: list[Moment]) -> None:
            for moment in log[:: max(1, len(log) // 5)]:
                stored = encode_snapshot(moment.state)
                own = {watch.name: watch.own for watch in moment.state.guards}
                assert stored is not None, f"{_place(moment)}: the type of `start()` does not encode {own}"
                assert decode_snapshot(stored, self.installed) == moment.state, (
                    f"{_place(moment)}: {own} differs"
                )

        self._explore(check)

    def test_its_state_is_bounded(self) -> None:
        """A run twice as long does not make the state larger."""
        log = moments(long_run(self._manifests(), _ROUNDS), self.installed)
        for entry in self.entries():
            sizes = [len(seen.own) for seen in watch(self._built(entry), log)]
            half = max(sizes[: len(sizes) // 2])
            assert max(sizes) <= half + _SLACK, (
                f"{entry}: the state has at most {half} bytes in the first {_ROUNDS // 2} rounds of calls, and then "
                f"{max(sizes)}; keep the latest events only, or counts"
            )

    def test_payload_that_is_not_declared_is_not_read(self) -> None:
        """Without the payload of events that it does not declare to read, it decides the same."""

        def check(guard: Any, log: list[Moment]) -> None:
            unread = getattr(guard, "content_unread", ()) if guard.reads_content else guard.observes
            own = guard.start()
            for moment, seen in zip(log, watch(guard, log), strict=True):
                erased = bare(moment.event) if type(moment.event) in unread else moment.event
                own, made = _stepped(guard, own, moment._replace(event=erased))
                assert seen == Seen(encode_value(own), made), (
                    f"{_place(moment)}: the guard depends on an erased payload; declare `reads_content = True`, and "
                    "list in `content_unread` only events whose payload it does not read"
                )

        self._explore(check)

    def test_no_payload_is_recorded(self) -> None:
        """No verdict has text of a model, a tool or a user: verdicts are recorded, and outlive an erasure."""

        def check(guard: Any, log: list[Moment]) -> None:
            for moment, seen in zip(log, watch(guard, log), strict=True):
                for place, made in seen.verdicts:
                    text = encode_value([msgspec.to_builtins(each) for each in made]).decode()
                    assert MARKER not in text, (
                        f"{_place(moment)}: a verdict at {place} has text of a payload: {text}"
                    )

        self._explore(check, examples=False)

    def test_its_runs_audit_clean(self) -> None:
        """An audit derives every decision of its runs again."""

        def check(_guard: Any, log: list[Moment]) -> None:
            found = audit_events([moment.event for moment in log], self.installed)
            assert found.clean, f"the audit found {found.differences} differences: {found.findings[:3]}"

        self._explore(check)

    def _explore(self, check: Callable[[Any, list[Moment]], None], *, examples: bool = True) -> None:
        """Check generated runs, and the examples, for each entry."""
        for entry in self.entries():
            empty: st.SearchStrategy[dict[str, Any]] = st.just({})
            policy = st.builds(
                policy_with_guards, empty | policies(), st.just([entry]), st.just(self.installed)
            )

            def follow(log: Sequence[Event], entry: Mapping[str, Any] = entry) -> None:
                check(self._built(entry), moments(log, self.installed))

            for log in self.examples() if examples else ():
                follow(log)
            _given(logs(policy, tools=self._manifests(), guards=self.installed), follow)

    def _built(self, entry: Mapping[str, Any]) -> Any:
        return msgspec.convert(dict(entry), self.guard())

    def _manifests(self) -> list[Manifest]:
        return [manifest_of(tool, f"tools[{place}]") for place, tool in enumerate(self.tools())]


def _given(strategy: st.SearchStrategy[Any], check: Callable[[Any], None]) -> None:
    """Check examples of a strategy, under the profile that is in force."""

    @settings(
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.nested_given],
    )
    @given(drawn=strategy)
    def explore(drawn: Any) -> None:
        check(drawn)

    explore()


def _place(moment: Moment) -> str:
    return f"event {moment.seq} ({kind_of(moment.event)})"


def _stepped(guard: Any, own: Any, moment: Moment) -> tuple[Any, Any]:
    """Return the guard's state after a moment, and its verdicts. Raises `AssertionError` if it raises."""
    method = "observe"
    try:
        if type(moment.event) in guard.observes:
            own = guard.observe(own, moment.event)
        method = "judge"
        return own, verdicts(guard, own, moment.state)
    except Exception as error:
        raise AssertionError(
            f"{_place(moment)}: {method} raised {error!r}; a guard never raises: return `own`, or no verdict"
        ) from error
