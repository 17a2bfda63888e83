"""A bundle of two sealed runs, what is found in it, and what its zip is made of."""

import json
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from refold.store import MemoryStore
from refold.store import verify_bundle as reader
from refold.store.bundles import open_bundle
from refold.store.packer import pack
from support.sealing import append, erase, record, sealed, signing_key

KEY = signing_key().public
Members = dict[str, bytes]


async def packed(folder: Path) -> Path:
    """A bundle of two sealed runs, one of which went on after the seal and lost a content."""
    path = folder / "whole.zip"
    async with MemoryStore() as store:
        await sealed(store, "a", "ß/..", "other", count=4)
        await append(store, "a", [record(9, '"\u2028 \\u0000 ü"')])
        await erase(store, "a", 2)
        await pack(store, ["ß/..", "a"], path)
    return path


def check(path: Path, *keys: bytes) -> reader.Bundle:
    """Everything that there is to check."""
    with open_bundle(path, keys) as opened:
        for run in opened.runs:
            for _ in opened.lines(run):
                pass
        opened.check_rest()
        return opened


def members_of(path: Path) -> Members:
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def zipped(
    path: Path, members: Members, how: Callable[[zipfile.ZipInfo], object] = lambda info: None
) -> Path:
    """A zip of these members, each header as `how` changes it."""
    with zipfile.ZipFile(path, "w") as file:
        for name, data in members.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            how(info)
            file.writestr(info, data, info.compress_type)
    return path


def listed(members: Members) -> Members:
    """The members under a manifest that has their sizes and digests: by somebody who took trouble."""
    try:
        manifest = json.loads(members["manifest.json"])
    except RecursionError:
        manifest = []
    if not isinstance(manifest, dict):
        return members
    sums = [
        {"name": name, "size": len(data), "sha256": sha256(data).hexdigest()}
        for name, data in members.items()
        if name != "manifest.json"
    ]
    return {**members, "manifest.json": json.dumps({**manifest, "members": sums}).encode()}
