"""Certificates: the result of a bulk audit as a signed, machine-readable document.

The byte format is specified in docs/reference/certificates.md.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from refold.reducers.errors import Damaged, Inconclusive, WrongUse
from refold.reducers.guards import BUILTIN, Registry
from refold.reducers.rules import RULES
from refold.replay import figures
from refold.replay.bulk import AuditedRun, RunFinding, Totals
from refold.replay.verification import verify
from refold.store.files import SigningKey
from refold.store.protocol import Head, Store, UnknownRun
from refold.store.seals import MerkleTree, breakage, leaves_of
from refold.store.verify_bundle import framed, verify_signature

FORMAT = "refold audit certificate v1"
THESE_LOGS = "that your store has these logs: compare it with --store"
NO_OTHERS = "that there were no other runs, and no events after the audited ones"
_BEGINS = re.compile(rb'\s*\{\s*"certificate"')
_ENCODER = msgspec.json.Encoder(order="deterministic")


class BadCertificate(Damaged):
    """A certificate that was altered after signing, or whose signer is not one of the given keys."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path, self.problem = path, problem

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


class UnsignedCertificate(Inconclusive):
    """A certificate without a signature, although a key was given to check it."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: the certificate is not signed: anyone could have written it"


class CertifiedRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run whose log was read to its end: the number and the hash (hex) of its last event."""

    run: str
    events: int
    head: str


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """An audit of many runs.

    `refold` is the version that made it, `rules` its newest decision rules. `runs` are those whose log was
    read to the end, ordered by id; `heads` is the root of a tree over their log heads, hex, as in the last
    entry of a signed checkpoint, and `logs` counts them. `guards` are the installed guards by kind and
    version; `at` is nanoseconds since 1970.
    """

    format: str = FORMAT
    refold: str
    rules: int = RULES
    guards: dict[str, int]
    at: int
    logs: int
    heads: str
    runs: tuple[CertifiedRun, ...]
    totals: Totals

    @property
    def clean(self) -> bool:
        """Whether every decision of every run could be derived again with the same result."""
        totals = self.totals
        return not (totals.differing or totals.unjudged or totals.damaged or totals.unchecked)


class _Document(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    certificate: msgspec.Raw
    key: str = ""
    signature: str = ""


class Heads:
    """The log heads of completely audited runs, and the root over them."""

    def __init__(self) -> None:
        self._heads: dict[str, Head] = {}
        self._twice: set[str] = set()

    def add(self, judged: Iterable[AuditedRun]) -> None:
        """Add the heads of these runs."""
        for each in judged:
            if each.audit is not None and not each.audit.damaged:
                head = Head(seq=each.audit.events, hash=bytes.fromhex(each.head))
                if self._heads.setdefault(each.run, head) != head:
                    self._twice.add(each.run)

    def certified(self) -> tuple[tuple[CertifiedRun, ...], str]:
        """Return the runs ordered by id, and the root of the tree over their heads, hex.

        Raises `WrongUse` for a run that was added with different heads.
        """
        if self._twice:
            raise WrongUse(
                f"run {min(self._twice)} is in two files with different logs: certify the files one by one"
            )
        runs = tuple(
            CertifiedRun(run=run, events=head.seq, head=head.hash.hex())
            for run, head in sorted(self._heads.items())
        )
        return runs, _root(self._heads)


def _root(heads: Mapping[str, Head]) -> str:
    tree = MerkleTree()
    for leaf in leaves_of(heads):
        tree.add(leaf)
    return tree.root().hex()


def format_certificate(certificate: Certificate, key: SigningKey | None) -> bytes:
    """Return the certificate as a JSON document, signed if there is a key."""
    text = _ENCODER.encode(certificate)
    document = _Document(certificate=msgspec.Raw(text))
    if key is not None:
        signature = key.sign(_message(text))
        document = _Document(certificate=msgspec.Raw(text), key=key.public.hex(), signature=signature.hex())
    return msgspec.json.encode(document) + b"\n"


def is_certificate(head: bytes) -> bool:
    """Return whether the file starts like a certificate."""
    return _BEGINS.match(head) is not None


def read(path: str, data: bytes, keys: Iterable[bytes]) -> tuple[Certificate, str]:
    """Read a certificate and return it with the key that signed it, hex ("" if no key was given).

    Raises `WrongUse` if it is not a certificate, `BadCertificate` for an invalid signature, and
    `UnsignedCertificate` if a key is given but there is no signature.
    """
    try:
        document = msgspec.json.decode(data, type=_Document)
        text = bytes(document.certificate)
        certificate = msgspec.json.decode(text, type=Certificate)
        heads = {each.run: Head(seq=each.events, hash=bytes.fromhex(each.head)) for each in certificate.runs}
        key, signature = bytes.fromhex(document.key), bytes.fromhex(document.signature)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WrongUse(f"{path}: not an audit certificate: {error}") from error
    if certificate.format != FORMAT:
        raise WrongUse(f"{path}: certificate of format {certificate.format!r:.60}, expected {FORMAT!r}")
    if (certificate.logs, certificate.heads) != (len(heads), _root(heads)):
        raise BadCertificate(path, "its root does not match the runs that it lists: it was changed")
    _check_signature(path, text, key, signature, list(keys))
    return certificate, document.key


def _check_signature(path: str, text: bytes, key: bytes, signature: bytes, wanted: Sequence[bytes]) -> None:
    if signature and not (len(key) == 32 and verify_signature(key, _message(text), signature)):
        raise BadCertificate(path, "its signature does not match its contents: it was changed")
    if key and not signature:
        raise BadCertificate(path, "it names a key, but has no signature: anyone could have written it")
    if wanted and not signature:
        raise UnsignedCertificate(path)
    if wanted and key not in wanted:
        raise BadCertificate(path, "it is signed by a key that was not given")


class ComparedStore(msgspec.Struct, frozen=True, kw_only=True):
    """A store compared with a certificate of its runs.

    `same` runs have the audited log, `grown` ones have more events after it. `differing` runs have another
    log, a damaged one or none; `unjudged` ones are inconclusive. `others` are runs that the certificate does
    not list.
    """

    store: str
    same: int
    grown: tuple[RunFinding, ...] = ()
    differing: tuple[RunFinding, ...] = ()
    unjudged: tuple[RunFinding, ...] = ()
    others: int = 0


async def compare(
    certificate: Certificate, store: Store, path: str, registry: Registry = BUILTIN
) -> ComparedStore:
    """Verify each certified run in `store` from its first to its last event, and compare its log head."""
    found: dict[str, list[RunFinding]] = {"same": [], "grown": [], "differing": [], "unjudged": []}
    for each in certificate.runs:
        how, why = await _compare(each, store, registry)
        found[how].append(RunFinding(each.run, why))
    named = {each.run for each in certificate.runs}
    others = 0
    async for chunk in store.runs():
        others += sum(head.seq > 0 and run not in named for run, head in chunk)
    lists = {how: tuple(runs) for how, runs in found.items() if how != "same"}
    return ComparedStore(store=path, same=len(found["same"]), others=others, **lists)


async def _compare(audited: CertifiedRun, store: Store, registry: Registry) -> tuple[str, str]:
    try:
        log = await verify(store, audited.run, registry)
        head = Head(seq=log.events, hash=bytes.fromhex(log.hash))
        wanted = Head(seq=audited.events, hash=bytes.fromhex(audited.head))
        broken = await breakage(store, audited.run, head, wanted)
    except UnknownRun:
        return "differing", "the store does not have this run"
    except Damaged as error:
        return "differing", str(error)
    except Inconclusive as error:
        return "unjudged", str(error)
    if log.problem is not None and not log.unjudged:
        return "differing", f"event {log.problem.seq}: {log.problem.problem}"
    if not log.whole:
        return "unjudged", log.problem.problem if log.problem else log.unweighable
    if broken is not None:
        return (
            "differing",
            f"event {audited.events} was audited with the hash {audited.head}; {broken.problem}",
        )
    more = log.events - audited.events
    return ("grown", f"{figures.quantity(more, 'event')} since, not audited") if more else ("same", "")


def _message(text: bytes) -> bytes:
    return framed(FORMAT.encode()) + framed(text)
