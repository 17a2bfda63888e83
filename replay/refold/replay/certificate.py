"""What an audit in bulk found, as a document for machines that can be signed and checked. Its bytes:
docs/reference/certificates.md.
"""

import re
from collections.abc import Iterable

import msgspec

from refold.reducers.errors import CannotJudge, Damaged, WrongUse
from refold.reducers.rules import RULES
from refold.replay.bulk import Judged, Totals
from refold.store.keys import SigningKey
from refold.store.merkle import MerkleTree
from refold.store.protocol import Head
from refold.store.seals import leaves_of
from refold.store.verify_bundle import framed, signed

FORMAT = "refold audit certificate v1"
_BEGINS = re.compile(rb'\s*\{\s*"certificate"')
_ENCODER = msgspec.json.Encoder(order="deterministic")


class BadCertificate(Damaged):
    """A certificate that is not what was signed, or is signed by nobody who was named."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path, self.problem = path, problem

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


class Unsigned(CannotJudge):
    """A certificate without a signature that was to be held against a key."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: is not signed: anybody could have written it"


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """An audit of many runs. `refold` is the version that made it, `rules` the newest decision rules it has.

    `heads` is the root of a tree over the heads of all runs whose log was followed to its end, hex, as the last entry of a seal
    has it; `logs` counts them. `guards` are what was installed, by kind and version; `at` is nanoseconds since 1970.
    """

    format: str = FORMAT
    refold: str
    rules: int = RULES
    guards: dict[str, int]
    at: int
    logs: int
    heads: str
    totals: Totals

    @property
    def clean(self) -> bool:
        """Whether every decision of every run was derived again."""
        totals = self.totals
        return not (totals.differing or totals.unjudged or totals.damaged or totals.unchecked)


class _Document(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    certificate: msgspec.Raw
    key: str = ""
    signature: str = ""


class Heads:
    """The heads of the runs that were audited whole, and the root over them."""

    def __init__(self) -> None:
        self._heads: dict[str, Head] = {}
        self._twice: set[str] = set()

    def add(self, judged: Iterable[Judged]) -> None:
        """Take the heads of these runs."""
        for each in judged:
            if each.audit is not None and not each.audit.damaged:
                head = Head(seq=each.audit.events, hash=bytes.fromhex(each.head))
                if self._heads.setdefault(each.run, head) != head:
                    self._twice.add(each.run)

    def root(self) -> tuple[int, str]:
        """How many heads there are, and the root of the tree over them, in the order of the runs' ids, hex.

        Raises `WrongUse` for a run that was there with different heads.
        """
        if self._twice:
            raise WrongUse(
                f"run {min(self._twice)} stands in two files, with different logs: certify them one by one"
            )
        tree = MerkleTree()
        for leaf in leaves_of(self._heads):
            tree.add(leaf)
        return len(self._heads), tree.root().hex()


def written(certificate: Certificate, key: SigningKey | None) -> bytes:
    """The certificate as it is kept: a JSON document, signed if there is a key."""
    text = _ENCODER.encode(certificate)
    document = _Document(certificate=msgspec.Raw(text))
    if key is not None:
        signature = key.sign(_message(text))
        document = _Document(certificate=msgspec.Raw(text), key=key.public.hex(), signature=signature.hex())
    return msgspec.json.encode(document) + b"\n"


def is_certificate(head: bytes) -> bool:
    """Whether a file begins as a certificate does."""
    return _BEGINS.match(head) is not None


def read(path: str, data: bytes, keys: Iterable[bytes]) -> tuple[Certificate, str]:
    """A certificate, and by which of the keys it is signed, hex ("" if none was named).

    Raises `WrongUse` for what is none, `BadCertificate` for a signature that is not right, `Unsigned` where a key is
    named and nobody signed.
    """
    try:
        document = msgspec.json.decode(data, type=_Document)
        text = bytes(document.certificate)
        certificate = msgspec.json.decode(text, type=Certificate)
        key, signature = bytes.fromhex(document.key), bytes.fromhex(document.signature)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WrongUse(f"{path}: is no certificate of an audit: {error}") from error
    if certificate.format != FORMAT:
        raise WrongUse(f"{path}: is a certificate of format {certificate.format!r:.60}, expected {FORMAT!r}")
    wanted = list(keys)
    if signature and not (len(key) == 32 and signed(key, _message(text), signature)):
        raise BadCertificate(path, "its signature is not that of what stands in it: it was changed")
    if key and not signature:
        raise BadCertificate(
            path, "it names a key, and its signature was taken out: anybody could have written it"
        )
    if wanted and not signature:
        raise Unsigned(path)
    if wanted and key not in wanted:
        raise BadCertificate(path, "is signed by another key than those that were named")
    return certificate, document.key


def _message(text: bytes) -> bytes:
    return framed(FORMAT.encode()) + framed(text)
