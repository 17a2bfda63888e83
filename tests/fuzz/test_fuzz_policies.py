"""Policies that nobody meant: each file and each value is a policy, or refused in a few words, in bounded
time.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.asking import assert_sound, error_of, examples, refold, within
from fuzz.mutations import flipped, put, texts, values
from refold.console.policy import Language, render_policy
from refold.engine.policy_files import PolicyFileError, load_policy
from refold.reducers.complaints import warnings
from refold.reducers.errors import PolicyError
from refold.reducers.guards import BUILTIN
from refold.reducers.parser import parse, parse_with
from refold.reducers.presets import PRESETS

LONG = "k" * 5000
PIECES: tuple[bytes, ...] = (
    b"&a [1]", b"*a", b"<<: *a", b"&a [*a, *a]", b"!!python/object:os.system", b"? [a]\n: b", b"? {a: b}\n: c", b"\t", b"- " * 400,
    b"{" * 400, b"[" * 400, b"a: " * 99, b"!!timestamp 2001-99-99", b"2001-13-45", b"2001-01-01", b"1:2:3:4", b"190:20:30.15",
    b"1" + b":1" * 3000 + b".5", b"0b" + b"1" * 9999, b"0x" + b"f" * 9999, b"9" * 5000, b"1_000", b".inf", b".nan", b"-.inf", b"~",
    b"!!binary x", b"!!set {a}", b"!!omap [a: 1]", b"!!int x", b"!!int", b"!!float '.'", b"!!bool x", b"!!null x", b"!!map x", b"!!seq x",
    b"!!str [a]", b"%YAML 9.9\n---", b"---\n---", b"...", b"\xff\xfe", b"\xef\xbb\xbf", b"\x00", b"\x85", b"\xe2\x80\xa8",
    b"'\x1b[31m'", b'"\\x1b[31m"', b'"\\ud800"', b'"\\UFFFFFFFF"', b'"\\u202e"', b"|0\n x", b">99999\n x", b"1e9999", b"'" * 999,
    b"1979-05-27T07:32:00Z", b"07:32:00", b"inf", b"nan", b"[a]\n[a]", b"[[a]]", b"a.b.c=1\na.b=2", b"null=['a']", b"null=[['a']]",
    b"null=['limits[999999999].x']", b"a." * 59 + b"a=1", b"a." * 3000 + b"a=1", b"[" + b"a." * 3000 + b"a]", LONG.encode(),
)  # fmt: skip


@cache
def text(name: str, language: Language) -> bytes:
    """A preset in full, in a language; in YAML and JSON also as it stands, laid over nothing."""
    return render_policy(parse({"preset": name}), language).encode()


@st.composite
def files(draw: st.DrawFn) -> tuple[str, bytes]:
    """The suffix and the bytes of a policy file that somebody broke."""
    name, language = draw(st.sampled_from(sorted(PRESETS))), draw(st.sampled_from(list(Language)))
    whole = text(name, language)
    if language is Language.JSON:
        return draw(st.sampled_from([".json", ".yaml"])), draw(texts(whole))
    lines = draw(st.one_of(st.just(whole), flipped(whole))).split(b"\n")
    for _ in range(draw(st.integers(0, 2))):
        place, piece = draw(st.integers(0, len(lines) - 1)), draw(st.sampled_from(PIECES))
        key, mark, _ = lines[place].partition(b": " if language is Language.YAML else b" = ")
        lines[place] = draw(
            st.sampled_from([piece, key + mark + piece, lines[place] + b"\n" + piece, b"  " + lines[place]])
        )
    return f".{language}", b"\n".join(lines)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("policies")


def read(path: Path) -> None:
    """Read a file; what is refused is refused in a few words that name the file, what is not can be used and
    written.
    """
    with within():
        error = error_of(lambda: used(path))
    if error is not None:
        assert isinstance(error, PolicyFileError)
        assert str(path) in str(error)
        assert len(str(error)) < 1000 + len(str(path))


def used(path: Path) -> None:
    policy, _ = load_policy(path, BUILTIN, {})
    warnings(policy)
    assert policy == parse(msgspec.to_builtins(policy))


@examples(150)
@given(file=files())
def test_any_file(file: tuple[str, bytes], scratch: Path) -> None:
    """Any bytes as a policy file are a policy, or refused with the file's name, in a few words and bounded
    time.
    """
    suffix, data = file
    path = scratch / f"p{suffix}"
    path.write_bytes(data)
    read(path)


@examples(60)
@given(data=st.binary(max_size=400), suffix=st.sampled_from([".yaml", ".toml", ".json"]))
def test_any_bytes(data: bytes, suffix: str, scratch: Path) -> None:
    """So are bytes that never were a policy."""
    path = scratch / f"p{suffix}"
    path.write_bytes(data)
    read(path)


@examples(15)
@given(file=files())
def test_the_command(file: tuple[str, bytes], scratch: Path) -> None:
    """`refold policy check` complains of any file in words that no terminal minds, by exit code 2."""
    suffix, data = file
    path = scratch / f"p{suffix}"
    path.write_bytes(data)
    ran = refold("policy", "check", path)
    assert_sound(ran)
    assert ran.code in (0, 2)


_N = 120_000


@pytest.mark.parametrize(
    ("suffix", "data"),
    [
        pytest.param(".toml", ".".join("a" * (_N // 2)) + " = 1", id="a key of many parts"),
        pytest.param(".toml", "[" + ".".join(['"a"'] * (_N // 4)) + "]", id="a table of many parts"),
        pytest.param(".toml", "a = " + "[" * _N, id="lists in TOML"),
        pytest.param(".toml", "a = " + "9" * _N, id="digits in TOML"),
        pytest.param(".yaml", "[" * _N, id="lists in YAML"),
        pytest.param(".yaml", "{a: " * (_N // 4), id="mappings in YAML"),
        pytest.param(".yaml", "- " * (_N // 2), id="dashes in YAML"),
        pytest.param(".yaml", "a: " + "9" * _N, id="digits in YAML"),
        pytest.param(".yaml", "a: 1" + ":1" * 9999 + ".5", id="a number to the base 60"),
        pytest.param(".yaml", 'a: "\\UFFFFFFFF"', id="a character beyond any"),
        pytest.param(".yaml", "a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]", id="aliases"),
        pytest.param(".json", "[" * _N, id="lists in JSON"),
        pytest.param(".json", "9" * _N, id="digits in JSON"),
        pytest.param(".json", '{"schema": "refold/v1", "%s": 1}' % ("k" * _N), id="a long key"),
        pytest.param(".yaml", f"{LONG}: 1\n{LONG}: 2", id="a long key twice"),
        pytest.param(".yaml", f"a: !{LONG} 1", id="a long tag"),
        pytest.param(".toml", f"null = ['{LONG}', '{LONG}']", id="a long path"),
        pytest.param(".json", '{"schema": "refold/v1", "a": 1}' + " " * (1 << 17), id="too large"),
    ],
)  # fmt: skip
def test_what_has_no_end(suffix: str, data: str, tmp_path: Path) -> None:
    """What would take a reader a quadratic time, or has no bound, is refused at once and in a few words."""
    path = tmp_path / f"p{suffix}"
    path.write_text(data)
    with within(10), pytest.raises(PolicyFileError) as refused:
        load_policy(path, BUILTIN, {})
    assert len(str(refused.value)) < 1000


def deep(depth: int) -> Any:
    return {"a": deep(depth - 1)} if depth else 1


VALUES: tuple[Any, ...] = (
    LONG, 2**63, 10**5000, -1, 1e308, float("nan"), [LONG], {LONG: LONG}, [[[[1]]]], None, True, "", {"a": {1: 2}}, {None: 1},
    b"x", {1, 2}, "\ud800", deep(60), deep(900), [1] * 500, {"guard": LONG}, {"type": LONG}, {"name": "step", "guard": None}, {"do": LONG},
    "bpe:x", {"always": LONG}, [None], [[]], [{}],
)  # fmt: skip


@cache
def laid_out(name: str) -> dict[str, Any]:
    """A preset's policy as plain data, every key of it."""
    plain: dict[str, Any] = json.loads(msgspec.json.encode(parse({"preset": name})))
    return plain


@examples(300)
@given(
    data=st.data(),
    name=st.sampled_from(sorted(PRESETS)),
    value=st.sampled_from(range(len(VALUES))),
    over=st.booleans(),
)
def test_any_value(data: st.DataObject, name: str, value: int, over: bool) -> None:
    """Any value at any key of a policy is taken, or refused with a path and in a few words."""
    base = laid_out(name)
    path = data.draw(st.sampled_from(list(values(base))))
    beside = data.draw(st.booleans())

    def change(old: Any) -> Any:
        if not beside:
            return VALUES[value]
        return {**old, LONG: VALUES[value]} if isinstance(old, dict) else [old, VALUES[value]]

    changed = put(base, path, change)
    given = {"preset": name, **changed} if over and isinstance(changed, dict) else changed
    error = error_of(lambda: parse(given))
    if error is not None:
        assert isinstance(error, PolicyError)
        assert error.path or not path
        assert len(str(error)) < 1100


@examples(60)
@given(
    variable=st.sampled_from(["MAX_STEPS", "TIME_LIMIT", "TOKEN_LIMIT", "COST_LIMIT", "RETRY_MAX_ATTEMPTS"]),
    text=st.text(max_size=30) | st.sampled_from(["9" * 5000, LONG, "1e400", "nan"]),
)
def test_any_variable(variable: str, text: str) -> None:
    """Any text in a variable is a value, or refused by the variable's name, in a few words."""
    error = error_of(lambda: parse_with({}, {f"REFOLD_{variable}": text}))
    assert error is None or (str(error).startswith("REFOLD_") and len(str(error)) < 1000)
