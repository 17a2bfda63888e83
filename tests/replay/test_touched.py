"""What calls changed: by their tool, by the commands of a script, and with what came of them."""

import json

import pytest

from refold.engine import Agent, ScriptedModel, call, say, tool
from refold.replay.changes import ChangeLog, Outcome, find_changes
from refold.replay.command_effects import ChangeKind
from refold.replay.reader import run_follower
from refold.store import MemoryStore


def changes(name: str, arguments: object) -> list[str]:
    """What a call changes, one text each."""
    return [f"{kind} {target}" for kind, target, *_ in find_changes(name, json.dumps(arguments))]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("ls; cat x; git status", []),
        ("rm -rf build x", ["deleted build", "deleted x"]),
        ("cd a && sudo rm b", ["deleted b"]),
        ("find . -name x -delete", ["deleted . -name x"]),
        ("find . -exec rm {} ';'", ["deleted …"]),
        ("git push origin main", ["pushed origin main", "reached the remote of the repository"]),
        ("git -C x push", ["pushed the current branch", "reached the remote of the repository"]),
        ("git push -f git@github.com:a/b x", ["pushed git@github.com:a/b x by force", "reached github.com"]),
        ("git tag v1; git config a b; git remote add x y", ["wrote the repository"] * 3),
        ("git tag -l; git config a; git remote -v", []),
        ("cargo init --lib", ["unread "]),
        ("npm test", ["unread "]),
        ("npm run build", ["unread "]),
        ("go generate ./...", ["unread "]),
        ("cargo run -- wipe", ["unread "]),
        ("pip list; npm ls; cargo tree", []),
        ("uv run x", ["unread "]),
        ("git reset --hard HEAD~1", ["discarded uncommitted changes"]),
        ("git checkout -- a.py", ["discarded changes of a.py"]),
        ("git checkout main", ["wrote the repository"]),
        ("docker run x", ["unread "]),
        ("make", ["unread "]),
        ("tool --version", []),
        ("git fetch", ["reached the remote of the repository"]),
        ("git clean -n", []),
        ("git push --dry-run", []),
        ("git checkout .", ["discarded changes of ."]),
        ("git stash drop", ["discarded stashed changes"]),
        ("rm -rf -- -x", ["deleted -x"]),
        ("dd if=a of=b", ["wrote b"]),
        ("git clean -fd", ["discarded files that git does not track"]),
        ("git branch -D old", ["deleted branch old"]),
        ("git rm a", ["deleted a"]),
        ("git clone https://github.com/a/b", ["reached github.com"]),
        ("git clone git@github.com:a/b", ["reached github.com"]),
        ("echo x > a; echo y >> b 2>/dev/null", ["wrote a", "wrote b"]),
        ("tee a < b", ["wrote a"]),
        ("touch a b", ["wrote a", "wrote b"]),
        ("cp a b c", ["wrote c"]),
        ("mv a b", ["deleted a", "wrote b"]),
        ("sed -i s/a/b/ x y", ["wrote x", "wrote y"]),
        ("sed s/a/b/ x", []),
        ("curl -sS -o out https://example.com/x", ["reached example.com", "wrote out"]),
        ("curl -X POST -d a=b api.example.com/v1", ["reached api.example.com"]),
        ("wget http://example.com", ["reached example.com"]),
        ("ssh ana@host.example.com uptime", ["reached host.example.com"]),
        ("scp a ana@host:/b", ["reached host"]),
        ("npm install left-pad@1", ["installed left-pad@1"]),
        ("npm ci", ["installed all of the project"]),
        ("pip install -r requirements.txt flask", ["installed flask", "installed all of requirements.txt"]),
        ("uv pip install x", ["installed x"]),
        ("uv add y", ["installed y"]),
        ("apt-get install -y jq", ["installed jq"]),
        ("cargo add serde", ["installed serde"]),
        ("python setup.py", ["unread "]),
        ("bash -c 'rm x'", ["deleted x"]),
        ("eval $X", ["unread "]),
        ("rm $X", ["deleted …"]),
        ("f() { rm x; }; f", ["deleted x"]),
    ],
)
def test_commands(command: str, expected: list[str]) -> None:
    """The commands of a script, wherever they are in it."""
    assert expected == changes("bash", {"command": command})


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("Write", {"file_path": "a"}, ["wrote a"]),
        ("Edit", {"file_path": "a", "old_string": "rm -rf", "new_string": ""}, ["wrote a"]),
        ("write_file", {"path": "a", "content": "x"}, ["wrote a"]),
        ("delete_file", {"path": "a"}, ["deleted a"]),
        ("mcp__fs__write_file", {"path": "a"}, ["wrote a"]),
        ("apply_patch", {"input": "*** Add File: a\n+x\n*** Delete File: b\n"}, ["wrote a", "deleted b"]),
        ("WebFetch", {"url": "https://EXAMPLE.com./x"}, ["reached example.com"]),
        ("Read", {"file_path": "a"}, []),
        ("pay", {"cents": 30}, ["unread "]),
        ("lookup", {"uri": "/srv/x"}, ["unread "]),
        ("TodoWrite", {"todos": []}, []),
        ("shell", {"command": ["bash", "-lc", "rm a"]}, ["deleted a"]),
    ],
)
def test_tools(name: str, arguments: dict[str, object], expected: list[str]) -> None:
    """Tools that write, delete and fetch, of any harness."""
    assert expected == changes(name, arguments)


@pytest.mark.anyio
async def test_outcomes() -> None:
    """A failed call may have changed something, a refused one has not."""

    @tool(replay="read_only")
    async def bash(command: str) -> str:
        if "fail" in command:
            raise ValueError(command)
        return "ok"

    rules = [{"effect": "refuse", "command": ["rm"]}]
    script = [*(call("bash", command=each) for each in ("touch a", "touch fail", "rm x")), say("Done.")]
    store, policy = MemoryStore(), {"guards": [{"guard": "permissions", "rules": rules}]}
    agent = Agent(model=ScriptedModel(script), tools=[bash], store=store, policy=policy)
    await agent.start("Go.", run_id="r").result()
    found = await run_follower(ChangeLog(), store, "r")
    assert [Outcome.OK, Outcome.FAILED, Outcome.REFUSED] == [each.outcome for each in found]
    assert ["c1", "c2", "c3"] == [each.call for each in found]


@pytest.mark.parametrize("value", [None, 1, {"a": 1}, [1, 2], ""])
def test_arguments_of_other_types(value: object) -> None:
    """Arguments that are no commands, or cannot be read, are listed as unread."""
    assert ["unread "] * (value != "") == changes("bash", {"command": value})
    assert ["unread "] == changes("bash", value)


def test_erased_arguments_are_listed() -> None:
    """What erased arguments were about is not known."""
    assert [ChangeKind.UNREAD] == [kind for kind, *_ in find_changes("bash", None)]


@pytest.mark.parametrize(
    ("commands", "undone"),
    [
        (["touch a", "rm a"], [2, None]),
        (["touch a", "rm ./a"], [2, None]),
        (["touch a", "rm b"], [None, None]),
        (["touch a", "git checkout -- a"], [2, None]),
        (["touch a b", "git restore b"], [None, 2, None]),
        (["touch a", "git checkout ."], [2, None]),
        (["rm a", "git reset --hard"], [2, None]),
        (["rm a", "touch a"], [None, None]),
        (["touch a", "git reset --hard", "rm a"], [2, None, None]),
        (["touch /etc/x", "git reset --hard"], [None, None]),
        (["git commit -m x", "git reset --hard"], [None, None]),
        (["git branch -D x", "git reset --hard"], [None, None]),
        (["touch a", "fail && rm a"], [None, None]),
        (["git push", "git checkout ."], [None, None, None]),
    ],
)
@pytest.mark.anyio
async def test_what_may_undo_a_change(commands: list[str], undone: list[int | None]) -> None:
    """The first later call that deletes what was written, or discards it with git, and did not fail."""

    @tool(replay="read_only")
    def bash(command: str) -> str:
        """Run a command."""
        if command.startswith("fail"):
            raise ValueError(command)
        return "ok"

    store = MemoryStore()
    script = [*(call("bash", command=command) for command in commands), say("Done.")]
    await Agent(model=ScriptedModel(script), tools=[bash], store=store).run("Task", run_id="r")
    found = [each for each in await run_follower(ChangeLog(), store, "r") if each.kind.is_known]
    turns = {seq: turn for turn, seq in enumerate(dict.fromkeys(each.seq for each in found), 1)}
    assert undone == [each.undone_by and turns[each.undone_by] for each in found]
