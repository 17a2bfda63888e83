"""The one small hierarchy of errors, split by what a caller would do next.

`WrongUse`: mend the call or the input. `Damaged`: the log is not what was written; investigate.
`WorldFailed`: disk, network or provider; try again later. `CannotJudge`: nothing is wrong that we
can name, but there is not enough evidence to say more. The console turns each into its exit code.
"""


class RefoldError(Exception):
    """Base of every error that refold raises on purpose."""

    exit_code = 1


class WrongUse(RefoldError):
    """The caller's mistake: an input that cannot work. Nothing was changed."""

    exit_code = 2


class Damaged(RefoldError):
    """A log that is not whole, was edited, or breaks the rules of the machine."""

    exit_code = 3


class WorldFailed(RefoldError):
    """Disk, network or provider failed. What was recorded stays recorded."""

    exit_code = 4


class CannotJudge(RefoldError):
    """The evidence does not suffice: written by a newer refold, or erased."""

    exit_code = 125


class DamagedLog(Damaged):
    """An event that cannot stand where it stands.

    `seq` is the event's number in the run, from 1; `problem` is one sentence.
    """

    def __init__(self, run: str, seq: int, problem: str) -> None:
        super().__init__(run, seq, problem)
        self.run, self.seq, self.problem = run, seq, problem

    def __str__(self) -> str:
        return f"run {self.run or '?'} event {self.seq}: {self.problem}"


class NewerLog(CannotJudge):
    """An event that this version does not know: the log was written by a newer refold."""

    def __init__(self, run: str, seq: int, problem: str) -> None:
        super().__init__(run, seq, problem)
        self.run, self.seq, self.problem = run, seq, problem

    def __str__(self) -> str:
        return (
            f"run {self.run or '?'} event {self.seq}: {self.problem}: written by a newer refold; "
            "install that version to read it"
        )


class UnreleasedLog(CannotJudge):
    """A log in a shape that no released version wrote, or reads."""

    def __init__(self, run: str, seq: int) -> None:
        super().__init__(run, seq)
        self.run, self.seq = run, seq

    def __str__(self) -> str:
        return (
            f"run {self.run or '?'} event {self.seq}: its log says no format: it was made by an unreleased version of "
            "refold, and no released one reads it"
        )


class MissingFact(CannotJudge):
    """A replay was asked for something that its log does not hold. It never asks the world instead."""

    def __init__(self, run: str, what: str) -> None:
        super().__init__(run, what)
        self.run, self.what = run, what

    def __str__(self) -> str:
        return f"run {self.run}: {self.what}; a replay answers from the log only"


class IllegalMove(Damaged):
    """A transition that the machine's table does not have, live or in replay."""

    def __init__(self, source: str, trigger: str, target: str | None = None) -> None:
        super().__init__(source, trigger, target)
        self.source, self.trigger, self.target = source, trigger, target

    def __str__(self) -> str:
        to = f" to {self.target}" if self.target else ""
        return f"the machine has no move {str(self.trigger)!r} from {self.source}{to}"


class UnexpectedEvent(Damaged):
    """An event that the state has no place for: nothing asked for it."""

    def __init__(self, kind: str, problem: str) -> None:
        super().__init__(kind, problem)
        self.kind, self.problem = kind, problem

    def __str__(self) -> str:
        return f"unexpected {self.kind}: {self.problem}"


class PolicyError(WrongUse):
    """A policy that cannot work. `path` names the place, as in `limits[2].value`."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path, self.problem = path, problem

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}" if self.path else self.problem


class NoSuchEntry(PolicyError):
    """A change to a limit, guard or pass that this policy does not have; another policy may."""
