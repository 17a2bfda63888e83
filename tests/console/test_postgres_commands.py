"""Every command that reads a store prints the same over PostgreSQL as over a file."""

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.conftest import Ran, Refold
from refold.console.app import COMMANDS
from refold.console.main import main
from refold.store.opening import store_address
from support.pairs import SECRET, Pair, fill, with_password
from support.postgres import drop_schema, new_schema

TRANSCRIPTS = Path(__file__).parents[1] / "transcripts"
IMPORTED = (
    "claude_code/permission-prompt-aborted.jsonl.zst",
    "claude_code/tiny-1.0.jsonl.zst",
    "codex/finished-0.114.jsonl.zst",
)
BRIEF = "claude_code-df081924294b34ad"
RULES = {
    "schema": "refold/v1",
    "guards": [{"guard": "permissions", "rules": [{"effect": "refuse", "tool": "look"}]}],
}
LEFT = {
    "run", "resume", "approve", "reject", "edit", "cancel", "worker", "fork", "resolve", "import", "erase",
    "seal", "unpack",  # change a store: see test_postgres_changes
    "graph", "keygen", "model", "policy",  # no store
    "doctor",  # differs: see test_doctor
}  # fmt: skip
# Names of files, and sizes of those that hold numbers drawn at random.
VARIABLE = [
    r"(certificate-|small-|test_|page-|pages-|bundle-|\b)[01]\.(zip|html|py|db)",
    r"(pages-|test_)[01]\b",
    "[0-9,.]+ (bytes|KiB)",
]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, postgres_address: str) -> Iterator[tuple[str, str]]:
    """A file and a schema with the same runs, to read."""
    address = with_password(new_schema(postgres_address))
    file = str(tmp_path_factory.mktemp("pair") / "runs.db")
    for store in (file, address):
        fill(store)
        assert 0 == main(["import", *(str(TRANSCRIPTS / name) for name in IMPORTED), "--store", store])
    yield file, address
    drop_schema(address)


@pytest.fixture
def pair(refold: Refold, filled: tuple[str, str]) -> Pair[Ran]:
    file, address = filled
    return Pair(refold, file, address, store_address(address).shown)


READING: list[tuple[str, int]] = [
    ("ls", 0),
    ("ls --output json", 0),
    ("show r1", 0),
    ("show r1 --raw", 0),
    ("show r1@e5", 0),
    (f"show {BRIEF} --all", 0),
    ("show nothing", 2),
    ("view r1@t2", 0),
    ("state r1@e9", 0),
    ("why r1", 0),
    ("why r2@c1", 0),
    ("diff r2 r4", 1),
    ("grep look --all", 0),
    ("grep look --all -o json", 0),
    ("stats --all", 0),
    ("stats r1 -o json", 0),
    ("whatif --all --set limits.step=1", 1),
    ("whatif --all --set limits.step=1 --jobs 2 -o json", 1),
    (f"touched {BRIEF}", 0),
    ("rules --all --policy RULES", 1),
    ("bisect r1 --when steps>=2", 1),
    ("blame r1 agent_state", 0),
    ("shrink r1 --when steps>=2 --out TMP/small-{n}.db", 0),
    ("verify --all", 0),
    ("verify --all -o json", 0),
    ("audit --all", 0),
    ("audit --all --jobs 2", 0),
    ("audit --all -o json --certificate TMP/certificate-{n}", 0),
    ("approvals", 0),
    ("approvals r3", 0),
    ("doubts", 0),
    ("testcase r1 r2 --out TMP/test_{n}.py", 0),
    ("report r1 --out TMP/page-{n}.html", 0),
    ("report --all --out TMP/pages-{n}", 0),
    ("export --all", 0),
    ("export r1 --to markdown", 0),
    ("export r1 --to otel", 0),
    ("pack r1 r2 r3 r4 --out TMP/bundle-{n}.zip", 0),
]


@pytest.mark.parametrize(("typed", "code"), READING, ids=[typed for typed, _ in READING])
def test_reading(pair: Pair[Ran], tmp_path: Path, typed: str, code: int) -> None:
    """Output, errors and exit code are the same; files that are written have no password."""
    (tmp_path / "rules.json").write_text(json.dumps(RULES))
    typed = typed.replace("TMP", str(tmp_path)).replace("RULES", str(tmp_path / "rules.json"))
    ran = pair.run(*typed.split(), names=VARIABLE)
    assert code == ran.code, ran
    for file in (each for each in tmp_path.rglob("*") if each.is_file()):
        assert SECRET.encode() not in file.read_bytes(), file


def test_every_command_is_compared() -> None:
    """A new command is in the table, or is named as one that changes a store or needs none."""
    assert {name.split()[0] for name in COMMANDS} == LEFT | {typed.split()[0] for typed, _ in READING}


def test_a_bundle_of_it(pair: Pair[Ran], refold: Refold, tmp_path: Path) -> None:
    """Bundles of both stores have the same members; one of them is a store for every command that reads."""
    pair.run("pack", "r1", "r4", "--out", tmp_path / "{n}.zip", names=VARIABLE)
    members = [sorted(zipfile.ZipFile(tmp_path / f"{number}.zip").namelist()) for number in (0, 1)]
    assert members[0] == members[1]
    bundle = f"bundle:{tmp_path / '1.zip'}"
    for word in ("verify", "audit"):
        assert 0 == refold(word, "--all", "--store", bundle).code
    shown = [refold("show", "r4", "--raw", "--store", store).out for store in (bundle, pair.stores[1][0])]
    assert shown[0] == shown[1]


def test_the_store_of_the_environment(
    pair: Pair[Ran], refold: Refold, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`REFOLD_STORE` may name a server; commands that are proposed then need no `--store`."""
    (file, _), (address, _) = pair.stores
    monkeypatch.setenv("REFOLD_STORE", address)
    ran = refold("approvals", "r3")
    assert (0, True, False) == (ran.code, "refold approve r3 c1" in ran.err, "--store" in ran.err)
    for word in ("verify", "audit"):
        assert refold(word, "--all").code == refold(word, "--all", "--store", file).code == 0
    assert 1 == refold("diff", "r2", "r4", "--other-store", file).code
