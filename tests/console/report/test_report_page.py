"""The page of a run as a file: self-contained, faithful to the log, harmless, and there for damaged logs,
too.
"""

import hashlib
import json
import re
import zlib
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec
import pytest

from bench.big_run import write
from bench.workload import RUN
from console.conftest import Refold
from console.report.conftest import MARKUP, apart, page_text, reported
from console.test_forged import forged
from console.test_listings import tamper
from refold.console import descriptions as screening
from refold.console.report import page
from refold.console.report.data import PackedValues
from refold.console.report.page import page as whole_page
from refold.reducers.codec import encode
from refold.reducers.events import SourceRecorded
from refold.replay import Verification
from refold.store import SqliteStore
from refold.store.protocol import Record
from support.pages import Read, read

FOLDER = Path(page.__file__).parent / "assets"
PageOf = Callable[..., Path]

# As npm has them: preact 10.29.8, htm 3.1.1, uplot 1.6.32. A file that differs is not theirs.
PUBLISHED = {
    "hooks.umd.js": "5c29238e5dc99df306d7f7fff038591a397cfcfabb59f81fbdef43d670aa0566",
    "htm.LICENSE": "740725f7252e750af735d0028cc534970772f513331e9f68150fede8fb3ce00f",
    "htm.umd.js": "7a31776e04bd4afde0d4308177d26f377716fcf7e4bd70be590746d6aa594f08",
    "preact.LICENSE": "1fe6958409c8c257a70c587a18b6f7f412b179b456630790d30b2ec9a8e4b7d4",
    "preact.umd.js": "134b77bc803fa38661dc1b1e44e96eb0bb6a1a00edbb96d34dcde421b2e80b06",
    "uPlot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}


def test_what_is_vendored_is_what_was_published() -> None:
    """Every file of others is byte for byte the one of its release, and each has its licence beside it."""
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (FOLDER / "vendor").iterdir()
    }
    assert PUBLISHED == found
    assert {each.licence for each in page.PACKAGES} == {name for name in found if name.endswith(".LICENSE")}


def test_no_script_of_ours_is_too_long() -> None:
    """Past 400 lines there is a second idea in a script; and every script is in the page, or in the index."""
    lengths = {path.name: len(path.read_bytes().splitlines()) for path in FOLDER.glob("*.js")}
    assert {*page.OURS, "index.js"} == set(lengths)
    assert {} == {name: lines for name, lines in lengths.items() if lines > 400}


def test_what_the_page_says_of_the_check_is_there() -> None:
    """A field that nobody fills is `undefined`: what could not be judged was called damaged for one."""
    script = (FOLDER / "header.js").read_text(encoding="utf-8")
    (taken,) = re.findall(r"const \{ (.+) \} = model\.checked;", script)
    asked = {*taken.split(", "), *re.findall(r"\bchecked\.(\w+)", script)}
    assert asked <= {*Verification.__struct_fields__}


@pytest.mark.parametrize("name", page.OURS)
def test_our_scripts_make_no_markup(name: str) -> None:
    """Texts reach the page as text nodes: nothing of ours parses HTML, evaluates text, or asks anybody for
    anything.
    """
    text = (FOLDER / name).read_text(encoding="utf-8")
    forbidden = r"innerHTML|outerHTML|insertAdjacent|document\.write|dangerouslySet|\beval\(|new Function|\bfetch\(|XMLHttp|import\("
    assert [] == re.findall(forbidden, text)


def test_a_page_allows_only_what_is_in_it(ordinary: Path) -> None:
    """The policy names each script and the style by its hash, and nothing is loaded or handled in an
    attribute.
    """
    found = read(ordinary)
    (policy,) = [
        has["content"] for tag, has in found.tags if has.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    hashes = [
        f"'sha256-{b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in found.scripts
    ]
    assert rules.pop("script-src").split() == hashes
    (style,) = found.inside("style")
    assert rules.pop("style-src") == f"'sha256-{b64encode(hashlib.sha256(style.encode()).digest()).decode()}'"
    assert {"default-src": "'none'", "base-uri": "'none'", "form-action": "'none'"} == rules
    reaching = {"src", "href", "style", "srcset", "action"}
    assert [] == [
        (tag, name) for tag, has in found.tags for name in has if name in reaching or name.startswith("on")
    ]


def test_a_page_has_the_log_as_it_is_stored(ordinary: Path, store: Path) -> None:
    """Header, body, content, salt, digest and hash of each event are those of the store, byte for byte."""

    async def stored() -> list[list[object]]:
        async with await SqliteStore.open(store, readonly=True) as opened:
            return [
                [
                    each.seq,
                    str(each.at),
                    each.kind,
                    each.body.decode(),
                    None if each.content is None else each.content.decode(),
                    each.salt.hex(),
                    each.hash.hex(),
                    None if each.content_digest is None else each.content_digest.hex(),
                ]
                async for chunk in opened.read("ordinary")
                for each in chunk
            ]

    data = read(ordinary).data
    rows = zip(data["events"], data["records"], strict=True)
    assert anyio.run(stored) == [[*row[:3], *record] for row, record in rows]


def test_no_text_of_a_log_is_markup(hostile: Path) -> None:
    """A run that is nothing but an attack adds no element, no attribute and no mark that cannot be seen."""
    text = hostile.read_text(encoding="utf-8")
    found = Read(text)
    expected = {"html", "head", "meta", "title", "style", "body", "div", "noscript", "p", "script"}
    assert expected == {tag for tag, _ in found.tags if tag[0] != "/"}
    parts = found.inside("script", type="application/octet-stream")
    assert all(re.fullmatch("[A-Za-z0-9+/=]+", part) for part in parts)
    assert len(page.page_scripts()) + 3 + len(parts) == sum(tag == "script" for tag, _ in found.tags)
    data = text[text.index('id="data">') : text.index("</script>", text.index('id="data">'))]
    assert MARKUP in json.dumps(found.data, ensure_ascii=False) or MARKUP in found.data["about"]["task"]
    assert hostile_marks(data) == ""


def test_nothing_that_a_run_says_is_markup_anywhere(store: Path) -> None:
    """Neither the title nor the data has a sign in it with which an element, or a comment, could begin or
    end.
    """
    report = reported(store, "ordinary")
    told = msgspec.structs.replace(
        report, about=msgspec.structs.replace(report.about, run="</title><!--&<script>")
    )
    text = whole_page(told)
    assert "<title>&lt;/title&gt;&lt;!--&amp;&lt;script&gt; " in text
    data = text[text.index('id="data">') + len('id="data">') :].partition("</script>")[0]
    assert not set("<>&") & set(data)
    assert "</title><!--&<script>" == Read(text).data["about"]["run"]


def hostile_marks(text: str) -> str:
    return "".join(letter for letter in text if letter not in "\t\n" and screening.line(letter) != letter)


def test_the_same_run_gives_the_same_page(ordinary: Path, page_of: PageOf) -> None:
    """Whoever makes the page again with the same zlib gets the same bytes: two can be compared."""
    assert ordinary.read_bytes() == page_of("ordinary").read_bytes()


def test_a_page_grows_as_its_log_does(tmp_path: Path) -> None:
    """Twice the turns are at most twice the page: no view and no state is written out again and again."""
    sizes: list[int] = []
    for messages in (200, 400):
        path = tmp_path / f"{messages}.db"
        anyio.run(write, path, messages)
        sizes.append(len(json.dumps(Read(page_text(path, RUN)).data)))
    small, large = sizes
    assert large < 2.3 * small


def test_a_part_of_a_run_is_said_to_be_one(page_of: PageOf) -> None:
    """A report up to an event shows that many events, and says that the log goes on."""
    data = read(page_of("ordinary@e9")).data
    assert (9, True) == (len(data["events"]), data["partial"])


@pytest.mark.parametrize(
    ("seq", "change"),
    [
        pytest.param(9, "body = '{}'", id="a body of nothing"),
        pytest.param(9, "kind = 'from_the_future'", id="a kind that nobody knows"),
        pytest.param(9, "body = CAST(x'ff00' AS TEXT)", id="no UTF-8"),
        pytest.param(1, "body = 'no JSON text'", id="the first event"),
    ],
)
def test_a_damaged_log_has_its_page(
    seq: int, change: str, ordinary: Path, store: Path, page_of: PageOf
) -> None:
    """Up to the damage all is told; the rest is there as it is stored; the command ends with 3, and the page
    says why.
    """
    whole = read(ordinary).data
    tamper(store, f"UPDATE event SET {change} WHERE key & 4294967295 = {seq}")
    data = read(page_of("ordinary", 3)).data
    assert len(whole["events"]) == len(data["events"])
    assert data["checked"]["problem"]["seq"] == seq
    assert data["about"]["damaged"]
    assert whole["derived"][: seq - 1] == data["derived"][: seq - 1]
    assert [[{}]] * (len(whole["events"]) - seq + 1) == [each[:1] for each in data["derived"][seq - 1 :]]


def test_where_a_run_came_from_is_said(store: Path, tmp_path: Path) -> None:
    """An imported run's page names the format and the file's digest: its decisions were derived later."""
    source = SourceRecorded(at=0, format="codex", source="ab" * 32, position="line 1", seq=1)

    def imported(records: list[Record]) -> list[Record]:
        at = records[-1].at
        body = encode(msgspec.structs.replace(source, at=at)).body
        return [*records, Record(at=at, kind="source_recorded", body=body)]

    apart(lambda: forged(store, "ordinary", tmp_path / "imported.db", imported))
    imported_from = Read(page_text(tmp_path / "imported.db", "ordinary")).data["imported"]
    told = [imported_from[name] for name in ("format", "source", "position")]
    assert ["codex", "ab" * 32, "line 1"] == told


def test_the_command_says_what_it_wrote(refold: Refold, store: Path, tmp_path: Path) -> None:
    """One line with file, events and size; as JSON with `-o json` before the command."""
    file = tmp_path / "page.html"
    ran = refold("report", "ordinary", "--out", file, "--store", store)
    assert (0, "") == (ran.code, ran.err)
    assert re.fullmatch(rf"{file}: \d+ events of run ordinary, [\d.]+ KiB\n", ran.out)
    told = json.loads(
        refold("-o", "json", "report", "ordinary", "--out", file, "--force", "--store", store).out
    )
    assert {"run": "ordinary", "path": str(file), "size": file.stat().st_size, "damaged": ""} == {
        name: value for name, value in told.items() if name != "events"
    }


def test_no_file_is_written_over_unasked(refold: Refold, store: Path, tmp_path: Path) -> None:
    """What stands where the page should go stays, unless somebody says `--force`."""
    file = tmp_path / "precious.html"
    file.write_text("mine")
    ran = refold("report", "ordinary", "--out", file, "--store", store)
    assert (2, "mine") == (ran.code, file.read_text())
    assert "--force" in ran.err
    assert 0 == refold("report", "ordinary", "--out", file, "--force", "--store", store).code
    assert [file.name] == [each.name for each in tmp_path.iterdir() if "precious" in each.name]


def test_a_folder_that_is_not_there_is_the_worlds_failure(
    refold: Refold, store: Path, tmp_path: Path
) -> None:
    """A page that cannot be written is said with its path, and exit code 4."""
    ran = refold("report", "ordinary", "--out", tmp_path / "none" / "page.html", "--store", store)
    assert 4 == ran.code
    assert "page.html: cannot be written: No such file or directory" in ran.err


def test_what_is_packed_is_read_as_it_was() -> None:
    """A list that was packed has its values, in their order, in parts of which each stands for itself."""
    values = [{"b": "\u00e9" * (number % 5000), "a": number} for number in range(2000)]
    packed = PackedValues(values)
    parts = [json.loads(zlib.decompress(part, wbits=-15)) for part in packed.parts]
    assert len(parts) > 2
    assert values == [value for part in parts for value in part]
    assert (len(values), [len(part) for part in parts]) == (len(packed), list(packed.counts))
    assert ([], []) == (list(PackedValues().parts), list(PackedValues().counts))
