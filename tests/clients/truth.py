"""The truth about a run: each request that the model server received, and its reply."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from clients.offers import SUBMISSION
from clients.scripts import Failure
from clients.wires import WIRES
from clients.wires.protocol import Reply, ScriptedCall
from refold.reducers.messages import Message
from refold.reducers.vocabulary import Role

Agent = Literal["main", "sub", "compaction", "aside"]
"""The sender of a request. `aside`: a request without tools, for example for a title."""

End = Literal["finished", "cancelled", "error", "open"]


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One request and what the server did with it; `turn` counts those of its agent from 1.

    `reply` is what the server meant to answer; of a `broken` one only a part arrived.
    """

    number: int
    wire: str
    agent: Agent
    turn: int
    status: int
    broken: bool
    streamed: bool
    reply: Reply | None
    failure: Failure | None
    body: msgspec.Raw

    @property
    def place(self) -> str:
        """Its position in the script, for example `main 3`."""
        return f"{self.agent} {self.turn}"

    @property
    def failed(self) -> bool:
        """Whether the client got no whole answer."""
        return self.reply is None or self.broken

    def messages(self) -> list[Message]:
        """The messages that were sent."""
        wire = next(wire for wire in WIRES if wire.name == self.wire)
        body: dict[str, Any] = msgspec.json.decode(self.body)
        return wire.messages(body)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of the client's processes and of the work folder.

    `codes` are their exit codes; `happened`: by the script's turn, from 1, whether the work folder shows its
    operation.
    """

    client: str
    script: str
    version: str
    format: str
    codes: tuple[int, ...]
    seconds: tuple[float, ...]
    timed_out: bool = False
    interrupted: bool = False
    happened: dict[int, bool] = {}


class Truth(msgspec.Struct, frozen=True):
    """A run of a client: its exchanges in order, and its outcome."""

    exchanges: tuple[Exchange, ...]
    outcome: Outcome

    def asked(self) -> Iterator[Exchange]:
        """The exchanges of agents, without a client's asides."""
        return (exchange for exchange in self.exchanges if exchange.agent != "aside")

    def answers(self) -> list[tuple[Exchange, Reply]]:
        """The whole answers that agents got."""
        return [(each, each.reply) for each in self.asked() if each.reply is not None and not each.broken]

    def results(self) -> dict[str, str]:
        """The first result that the model received for each call, by the call's id."""
        found: dict[str, str] = {}
        for exchange in self.exchanges:
            for message in exchange.messages():
                if message.role == Role.TOOL and message.call:
                    found.setdefault(message.call, message.text)
        return found

    def fails(self, exchange: Exchange, call: ScriptedCall) -> bool:
        """Whether a call of an exchange's reply failed."""
        return not self.outcome.happened[exchange.turn] if call.fails is None else call.fails

    def end(self) -> End:
        """How the run ended, according to the server and to the outcome."""
        last = next((each for each in reversed(self.exchanges) if each.agent == "main"), None)
        if last is None or last.reply is None or last.broken:
            return "error"
        if is_last(last.reply):  # a client may ignore the interrupt
            return "finished"
        return "cancelled" if self.outcome.interrupted else "open"


def is_last(reply: Reply) -> bool:
    """Whether an answer ends a turn: it has no calls, or only the call that submits."""
    return all(SUBMISSION in call.arguments for call in reply.calls)


def read_truth(folder: Path) -> Truth:
    """The truth that a run left in its folder.

    Raises FileNotFoundError, msgspec.DecodeError.
    """
    rows: Sequence[bytes] = (folder / "truth.jsonl").read_bytes().splitlines()
    exchanges = tuple(msgspec.json.decode(row, type=Exchange) for row in rows)
    return Truth(exchanges, msgspec.json.decode((folder / "outcome.json").read_bytes(), type=Outcome))
