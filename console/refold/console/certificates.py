"""`refold verify` of a certificate that `refold audit --certificate` wrote."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from refold.console.audit import code_of, imported_row, named_rows
from refold.console.screen import Screen
from refold.reducers.errors import CannotJudge, Damaged, WorldFailed
from refold.replay import figures
from refold.replay.certificate import BadCertificate, Certificate, Unsigned, is_certificate, read
from refold.store.verify_bundle import key_id

_MOST = 1 << 26
"""Bytes of a certificate that is read."""


class CheckedCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate that was checked, as JSON. `key` is the id of the key that signed it, "" if it is not signed.

    `compared`: a key was named, and this is it.
    """

    certificate: str
    whole: bool
    problem: str = ""
    key: str = ""
    compared: bool = False
    found: Certificate | None = None


def named(path: Path) -> bool:
    """Whether this is a file that begins as a certificate does."""
    try:
        with path.open("rb") as file:
            return is_certificate(file.read(64))
    except (OSError, ValueError):
        return False


def verify_certificate(screen: Screen, path: Path, keys: Sequence[bytes]) -> int:
    """Say whether it is what was signed, and by whom, and what it says. The exit code: that of the audit, if it is whole."""
    try:
        with path.open("rb") as file:
            certificate, key = read(str(path), file.read(_MOST), keys)
    except (BadCertificate, Unsigned) as error:
        checked = CheckedCertificate(certificate=str(path), whole=False, problem=str(error))
        screen.result(checked, lambda: _tell(screen, checked))
        return Damaged.exit_code if isinstance(error, BadCertificate) else CannotJudge.exit_code
    except OSError as error:
        raise WorldFailed(f"{path}: cannot be read: {error.strerror or error}") from error
    signer = key_id(bytes.fromhex(key)) if key else ""
    checked = CheckedCertificate(
        certificate=str(path), whole=True, key=signer, found=certificate, compared=bool(keys)
    )
    screen.result(checked, lambda: _tell(screen, checked))
    return code_of(certificate.totals)


def _tell(screen: Screen, checked: CheckedCertificate) -> None:
    found = checked.found
    if found is None:
        screen.heading(f"certificate {checked.certificate}: NOT TO BE BELIEVED")
        screen.say(f"  {checked.problem}")
        return
    totals = found.totals
    screen.heading(f"certificate {checked.certificate}: {'clean' if found.clean else 'NOT CLEAN'}")
    rows = [
        ("  signed", _signer(checked)),
        ("  made", f"{_day(found.at)} by refold {found.refold}, decision rules up to {found.rules}"),
        ("  runs", f"{figures.count(totals.runs)}, {figures.count(totals.clean)} of them clean"),
        ("  heads", f"{figures.count(found.logs)} logs, sha256 {found.heads}"),
    ]
    screen.pairs([*rows, *imported_row(totals.imported), *named_rows(totals)])


def _signer(checked: CheckedCertificate) -> str:
    if not checked.key:
        return "no, so that it proves nothing about who wrote it"
    return f"by key {checked.key}{'' if checked.compared else ', which was held against none: name yours by --key'}"


def _day(at: int) -> str:
    try:
        return datetime.fromtimestamp(at // 1_000_000_000, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return f"{at} ns after 1970"
