"""The shape of the source tree: what a packager, a type checker and a stranger rely on."""

import ast
import importlib
import re
import subprocess
import tomllib
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ROOTS = tuple(PROJECT["tool"]["hatch"]["build"]["dev-mode-dirs"])
PACKAGES = tuple(f"refold.{root}" for root in ROOTS)

each_root = pytest.mark.parametrize("root", ROOTS)


def package(root: str) -> Path:
    return ROOT / root / "refold" / root


def sources() -> list[Path]:
    return sorted(path for root in ROOTS for path in (ROOT / root).rglob("*.py"))


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tracked() -> list[Path]:
    """The files of the clone that are, or could be, committed; those of an unpacked sdist without git."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode == 0:
        return [path for name in listing.stdout.split("\0") if name and (path := ROOT / name).is_file()]
    inside = (path for path in ROOT.rglob("*") if path.is_file())
    return [path for path in inside if not {".venv", "__pycache__"} & set(path.parts)]


@each_root
def test_the_namespace_has_no_file_of_its_own(root: str) -> None:
    """`refold` holds its one package and nothing else: an `__init__.py` there hides the other four roots."""
    entries = {path.name for path in (ROOT / root / "refold").iterdir()} - {"__pycache__"}
    assert {root} == entries


def test_every_root_is_a_part_of_one_package() -> None:
    """All source roots are installed, and together they are `refold`."""
    import refold

    assert len(ROOTS) == len(set(refold.__path__))
    assert {(ROOT / root / "refold").resolve() for root in ROOTS} == {
        Path(part).resolve() for part in refold.__path__
    }


def test_the_build_ships_every_root() -> None:
    """A root is not forgotten in one of the lists that pyproject.toml must repeat."""
    tool = PROJECT["tool"]
    shipped = [f"{root}/refold" for root in ROOTS]
    assert shipped == tool["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {*ROOTS, "tests", "scripts/typings"} == set(tool["mypy"]["mypy_path"])
    assert set(ROOTS) == set(tool["pyright"]["extraPaths"])
    assert set(ROOTS) <= set(tool["mypy"]["files"]) & set(tool["pyright"]["include"]) & set(
        tool["ruff"]["src"]
    )
    assert set(shipped) == set(tool["ruff"]["namespace-packages"])
    assert set(PACKAGES) == set(tool["importlinter"]["root_packages"])


@each_root
def test_every_package_is_typed(root: str) -> None:
    """A user's type checker believes our annotations: each package says that it has them."""
    assert (package(root) / "py.typed").is_file()


def test_every_folder_of_sources_is_a_package() -> None:
    """A folder without `__init__.py` would be a namespace of its own, open to anybody's files."""
    folders = {path.parent for path in sources()}
    assert set() == {named(folder) for folder in folders if not (folder / "__init__.py").is_file()}


@pytest.mark.parametrize("name", PACKAGES)
def test_what_a_package_offers_is_listed(name: str) -> None:
    """`__all__` lists each public name once, and each can be had. (That it is sorted, ruff sees to:
    RUF022.)
    """
    module = importlib.import_module(name)
    listed = list(module.__all__)
    assert sorted(set(listed)) == sorted(listed)
    assert [] == [public for public in listed if not hasattr(module, public)]


@each_root
def test_no_module_hides_a_public_name(root: str) -> None:
    """Importing a module that has the name of something public does not put the module in its place."""
    offered = importlib.import_module(f"refold.{root}")
    both = {path.stem for path in package(root).iterdir()} & {*offered.__all__}
    for name in both:
        importlib.import_module(f"refold.{root}.{name}")
    assert set() == {name for name in both if isinstance(getattr(offered, name), types.ModuleType)}


# `__getattr__` is how a package offers a name whose import is slow.
RE_EXPORTING = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.If)


def does_more_than_re_export(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Constant(value=str())):
            return False
        case ast.FunctionDef(name="__getattr__" | "__dir__"):
            return False
        case _:
            return not isinstance(statement, RE_EXPORTING)


def test_an_init_only_re_exports() -> None:
    """Logic has a module with a name; an `__init__.py` holds imports, `__all__` and no more."""
    guilty = [
        f"{named(path)}:{statement.lineno}"
        for path in sources()
        if path.name == "__init__.py"
        for statement in ast.parse(path.read_bytes()).body
        if does_more_than_re_export(statement)
    ]
    assert not guilty, "\n".join(guilty)


# It travels in every bundle as one file, for people who have nothing else of refold.
TRAVELS = "store/refold/store/verify_bundle.py"


def test_no_file_is_too_long() -> None:
    """Past 400 lines there is a second idea in a file, in those of tests and of pages too: find it."""
    code = [path for path in tracked() if path.suffix in {".py", ".js", ".css"}]
    lengths = {named(path): len(path.read_bytes().splitlines()) for path in code}
    assert {} == {name: lines for name, lines in lengths.items() if lines > 400 and name != TRAVELS}


# Each is an example of what would tie the project to the machine or the place where it was written.
# They are put together here, so that this file does not mention them.
ELSEWHERE = re.compile(
    "|".join(
        (
            r"(?<![\w.~*-])/(?:home|Users|root|work|workspace)/" + r"\w",
            r"/tmp/" + r"(?:w|bash_jobs[\w.]*)/",
            r"\.\./" + "shared",
            r"\bissues? #?" + r"\d+\b",
        )
    )
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("see /" + "home/ann/notes.md", True, id="a home"),
        pytest.param("python=/" + "work/main/.venv", True, id="a work directory"),
        pytest.param("see ../" + "shared/notes.md", True, id="a neighbour of the clone"),
        pytest.param("as issue " + "#12 says", True, id="a tracker's number"),
        pytest.param("https://example.com/home/page", False, id="a page of a site"),
        pytest.param("docs/work/plan.md", False, id="a folder of the clone"),
        pytest.param("/tmp/runs.db", False, id="anybody's temporary file"),
        pytest.param("an issue with 3 parts", False, id="an ordinary word"),
    ],
)
def test_what_counts_as_elsewhere(text: str, found: bool) -> None:
    """The pattern finds what ties us to a place, and lets ordinary text be."""
    assert found == bool(ELSEWHERE.search(text))


def test_the_project_stands_alone() -> None:
    """No file refers to anything that only its writers had."""
    found: list[str] = []
    for path in tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a binary file, such as a golden database
        lines = enumerate(text.splitlines(), start=1)
        found += [
            f"{named(path)}:{number}: {match[0]}"
            for number, line in lines
            if (match := ELSEWHERE.search(line))
        ]
    assert not found, "\n".join(found)


def test_the_build_runs_the_tests_that_the_readme_names() -> None:
    """Who types what the README says has run the tests that a build runs: all of them."""
    typed = re.findall(r"^\$ (make test\S*)$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    built = re.findall(r"^make test\S*$", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    assert ["make test-all"] == typed == built


def test_the_map_lists_each_test_file_once() -> None:
    """`tests/README.md` has one entry for each test file, and names no file that does not exist."""
    page = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    files = [path.relative_to(ROOT / "tests") for path in tracked() if path.is_relative_to(ROOT / "tests")]
    tests = [path.as_posix() for path in files if path.match("test_*.py")]
    entries = re.findall(r"^- `([^`]*test_\w+\.py)`: \S.*$", page, re.MULTILINE)
    assert sorted(tests) == sorted(entries)
    existing = {path.as_posix() for path in files} | {
        path.relative_to(ROOT / root / "refold").as_posix()
        for root in ROOTS
        for path in (ROOT / root).rglob("*.py")
    }
    assert set() == {*re.findall(r"`([\w./-]+\.py)`", page)} - existing


def test_only_the_machine_names_states() -> None:
    """Code outside `machine.py` asks a state for its properties, so that a new state need not be added
    there.
    """
    members = importlib.import_module("refold.reducers.machine").AgentState.__members__
    found = [
        f"{named(path)}:{node.lineno} {node.attr}"
        for path in sources()
        if path.name != "machine.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "AgentState"
        and node.attr in members
    ]
    assert [] == found
