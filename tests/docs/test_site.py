"""The site that `make docs` makes of the documents opens from disk and stands on its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.browsing import opened

# Where the search leads: its results are behind a shadow root.
HITS = """[...document.querySelectorAll("*")].flatMap(each => each.shadowRoot ? [...each.shadowRoot.querySelectorAll("a")] : []).map(each => each.href)"""
ROOT = Path(__file__).resolve().parents[2]


def run(module: str, *words: str) -> tuple[int, str]:
    """The exit code of a script of the documents, and what it said."""
    done = subprocess.run(
        [sys.executable, "-m", f"scripts.docs.{module}", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, made once. Where its maker has no wheel there is none to test."""
    for maker in ("zensical", "mmdr"):
        pytest.importorskip(maker)
    folder = tmp_path_factory.mktemp("documents") / "site"
    assert (0, "") == run("build", str(folder))
    return folder


@pytest.mark.slow
def test_the_site_stands_on_its_own(site: Path) -> None:
    """Pages load nothing from elsewhere, links lead to what is there, headings too, and the search has its
    index.
    """
    assert (0, "") == run("check", str(site))


@pytest.mark.slow
def test_every_page_and_every_public_name_is_in_the_search(site: Path) -> None:
    """What the search looks through has the documents, and the entries that are made from the code."""
    index = (site / "search.js").read_text(encoding="utf-8")
    names = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    wanted = [name.with_suffix(".html").as_posix() for name in names if name.name != "README.md"]
    wanted += ["reference/api/engine.html#agent", "reference/api/store.html#sqlitestore", "changelog.html"]
    assert [] == [name for name in wanted if f'"{name}"' not in index and f'"{name}#' not in index]


@pytest.mark.slow
def test_diagrams_are_pictures(site: Path) -> None:
    """No page needs a script to show a diagram: the machine's is drawn, with its states."""
    page = (site / "reference" / "machine.html").read_text(encoding="utf-8")
    assert 'src="machine-1.svg"' in page
    assert "stateDiagram" not in page
    assert "WAITING_FOR_TOOL" in (site / "reference" / "machine-1.svg").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_search_finds_pages_from_disk(site: Path) -> None:
    """Who opens the site from disk, without a network, types a word letter by letter and is led to where it
    stands.
    """
    with opened() as browser:
        context = browser.new_context(offline=True)
        page, said = context.new_page(), list[str]()
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto((site / "how-to" / "fork-a-run.html").as_uri())
        page.click(".md-search__button")
        box = page.get_by_placeholder("Search")
        box.press_sequentially("bisect", delay=50)
        first = page.locator("[role=option] a, a[role=option]").first
        first.wait_for()
        assert "bisect" == box.input_value()
        page.wait_for_function(
            f"{HITS}.some(each => each.includes('commands.html') && each.endsWith('#refold-bisect'))"
        )
        page.click("[role=option] a[href*='#refold-bisect'], a[role=option][href*='#refold-bisect']")
        page.wait_for_url("**/commands.html*#refold-bisect")
        assert "bisect" in page.inner_text("#refold-bisect")
        assert [] == said


PAGE = '<html><head>{head}</head><body><h1 id="top">A page</h1>{body}</body></html>'


@pytest.mark.parametrize(
    ("head", "body", "said"),
    [
        pytest.param(
            '<script src="https://a.example/x.js"></script>', "", "loads https://a.example/x.js", id="script"
        ),
        pytest.param(
            '<link rel="stylesheet" href="//a.example/x.css">', "", "loads //a.example/x.css", id="style"
        ),
        pytest.param(
            "<style>@import 'https://a.example/x.css'</style>",
            "",
            "loads https://a.example/x.css",
            id="import",
        ),
        pytest.param(
            "", '<img src="https://a.example/x.png">', "loads https://a.example/x.png", id="picture"
        ),
        pytest.param(
            "", '<a href="other.html">x</a>', "other.html does not exist", id="a page that is not there"
        ),
        pytest.param(
            "", '<a href="#end">x</a>', "#end has no such heading", id="a heading that is not there"
        ),
        pytest.param("", '<a href=".">x</a>', "is a folder", id="a folder"),
        pytest.param(
            "", '<a href="https://a.example/">x</a><a href="index.html#top">x</a>', "", id="links that lead"
        ),
    ],
)
def test_a_site_that_does_not_is_refused(head: str, body: str, said: str, tmp_path: Path) -> None:
    """Each way in which a page can want what is not there is told; a link to another host is no such way."""
    (tmp_path / "search.js").write_text("")
    (tmp_path / "index.html").write_text(PAGE.format(head=head, body=body))
    code, told = run("check", str(tmp_path))
    assert (1 if said else 0) == code, told
    assert said in told
