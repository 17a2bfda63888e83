"""Deriving that ends its process for some files, as a file does that needs more memory than there is."""

import os
import signal

from refold.console.derived_files import derive_file as _derive_file
from refold.console.opened_files import FoundFile


def derive_file(file: FoundFile, named: str | None, *, kept: bool) -> bytes:
    """Derive a file; one whose name has "crash" kills this process."""
    if "crash" in file.name:
        os.kill(os.getpid(), signal.SIGKILL)
    return _derive_file(file, named, kept=kept)
