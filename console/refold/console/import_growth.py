"""A session that went on since it was imported: the same run, if all that stands in its log is what the file gives again."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress

from refold.console.conversations import Conversations
from refold.console.imported_logs import ImportedLog
from refold.engine import clock
from refold.reducers import codec
from refold.reducers.errors import CannotJudge, Damaged
from refold.replay.importers.formats import Candidate, importer
from refold.replay.importers.source import Source
from refold.replay.importers.transcript import Transcript, TranscriptRun
from refold.replay.verification import verify
from refold.store.protocol import Store


class Growth:
    """Which runs of a file go on from one that is there, by their keys. The file is read for it once, where one could."""

    def __init__(
        self,
        store: Store,
        known: Conversations,
        found: Candidate,
        reopened: Callable[[], AbstractContextManager[Source]],
    ) -> None:
        self._store, self._known, self._found, self._reopened = store, known, found, reopened
        self._runs: dict[str, str] | None = None
        self._heads: dict[str, int] = {}

    async def of(self, reading: TranscriptRun) -> str:
        """The run that is there and goes on in this one; "" if there is none, or it is not known to be the same."""
        if (await self._store.head(reading.run)).seq or not await self._beside(reading):
            return ""
        if self._runs is None:
            with self._reopened() as source:
                again = Transcript(source, importer(self._found.format))
                # Of a file that is not any more what it was as far as it reached, the next import tells.
                steady = again.sha256 == reading.origin.sha256
                self._runs = {run.key: await self._followed(run) for run in again.runs() if steady}
        return self._runs.get(reading.key, "")

    async def overtaken(self, reading: TranscriptRun, log: ImportedLog, beside: Sequence[str]) -> bool:
        """Whether another import wrote since `log` was found to go on, or since `beside` were the newest runs: then all is asked anew."""
        await self._known.look_again(reading.format)
        seen = self._heads.get(log.run, 0) == len(log.marks) and beside == await self._known.of(
            reading.format, reading.key, log.run
        )
        self._runs = self._runs if seen else None
        return not seen

    async def _followed(self, reading: TranscriptRun) -> str:
        """As `of`. All of it is derived, for its calls may have begun runs behind it; under the id that it will have."""
        own, log = reading.run, await self._log(reading)
        # The ends that its source came to before stand in no file any more: only the chain tells that nobody edited them.
        reading.begun_by = await self._known.kept(reading, log.parent) if log else None
        if log is not None and _tells(reading, log) and (await verify(self._store, log.run)).problem is None:
            self._heads[log.run] = len(log.marks)
            return log.run
        if log is None:
            for _ in reading.derive(clock.new_salts(None)):
                pass
        reading.run, reading.begun_by = own, None
        return ""

    async def _beside(self, reading: TranscriptRun) -> Sequence[str]:
        """The newest runs of this conversation."""
        return await self._known.of(reading.format, reading.key, reading.run)

    async def _log(self, reading: TranscriptRun) -> ImportedLog | None:
        """The log that came to an end with just this file; else the newest, if something may go on behind it."""
        if (await self._store.head(reading.run)).seq:
            return None
        newest: ImportedLog | None = None
        for place, run in enumerate(await self._beside(reading)):
            with suppress(CannotJudge, Damaged):
                log = await ImportedLog.read(self._store, run, grown=True)
                if reading.origin.sha256 in log.files:
                    return log
                newest = log if not place and log.ends and not log.closed else newest
        return newest


def _tells(reading: TranscriptRun, log: ImportedLog) -> bool:
    """Whether the file gives every event of this log again: to its end, or to one that its source came to before.

    Of a log that is closed only the latter: nothing can follow what its source said last.
    """
    chance, seq, same = clock.new_salts(None), 0, True

    def salt(seq: int) -> bytes:
        return (log.salts[seq - 1] if seq <= len(log.salts) else b"") or chance(seq)

    for group in reading.derive(salt, log.run, log.between):
        for each in group:
            seq = each.seq
            if same and seq <= len(log.marks):
                same = log.same(each, codec.encode(each.event))
    return same and (seq in log.ends or (seq >= len(log.marks) and not log.closed))
