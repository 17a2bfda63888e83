"""Shell commands as text: their parts, their verbs, whether they change anything, and a short form.

Nothing is run or expanded. Quotes, escapes and here-documents are parsed to find where a command ends;
`$(...)` is not.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from types import MappingProxyType
from typing import NamedTuple

# White space is one token, up to a possible separator: retrying at each blank would take quadratic time.
_TOKEN = re.compile(
    r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.|(?P<joint>[ \t]*(?:&&|\|\|?&?|;;?|(?<![>&<])&(?![&>\d]))[ \t]*|\s*\n\s*)"""
    r"""|[^'"\\&|;\s]+|\s+(?<![ \t])|[ \t]+|.""",
    re.DOTALL,
)
_HERE = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_WORD = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\]|['"\\])+""")
_BEFORE_A_COMMAND = frozenset(
    {"sudo", "time", "nice", "nohup", "env", "command", "exec", "do", "then", "else", "if", "while", "until", "!", "{", "(", "xargs", "timeout"}
)  # fmt: skip
_WITH_SUBCOMMANDS = frozenset(
    {"git", "gh", "glab", "npm", "pnpm", "yarn", "npx", "uv", "pip", "pip3", "poetry", "cargo", "go", "docker", "podman", "kubectl", "helm",
     "terraform", "aws", "gcloud", "az", "brew", "apt", "apt-get", "systemctl", "service", "make", "mise", "bun", "deno", "dotnet", "conda"}
)  # fmt: skip
_QUOTED = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|(\\.)""", re.DOTALL)
_SINGLE_QUOTED = re.compile(r"'[^']*'")
_SUBSTITUTED = re.compile(r"`|[$<>]\(")
_WRITES_FILE = re.compile(r"(?<![-=<>])(?:\d|&)?>{1,2}\s*([^\s;|&>]+)")
_READS = frozenset(
    {"[", "[[", "basename", "cat", "cd", "cmp", "column", "comm", "cut", "date", "df", "diff", "dirname", "done", "du", "echo",
     "egrep", "env", "exit", "export", "false", "fgrep", "fi", "file", "for", "grep", "head", "hostname", "id", "jq", "less", "ls",
     "md5sum", "more", "nl", "od", "popd", "printenv", "printf", "ps", "pushd", "pwd", "read", "readlink", "realpath", "return", "rg",
     "seq", "set", "sha256sum", "shasum", "sleep", "stat", "tac", "tail", "test", "tr", "tree", "true", "type", "uname", "uniq", "wait",
     "wc", "which", "whoami", "xxd", "yq", "}", ")", ":",
     "git status", "git log", "git diff", "git show", "git rev-parse", "git ls-files", "git blame", "git grep", "git describe",
     "git rev-list", "git merge-base", "git cat-file", "git ls-remote", "git shortlog", "git ls-tree", "git show-ref", "git reflog",
     "gh auth", "docker ps", "docker logs", "docker images", "docker inspect", "kubectl get", "kubectl describe", "kubectl logs",
     "npm ls", "npm view", "pip list", "pip show", "pip freeze", "go version", "go doc", "go env", "go list", "brew list",
     "systemctl status"}
)  # fmt: skip
_CHANGES = frozenset(
    {"apply_patch", "chmod", "chown", "chgrp", "cp", "dd", "install", "kill", "killall", "ln", "mkdir", "mkfs", "mv", "patch", "pkill",
     "reboot", "rm", "rmdir", "rsync", "scp", "shred", "shutdown", "tee", "touch", "truncate", "unlink", "unzip", "wget",
     "git add", "git am", "git apply", "git checkout", "git cherry-pick", "git clean", "git clone", "git commit", "git fetch",
     "git filter-branch", "git gc", "git init", "git merge", "git mv", "git pull", "git push", "git rebase", "git reset", "git restore",
     "git revert", "git rm", "git stash", "git submodule", "git switch", "git tag", "git update-ref", "git worktree",
     "npm install", "npm i", "npm ci", "npm publish", "npm uninstall", "pnpm install", "pnpm add", "yarn install", "yarn add",
     "pip install", "pip uninstall", "pip3 install", "uv add", "uv sync", "poetry add", "poetry install", "cargo add",
     "cargo install", "cargo publish", "go install", "go get", "go mod", "brew install", "brew uninstall", "apt install",
     "apt-get install", "apt remove", "apt-get remove", "docker rm", "docker rmi", "docker stop", "docker kill", "docker push",
     "kubectl apply", "kubectl create", "kubectl delete", "kubectl patch", "kubectl scale", "kubectl rollout", "helm install",
     "helm upgrade", "helm uninstall", "terraform apply", "terraform destroy", "systemctl start", "systemctl stop",
     "systemctl restart", "systemctl enable", "systemctl disable"}
)  # fmt: skip
_CHANGES_WITH: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "sed": ("-i", "--in-place"),
        "find": ("-delete", "-exec", "-ok", "-fprint", "-fls"),
        "sort": ("-o", "--output"),
        "git branch": (
            "-d",
            "-D",
            "-m",
            "-M",
            "-c",
            "-C",
            "-f",
            "--delete",
            "--move",
            "--set-upstream",
            "--force",
        ),
        "git remote": ("add", "remove", "rm", "rename", "set-url", "prune"),
    }
)
"""Commands that only read, except with one of these options."""
_READS_WITH: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "git stash": ("list", "show"),
        "git tag": ("-l", "--list", "--points-at", "--contains"),
        "git worktree": ("list",),
        "git submodule": ("status",),
        "git push": ("-n", "--dry-run"),
        "rsync": ("-n", "--dry-run"),
    }
)
"""Commands that change something, except with one of these words."""
_NAMED_WITH: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "git push": ("--force", "-f", "--force-with-lease", "--delete", "-d", "--mirror", "--prune"),
        "git checkout": ("--", "-f", "--force"),
        "git switch": ("--discard-changes", "-f", "--force"),
        "git stash": ("drop", "clear"),
        "git branch": ("-D", "-d", "--delete"),
        "git worktree": ("remove",),
        "git submodule": ("deinit",),
    }
)
"""Commands that are more harmful with one of these words, which is then part of their name."""
_LEAST = 8  # minimum characters of a part; a shorter one is useless
_MOST_OF_A_HEAD = 32  # characters
_SCANNED = 20_000  # maximum characters of a command that are parsed


class Part(NamedTuple):
    """A command of a command line: its separator from the one before ("" for the first), and its text."""

    joint: str
    text: str


def split(line: str) -> list[Part]:
    """Split a command line at `&&`, `||`, `|`, `;`, `&` and newlines outside of quotes.

    Pure; never raises. A newline becomes `; `. Comments and the text of a here-document are left out.
    """
    return [part for part in _parts(line[:_SCANNED]) if part.text and not part.text.startswith("#")]


def split_text(line: str) -> list[Part]:
    """Split a text of one line that may not be a command: separators need space around them."""
    parts = split(line)
    spaced = all(part.joint in ("&&", "||") or part.joint.endswith(" ") for part in parts[1:])
    return parts if spaced else [Part("", line)]


def _parts(line: str) -> Iterator[Part]:
    joint, begin, place = "", 0, 0
    while (found := _TOKEN.match(line, place)) is not None:
        place = found.end()
        if (sign := found["joint"]) is None:
            continue
        yield Part(joint, " ".join(line[begin : found.start()].split()))
        bare = sign.strip()
        joint = "; " if bare in ("", ";") else bare if bare == sign else f" {bare} "
        begin = place = _behind_document(line, found)
    yield Part(joint, " ".join(line[begin:].split()))


def _behind_document(line: str, joint: re.Match[str]) -> int:
    """Return where the next command begins, after a here-document opened before this newline."""
    here = "\n" in joint[0] and _HERE.search(line, line.rfind("\n", 0, joint.start()) + 1, joint.start())
    if not here:
        return joint.end()
    end = re.compile(rf"^[ \t]*{here[2]}[ \t]*$", re.MULTILINE).search(line, joint.end())
    return end.end() if end else len(line)


def words(part: str) -> list[str]:
    """Return the words of one command, with quotes."""
    return _WORD.findall(part)


def command_of(part: str) -> list[str]:
    """Return a command's words from its program on, without assignments and wrappers such as `env`."""
    told, begin = words(part), 0
    while begin < len(told) and (told[begin] in _BEFORE_A_COMMAND or _ASSIGNMENT.match(told[begin])):
        starter, begin = told[begin], begin + 1
        if starter in ("timeout", "nice", "xargs", "env", "sudo"):
            while begin < len(told) and (told[begin][0] == "-" or told[begin][0].isdigit()):
                begin += 1
    return told[begin:]


def verb(part: str) -> str:
    """Return the action of one command in one or two words: `rm`, `git reset`; "" if nothing is called."""
    told = command_of(part)
    if not told:
        return ""
    program = told[0].rpartition("/")[2]
    if program not in _WITH_SUBCOMMANDS:
        return program
    rest = iter(told[1:])
    for word in rest:
        if word in ("-C", "-c", "--prefix", "-n", "--namespace"):  # these options have a value
            next(rest, None)
        elif not word.startswith("-"):
            return f"{program} {word}"
    return program


def _empty_quotes(quoted: re.Match[str]) -> str:
    """Replace quoted text by empty quotes; keep an escaped character."""
    return quoted[1] or '""'


def find_change(part: str) -> str | None:
    """Return what one command changes: its verb, `git push`, or `> FILE`; None: nothing; "": unknown.

    Only common programs are known. A program that starts another one, such as an interpreter or a build tool,
    is unknown.
    """
    told = command_of(part)
    if (file := _WRITES_FILE.search(_QUOTED.sub(_empty_quotes, part))) and not file[1].startswith(
        ("/dev/", "&")
    ):
        return f"> {file[1]}"
    said, rest = verb(part), told[1:]
    program = said.partition(" ")[0]
    if any(word in _READS_WITH.get(said, ()) for word in rest):
        return None
    if said in _CHANGES or program in _CHANGES:
        return _add_modifier(said, rest)
    if (flags := _CHANGES_WITH.get(said)) is not None:
        return _add_modifier(said, rest) if any(word.startswith(flags) for word in rest) else None
    starts_another = _SUBSTITUTED.search(_SINGLE_QUOTED.sub("", part))
    return None if not starts_another and (not said or said in _READS or program in _READS) else ""


def _add_modifier(said: str, rest: Sequence[str]) -> str:
    """Return a verb with the word after it that makes it more harmful: `git push --force`."""
    worse = _NAMED_WITH.get(said, ())
    return next((f"{said} {each}" for word in rest if (each := word.partition("=")[0]) in worse), said)


def shorten(parts: Sequence[Part], most: int) -> str:
    """Shorten a command line to `most` characters and keep each command's verb; omitted text becomes `…`.

    If there is not enough space, options after the verbs are dropped first, then commands that only read,
    then those in the middle.
    """
    kept, least = list(range(len(parts))), _least
    if _measure(parts, kept, least) > most:
        least = _bare
        reading = [n for n, part in enumerate(parts) if find_change(part.text) is None]
        changing = sorted({*kept}.difference(reading))
        # Each command takes a character and a separator; more of them do not fit.
        for count in range(max(1, min(len(parts), (most + 1) // 2)), 0, -1):
            kept = _choose_commands(changing, reading, count)
            if _measure(parts, kept, least) <= most:
                break
    texts = [parts[n].text for n in kept]
    room = most - len(_join(parts, kept, [""] * len(kept)))
    line = _join(parts, kept, list(map(_shorten_part, texts, _widths(texts, room, least))))
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _choose_commands(changing: Sequence[int], reading: Sequence[int], count: int) -> list[int]:
    """Return the indexes of the `count` most important commands.

    All that change something and the first that read; or the first and last that change.
    """
    if count >= len(changing):
        return sorted([*changing, *reading[: count - len(changing)]])
    return [*changing[: (count + 1) // 2], *changing[len(changing) - count // 2 :]]


def _join(parts: Sequence[Part], kept: Sequence[int], texts: Sequence[str]) -> str:
    """Join the kept commands, shortened to `texts`, with `…` in place of the others."""
    line, last = "", -1
    for n, text in zip(kept, texts, strict=True):
        if n > last + 1:
            line += f"{parts[last + 1].joint}…"
        line += f"{parts[n].joint}{text}"
        last = n
    return line if last == len(parts) - 1 else f"{line}{parts[last + 1].joint}…"


def _measure(parts: Sequence[Part], kept: Sequence[int], least: Callable[[str], int]) -> int:
    texts = [parts[n].text[: least(parts[n].text)] for n in kept]
    return len(_join(parts, kept, texts))


def _head(text: str) -> str:
    """Return the verb of one command with the options right after it, as in `git reset --hard`."""
    said, told = verb(text), command_of(text)
    last = said.rpartition(" ")[2]
    place = next((n for n, word in enumerate(told) if word.rpartition("/")[2] == last), len(told))
    options = list(takewhile(lambda word: word.startswith("-"), told[place + 1 :]))
    return " ".join([said, *options[:2]])


def _least(text: str) -> int:
    return min(max(_LEAST, len(_head(text)) + 2), _MOST_OF_A_HEAD)


def _bare(text: str) -> int:
    return min(max(_LEAST, len(verb(text)) + 1), _MOST_OF_A_HEAD)


def _widths(texts: Sequence[str], room: int, least: Callable[[str], int]) -> list[int]:
    """Return the characters for each command: at least its verb, and an equal share of the rest."""
    widths = [min(len(text), least(text), max(room, 1)) for text in texts]
    rest = room - sum(widths)
    while rest > 0 and (wanting := [n for n, text in enumerate(texts) if widths[n] < len(text)]):
        share = max(1, rest // len(wanting))
        for place in wanting[:rest]:
            more = min(share, len(texts[place]) - widths[place])
            widths[place] += more
            rest -= more
    return widths


def _shorten_part(text: str, width: int) -> str:
    """Shorten one command to its verb and the end of the rest, which may name a file."""
    if len(text) <= width:
        return text
    said = _head(text)
    if (
        not text.startswith(said) and len(said) + 2 <= width
    ):  # assignments precede it, or options are within it
        tail = width - len(said) - 2
        return f"{said} …{text[len(text) - tail :]}"
    tail = max(0, (width - len(said) - 2) // 2)
    return f"{text[: max(width - 1 - tail, 0)].rstrip()}…{text[len(text) - tail :]}"
