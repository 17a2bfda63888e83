"""Clients run in a fresh home, without proxies and keys of the machine, and within a timeout."""

import json
import re
import sys
from pathlib import Path

import pytest

from clients import execution
from clients.adapters import CLIENTS, Client, Commands, Setting
from clients.execution import play
from clients.installation import Installed
from clients.limits import read_limits
from clients.scripts import SCRIPTS
from clients.truth import read_truth

ASKING = """
import json, os, pathlib, sys, urllib.request
url, prompt = sys.argv[1:]
tools = [{"type": "function", "function": {"name": "bash", "parameters": {"properties": {"command": {}}}}}]
body = json.dumps({"messages": [{"role": "user", "content": prompt}], "tools": tools}).encode()
answer = urllib.request.urlopen(urllib.request.Request(url + "/v1/chat/completions", body), timeout=10).read()
home = pathlib.Path(os.environ["HOME"])
(home / "sessions").mkdir(exist_ok=True)
(home / "sessions" / f"{len(prompt)}.json").write_text(json.dumps(dict(os.environ)))
"""
STUBBORN = """
import os, pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
ignoring = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(300)"
child = subprocess.Popen([sys.executable, "-c", ignoring])
pathlib.Path("child").write_text(str(child.pid))
time.sleep(300)
"""
HERE = Installed("1.0", str(Path(sys.executable).parent))


def client(program: str) -> Client:
    """A client of a few lines of Python that can resume a session."""

    def prepare(setting: Setting) -> Commands:
        words = (sys.executable, "-c", program, setting.url)
        return Commands(words, words, {"ITS_KEY": "none"})

    return Client(
        name="planted",
        registry="pypi",
        package="planted",
        version="1.0",
        format="planted",
        prepare=prepare,
        transcripts=("sessions",),
    )


def test_a_client_gets_what_it_needs_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client receives no proxies and keys of the machine; it has a fresh home and a process a prompt."""
    for name in ("HTTPS_PROXY", "http_proxy", "OPENAI_API_KEY", "SECRET"):
        monkeypatch.setenv(name, "planted")
    outcome = play(client(ASKING), HERE, "resume", tmp_path / "run")
    sessions = sorted((tmp_path / "run" / "transcripts").iterdir())
    assert ((0, 0), 2) == (outcome.codes, len(sessions))
    environment = json.loads(sessions[0].read_text(encoding="utf-8"))
    assert [] == [name for name, value in environment.items() if value == "planted"]
    assert (str(tmp_path / "run" / "home"), "none") == (environment["HOME"], environment["ITS_KEY"])


def test_a_run_leaves_the_truth(tmp_path: Path) -> None:
    """Exchanges and outcome are read back unchanged."""
    outcome = play(client(ASKING), HERE, "basic", tmp_path / "run")
    truth = read_truth(tmp_path / "run")
    assert outcome == truth.outcome
    assert {4: False, 7: False} == outcome.happened
    assert [("main 1", "I look around.")] == [(each.place, reply.text) for each, reply in truth.answers()]
    assert "open" == truth.end()


def alive(pid: int) -> bool:
    """Whether a process runs and is not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_client_that_does_not_end_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the timeout the process group is killed, even if it ignores SIGTERM; the outcome records it."""
    monkeypatch.setattr(execution, "TIMEOUT", 3.0)
    monkeypatch.setattr(execution, "_GRACE", 0.1)
    outcome = play(client(STUBBORN), HERE, "basic", tmp_path / "run")
    assert (True, (-9,)) == (outcome.timed_out, outcome.codes)
    assert not alive(int((tmp_path / "run" / "work" / "child").read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_is_sent_to_the_loopback_server(tmp_path: Path, name: str) -> None:
    """Configuration, command and environment of a client contain the server's URL and no other address."""
    url = "http://127.0.0.1:1"
    setting = Setting(tmp_path, tmp_path / "work", url, tmp_path / "bin", SCRIPTS["compaction"])
    commands = CLIENTS[name].prepare(setting)
    files = [file.read_text(encoding="utf-8") for file in tmp_path.rglob("*") if file.is_file()]
    text = "\n".join([*files, *commands.first, *commands.environment.values()])
    assert {url} == set(re.findall(r"https?://[\w.:]+", text))


def test_what_is_skipped_and_limited_exists() -> None:
    """Skipped scripts, and scripts and clients of limits, exist."""
    named = {script for each in CLIENTS.values() for script in each.skips}
    named |= {script for each in read_limits() if each.scripts != "all" for script in each.scripts}
    assert set() == named - {*SCRIPTS}
    assert set() == {each.client for each in read_limits()} - {*CLIENTS}


def test_a_client_that_resumes_nothing_skips_the_scripts_of_two_prompts(tmp_path: Path) -> None:
    """A client without a second command skips the scripts of two prompts; the others play `resume`."""
    for name, each in CLIENTS.items():
        home = tmp_path / name
        home.mkdir()
        commands = each.prepare(Setting(home, home, "http://127.0.0.1:1", home, SCRIPTS["resume"]))
        two = {script for script, played in SCRIPTS.items() if played.prompts == 2}
        assert (two <= each.skips.keys()) == (not commands.again), name
        assert ("resume" in each.skips) == (not commands.again), name
