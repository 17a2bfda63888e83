"""Writing a bundle: runs of a store in one zip for offline verification. Format: docs/reference/bundles.md.

The same runs under the same seal give the same bytes (if zlib compresses alike): members have no time, a
fixed order, and no data of the machine. Runs that are not intact are not packed.
"""

import json
import os
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import msgspec

from refold.reducers.errors import DamagedLog, WrongUse
from refold.store import verify_bundle
from refold.store.chain import START, check
from refold.store.files import write_atomically
from refold.store.protocol import Head, Origin, Seal, SealedHead, Store, Stored, UnknownRun
from refold.store.seals import DamagedSeals, Prover, last_seal, leaf_of, leaves_of, same_head
from refold.store.verify_bundle import (
    FORMAT,
    MOST_BYTES,
    MOST_JSON,
    MOST_LINE,
    MOST_RUNS,
    NEWEST,
    UNNAMED,
    UnexplainedErasures,
    child_differs,
    ended_child,
)

README = """This is a bundle of runs of LLM agents, recorded by refold.

manifest.json   the runs, the number of events in each, and the SHA-256 of every file in this bundle
runs/*.jsonl    one run per file, one event per line; `body` and `content` are JSON text as recorded. A run that
                begins with run_forked continues the run in this bundle that it names
seals.json      optional: a signed checkpoint over the store's log of heads, and proofs that it covers these runs
verify.py       verifies the bundle: python verify.py BUNDLE --key FILE.pub
                It needs Python 3.9 or newer. If you do not trust the sender of this bundle, take verify.py from
                refold's sources, and the public key from another source.

If `content` is null and there is a digest, the payload was erased. A later event of kind content_erased names
the author and the reason. The hash chain remains valid.
"""

WHOLE = "only intact logs can be packed"


class Packed(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `pack`. `sha256` is that of the complete file, in hex; a seal covers `sealed` of the runs."""

    path: str
    runs: int
    events: int
    sealed: int
    size: int
    sha256: str


class _Proof(msgspec.Struct, frozen=True):
    head: Head
    index: int
    path: Sequence[bytes]


class _Proofs(msgspec.Struct, frozen=True):
    """A seal, the proof of its last entry (over the newest head of each run), and a proof for each run."""

    seal: Seal
    newest: _Proof
    runs: dict[str, _Proof]


def _check_end(run: str, head: Head, sealed: Head | None, bare: UnexplainedErasures) -> None:
    if not head.seq:
        raise UnknownRun(run)
    if sealed is not None and head.seq < sealed.seq:
        raise DamagedLog(run, sealed.seq, f"it was sealed, but the log ends at event {head.seq}")
    if bare.first is not None:
        raise DamagedLog(run, bare.first[0], f"{UNNAMED}; {WHOLE}")


class _PackedFile(msgspec.Struct, frozen=True):
    """A member of the zip, as the manifest lists it."""

    name: str
    size: int
    sha256: str


async def pack(store: Store, runs: Collection[str], path: Path) -> Packed:
    """Write a bundle of these runs and the ancestors of forks, with complete logs. A failure leaves no file.

    Raises `WrongUse` if `path` exists or the runs are too many or too large; `DamagedLog` and `DamagedSeals`
    if a log or the log of heads is damaged; `UnknownRun`; `ExternalFailure`.
    """
    await store.check()
    origins = await _origins(store, runs)
    chosen = sorted(origins, key=lambda run: (len(origins[run]), run))  # a fork after its parent
    if not 0 < len(chosen) <= MOST_RUNS:
        raise WrongUse(f"{len(chosen)} runs: a bundle can hold 1 to {MOST_RUNS}")
    seal = await last_seal(store)
    proofs = await _proofs(store, seal, chosen) if seal else None
    proven = proofs.runs if proofs else {}
    with write_atomically(path) as partial:
        with partial.open("wb") as file:
            with closing(_Writer(file)) as writer:
                writer.add_first()
                heads = {
                    run: await writer.add_run(store, run, proven.get(run), origins[run]) for run in chosen
                }
                await _check_children(store, writer.ended, heads)
                writer.add_rest(heads, proofs)
            file.flush()
            os.fsync(file.fileno())
        size, digest = _measure(partial)
    events = sum(head.seq - (origins[run][-1].seq if origins[run] else 0) for run, head in heads.items())
    return Packed(
        path=str(path), runs=len(chosen), events=events, sealed=len(proven), size=size, sha256=digest
    )


async def _origins(store: Store, runs: Collection[str]) -> dict[str, Sequence[Origin]]:
    """Return the runs and all their ancestors, which a check of a fork needs, each with its lineage."""
    found = dict[str, Sequence[Origin]]()
    for run in runs:
        lineage = await store.lineage(run)
        found |= {origin.run: lineage[:place] for place, origin in enumerate(lineage)} | {run: lineage}
    return found


async def _proofs(store: Store, seal: Seal, runs: Collection[str]) -> _Proofs:
    """Return proofs of the newest sealed head of each run: its path to the root in the seal's last entry, and
    the path of that entry to the seal's root.
    """
    log, newest = Prover([seal.size - 1]), dict[str, Head]()
    last: tuple[str, Head] = "", START
    async for entry in _entries(store, seal.size):
        log.add(leaf_of(entry))
        last = entry.run, entry
        if entry.run != NEWEST:
            newest[entry.run] = entry
    places = {run: n for n, run in enumerate(sorted(newest)) if run in runs}
    tree = Prover(places.values())
    for leaf in leaves_of(newest):
        tree.add(leaf)
    over = Head(seq=tree.size, hash=tree.finish())
    if log.size != seal.size or log.finish() != seal.root:
        raise DamagedSeals("its entries differ from those that were last signed; see `refold verify`")
    if last[0] != NEWEST or not same_head(last[1], over):
        raise DamagedSeals(
            f"its last entry, {log.size}, does not cover the newest head of each run; see `refold verify`"
        )
    proofs = {run: _Proof(newest[run], n, tree.paths[n]) for run, n in places.items()}
    return _Proofs(seal, _Proof(over, seal.size - 1, log.paths[seal.size - 1]), proofs)


async def _check_children(store: Store, ended: Sequence[Stored], runs: Collection[str]) -> None:
    """Check packed children against the heads that their parents recorded when they ended.

    Raises `DamagedLog`.
    """
    for stored in ended:
        child, seq, hashed = ended_child(stored.body)
        if child in runs and [hashed] != [
            each.hash.hex() for each in await store.read_some(child, [seq], checked=False)
        ]:
            raise _damage(stored, child_differs(child, seq))


async def _entries(store: Store, size: int) -> AsyncIterator[SealedHead]:
    async for chunk in store.sealed_heads():
        for entry in chunk:
            if entry.place > size:
                return
            yield entry


class _Writer:
    """The zip being written."""

    def __init__(self, file: BinaryIO) -> None:
        # The reader does not support zip64.
        self._zip = ZipFile(file, "w", ZIP_DEFLATED, allowZip64=False)
        self._members: list[_PackedFile] = []
        self.ended: list[Stored] = []

    def add_first(self) -> None:
        """Write the verifier, by which even a damaged file is recognised as a bundle, and the README."""
        self._add("verify.py", Path(verify_bundle.__file__).read_bytes())
        self._add("README.txt", README.encode())

    def close(self) -> None:
        """Write the zip's directory."""
        self._zip.close()

    async def add_run(
        self, store: Store, run: str, proof: _Proof | None, lineage: Sequence[Origin] = ()
    ) -> Head:
        """Check and write a run's own events. Return its head."""
        name, hashed, size = f"runs/{len(self._members) - 1:06}.jsonl", sha256(), 0
        sealed, bare = proof.head if proof else None, UnexplainedErasures()
        head: Head = lineage[-1] if lineage else START
        with self._zip.open(_info(name), "w") as member:
            async for chunk in store.read(run, head.seq, checked=False):
                for stored in chunk:
                    data = _line(stored, head, sealed)
                    hashed.update(data)
                    size += len(data)
                    if size > MOST_BYTES:
                        raise WrongUse(
                            f"run {run}: has more than {MOST_BYTES} bytes, the maximum in a bundle"
                        )
                    member.write(data)
                    if stored.kind == "child_ended":
                        self.ended.append(stored)
                    bare.take(stored.seq, stored.kind, stored.body, bare=stored.erased)
                    head = stored
        _check_end(run, head, sealed, bare)
        self._members.append(_PackedFile(name, size, hashed.hexdigest()))
        return head

    def add_rest(self, heads: dict[str, Head], proofs: _Proofs | None) -> None:
        """Write the seal and the manifest of all members."""
        runs = [
            {"run": run, "member": f"runs/{n:06}.jsonl", "events": head.seq, "head": head.hash}
            for n, (run, head) in enumerate(heads.items(), 1)
        ]
        if proofs is not None:
            self._add("seals.json", _json(_seals(proofs)))
        members = [msgspec.to_builtins(each) for each in self._members]
        self._add("manifest.json", _json({"format": FORMAT, "members": members, "runs": runs}))

    def _add(self, name: str, data: bytes) -> None:
        if len(data) > MOST_JSON.get(name, MOST_BYTES):
            raise WrongUse(
                f"{name} would have {len(data)} bytes, more than a bundle can hold: pack fewer runs"
            )
        self._zip.writestr(_info(name), data)
        self._members.append(_PackedFile(name, len(data), sha256(data).hexdigest()))


def _info(name: str) -> ZipInfo:
    info = ZipInfo(name)  # with the date 1980-01-01, the earliest in a zip
    info.compress_type, info.create_system, info.external_attr = ZIP_DEFLATED, 3, 0o100644 << 16
    return info


def _line(stored: Stored, before: Head, sealed: Head | None) -> bytes:
    problem = check(stored, before)
    if problem is None and sealed and stored.seq == sealed.seq and stored.hash != sealed.hash:
        problem = "its hash differs from the sealed one"
    if problem is not None:
        raise _damage(stored, problem)
    try:
        body, content = stored.body.decode(), None if stored.content is None else stored.content.decode()
    except UnicodeDecodeError as error:
        raise _damage(stored, "its text is not UTF-8") from error
    head = {"seq": stored.seq, "at": stored.at, "kind": stored.kind, "hash": stored.hash}
    said = {"digest": stored.content_digest, "salt": stored.salt, "body": body, "content": content}
    data = (
        json.dumps(head | said, ensure_ascii=False, separators=(",", ":"), default=bytes.hex).encode() + b"\n"
    )
    if len(data) > MOST_LINE:
        raise WrongUse(
            f"run {stored.run} event {stored.seq}: has {len(data)} bytes; a bundle allows at most {MOST_LINE}"
        )
    return data


def _damage(stored: Stored, problem: str) -> DamagedLog:
    return DamagedLog(stored.run, stored.seq, f"{problem}; {WHOLE}")


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=1, default=bytes.hex).encode() + b"\n"


def _seals(proofs: _Proofs) -> dict[str, object]:
    newest, seal = proofs.newest, msgspec.to_builtins(proofs.seal, builtin_types=(bytes,))
    last = {"runs": newest.head.seq, "root": newest.head.hash, "path": newest.path}
    runs = [
        {"run": run, "seq": each.head.seq, "hash": each.head.hash, "index": each.index, "path": each.path}
        for run, each in proofs.runs.items()
    ]
    return {"seal": seal, "newest": last, "runs": runs}


def _measure(path: Path) -> tuple[int, str]:
    hashed, size = sha256(), path.stat().st_size
    if size > MOST_BYTES:
        raise WrongUse(f"the bundle would have {size} bytes, more than {MOST_BYTES}: pack fewer runs")
    with path.open("rb") as file:
        while piece := file.read(2**20):
            hashed.update(piece)
    return size, hashed.hexdigest()
