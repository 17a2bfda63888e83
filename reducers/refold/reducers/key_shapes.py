r"""The shapes in which well-known services write their keys, and how a secret stands in a header or a URL.

A shape earns its row by a prefix or a frame that prose, hashes, UUIDs and base64 pictures do not have; what has a prefix
alone stands in `key_prefixes`. What is looked for first are a shape's *signs*, one of which stands in every match: a
character that is not too common, with what must stand before or after it. A shape is searched for only where one of
its signs is found.

Each pattern takes time in proportion to the text, whatever the text. That asks two things of it: a run of
characters without a bound is only begun where such a run begins (the boundary before it, `(?<!...)`, excludes what
the run takes), and every look ahead has a bound. Where that boundary stands behind the first letters, the search can
begin with these, and is several times faster. A pattern has at most one group: the secret, where the match
holds more. None but that of a private key goes over the end of a line, and all but that, those of `HEADERS` and what is an
assignment too (see `assignments.opened`) hold no white space: who shows a text piece by piece counts on it.
"""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from refold.reducers.assignments import ESCAPES
from refold.reducers.key_prefixes import KEYS, Key


class Shape(NamedTuple):
    """A kind of secret: what it is, signs as (character, condition), and the pattern."""

    name: str
    signs: tuple[tuple[str, str], ...]
    pattern: str


_BEGIN = r"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----"
_END = r"-----END [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----"
# A header's name and its value, as in HTTP, JSON (escaped too), YAML, or the arguments of a program.
_QUOTED = rf"(?:{ESCAPES}[\"'])?"
_IS = rf"{_QUOTED}[ \t]{{0,2}}[:=][ \t]{{0,8}}{_QUOTED}"
_DIGIT = r"(?=[A-Za-z._~+/-]{0,64}[0-9])"
# base64 of a short name and password may be without a digit, but hardly without a change of case.
_ODD = r"(?=[A-Za-z._~+/-]{0,64}(?:[0-9=]|(?<=[a-z])[A-Z]))"


class Sign(NamedTuple):
    """What to look for before shapes are: a character (or word), the pattern of all signs of it, these shapes' patterns.

    The pattern has a group for each of the shapes; no two of these have a sign in one place.
    """

    character: str
    pattern: str
    shapes: tuple[str, ...]


LONGEST_KEY = 16384
"""Characters of a private key between its first line and its last."""

HEADERS: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(
            ("authorization", "bearer", "aws_secret_access_key", "secretaccesskey", "x-api-key"), 96
        ),
        "curl": 512,
    }
)
"""Lower-case words by which a secret behind white space is known, on their line; farther behind where they begin none does."""

_FRAMES: tuple[Shape, ...] = (
    Shape("key of OpenAI, Anthropic, OpenRouter and others", (("-", r"(?<=sk-)(?<![\w-]sk-)"),),
          r"sk-(?<![\w-]sk-)(?:(?:proj|svcacct|admin|ant|or|lf)-[\w-]{20,}|(?=[A-Za-z]{0,48}[0-9])[A-Za-z0-9]{20,})"),
    Shape("secret key of AWS",
          (("_", "(?<=(?i:aws_))(?=(?i:s))"), ("A", "(?<=ecretA)"), ("A", "(?<=ECRETA)")),
          rf"(?:(?i:aws_secret_access_key)|[sS]ecretAccess[kK]ey|SECRETACCESSKEY){_IS}([A-Za-z0-9+/]{{40}})"),
    Shape("token of Slack", (("-", "(?<=xox[abcdeoprs]-)"), ("-", "(?<=xapp-)")),
          r"(?<![A-Za-z0-9-])(?:xox[abcdeoprs]-|xapp-[0-9]-)[A-Za-z0-9-]{10,}"),
    Shape("web hook of Slack", ((".", "(?<=hooks[.])"),),
          r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9/+]{20,})"),
    Shape("key of SendGrid", ((".", "(?<=SG[.])"),),
          r"SG\.(?<![\w-]SG\.)[\w-]{22}\.[\w-]{43}"),
    # Or half of one, as Grafana's old keys are.
    Shape("JSON web token", (("J", "(?<=eyJ)"),),
          r"eyJ(?<![\w-]eyJ)(?:[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*|rIjoi[\w+/-]{60,}={0,2})"),
    # From the first line to the last; or, if that is not there, what looks like the lines of a key.
    Shape("private key", (("V", "(?=ATE KEY)"),),
          rf"{_BEGIN}(?:(?:[^-]|-(?!----)){{0,{LONGEST_KEY}}}{_END}"
          rf"|(?:\s*[A-Za-z-]{{2,32}}: [^\n]{{0,200}}\n){{0,8}}[A-Za-z0-9+/=\s\\]{{16,{LONGEST_KEY}}})"),
    Shape("authorisation header", (("z", "(?<=(?i:uthoriz))"), ("Z", "(?<=(?i:uthoriz))")),
          rf"(?i:authorization){_IS}(?i:basic|bearer|token|apikey|ssws)[ \t]{{1,8}}({_ODD}[\w.~+/=-]{{7,}}[\w~+/=-])"),
    Shape("bearer token", (("b", "(?=(?i:earer) )"), ("B", "(?=(?i:earer) )")),
          rf"(?i:bearer) {{1,2}}({_DIGIT}[\w.~+/=-]{{19,}}[\w~+/=-])"),
    Shape("API key header", (("-", "(?<=[xX]-)(?=[aA][pP][iI]-)"),),
          rf"(?i:x-api-key){_IS}({_DIGIT}[\w.~+/=-]{{15,}}[\w~+/=-])"),
    Shape("web hook of Discord", ((".", "(?<=discord[.])(?=com/api/)"), (".", "(?<=discordapp[.])(?=com/api/)")),
          r"discord(?:app)?\.com/api/(?:v[0-9]{1,2}/)?webhooks/[0-9]{10,32}/([\w-]{40,})"),
    Shape("web hook of Teams", ((".", "(?=office[.]com/webhookb2/)"),),
          r"webhook\.office\.com/webhookb2/([\w@/-]{40,})"),
    Shape("token of a Discord bot", ((".", r"(?<=[\w-]{23}[.])(?=[\w-]{6}[.][\w-]{27})"),),
          r"(?<![\w-])[MNO][\w-]{22,27}\.[\w-]{6}\.[\w-]{27,}"),
    Shape("token of a Telegram bot", ((":", r"(?=A[\w-]{34})"),),
          r"(?<![0-9])[0-9]{5,16}:A[\w-]{34}(?![\w-])"),
    Shape("token of Terraform", ((".", "(?=atlasv1[.])"),),
          r"(?<![A-Za-z0-9])[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{60,}"),
    Shape("old token of Vault", ((".", r"(?<=s[.])(?<![\w.]s[.])(?=[A-Za-z0-9]{24})"),),
          r"(?<![\w.])s\.(?=[A-Za-z]{0,23}[0-9])(?=[a-z0-9]{0,23}[A-Z])[A-Za-z0-9]{24}(?![\w(\[-])"),
    Shape("token of Airtable", ((".", "(?<=pat[A-Za-z0-9]{14}[.])(?=[a-f0-9]{64})"),),
          r"(?<![A-Za-z0-9])pat[A-Za-z0-9]{14}\.[a-f0-9]{64}"),
    Shape("token of Harness", ((".", r"(?<=[ps]at[.])(?=[\w-]{22}[.])"),),
          r"(?<![A-Za-z0-9])[ps]at\.[\w-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20}"),
    Shape("key of Authress", ((".", "(?=acc[_-])"),),
          r"(?<![A-Za-z0-9])(?:sc|ext|scauth|authress)_[A-Za-z0-9]{5,30}\.[A-Za-z0-9]{4,6}\.acc[_-][A-Za-z0-9-]{10,32}"
          r"\.[\w+/=-]{30,}"),
    Shape("key of MaxMind", (("_", "(?=[A-Za-z0-9]{29}_mmk)"),),
          r"(?<![A-Za-z0-9])[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk(?![A-Za-z0-9])"),
    Shape("key of Mailchimp", (("-", "(?=us[0-9]{1,2})"),),
          r"(?<![A-Za-z0-9])[a-f0-9]{32}-us[0-9]{1,2}(?![A-Za-z0-9])"),
    Shape("client secret of Azure", (("~", "(?<=[0-9]Q~)"),),
          r"(?<![\w~.-])[\w~.]{3}[0-9]Q~[\w~.-]{31,34}(?<![.])(?![\w~-])"),
    Shape("signature of Azure", (("=", "(?<=[?&;]sig=)"), ("=", "(?<=%26sig=)")),
          r"(?:[?&;]|%26)sig=([A-Za-z0-9%+/]{30,}={0,2})"),
    Shape("connection string of Azure", (("=", "(?<=Key=)(?=[A-Za-z0-9+/]{40})"),),
          r"(?:Account|Access)Key=([A-Za-z0-9+/]{40,}={0,2})"),
    Shape("account and token of Twilio", ((":", "(?=[a-f0-9]{32})"),),
          r"(?<![A-Za-z0-9])(?:AC|SK)[a-f0-9]{32}:([a-f0-9]{32})(?![a-f0-9])"),
    Shape("token of a Facebook app", (("|", r"(?<=[0-9]{15}[|])(?=[\w-]{27})"),),
          r"(?<![0-9])[0-9]{15,16}\|([\w-]{27,40})(?![\w-])"),
    Shape("session of GitLab", (("_", "(?=gitlab_session=)"),),
          r"_gitlab_session=([a-z0-9]{32})"),
    Shape("password of Sidekiq", (("_", "(?=CONTRIBSYS__COM)"),),
          rf"_CONTRIBSYS__COM{_IS}([a-f0-9]{{8}}:[a-f0-9]{{8}})"),
    Shape("password of a NuGet source", (("=", '(?<=" value=)'),),
          rf"assword{ESCAPES}\" value={ESCAPES}\"([^\"\s%$]{{7,199}}[^\"\s%$\\])(?={ESCAPES}\")"),
    Shape("credentials of Docker", ((":", rf"(?=[ \t]{{0,2}}{ESCAPES}\"[A-Za-z0-9+/]{{12,64}}[\\=\"A-Za-z0-9+/])"),),
          rf"auth(?<![A-Za-z0-9]auth){ESCAPES}\"[ \t]{{0,2}}:[ \t]{{0,2}}{ESCAPES}\"([A-Za-z0-9+/]{{12,}}={{0,2}})"
          rf"(?={ESCAPES}\")"),
    Shape("password of curl", (("-", "(?=u[ =])"), ("-", "(?=-user[ =])")),
          r"\bcurl\b[^\n;|]{0,400}?[ \t](?:-u|--user)[ =](?:\\{0,15}[\"'])?[\w.@+-]{1,64}:(?![$%{*])"
          r"([^\s\"':]{2,199}[^\s\"':\\])"),
    Shape("JSON web token in base64", (("Z", "(?=XlK)"),),
          r"(?<![A-Za-z0-9+/])ZXlK[A-Za-z0-9+/]{40,}={0,2}"),
    # Printable ASCII without quotes, brackets and what divides a URL. No template: `{password}`, `$PASSWORD`, `%s`.
    Shape("password in a URL", ((":", "(?=//)"),),
          r"://[!#-&(-.0-9;=?A-\[\]-~]{0,128}:(?![{$%*])([!#-&(-.0-;=?@A-\[\]-~]{1,256})@"),
)  # fmt: skip


# What a key begins with must not go on something: the end of another word, of a hash, or of a picture.
_BEGINS, _MOST_BEFORE = r"(?<![\w+/-])", r"(?<![A-Za-z0-9])"
_ENDINGS = "_-.~"


def _of_prefix(key: Key) -> Shape:
    r"""The shape of a key with a prefix. Its sign is the prefix's last character, or the rarest of a bare word."""
    run = rf"[{key.characters}]{{{key.length}}}"
    # What may hold a dash or an underscore could be a long name of something: no such name has digits and capitals.
    odd = (
        "(?=[a-z_.=-]{0,48}[A-Z0-9])" if {"-", "_", r"\w"} & {key.characters[-1:], key.characters[:2]} else ""
    )
    bare = key.starts[0][-1] not in _ENDINGS
    starts = "|".join(map(re.escape, key.starts))
    more = (
        f"(?![{key.characters}])" if key.exact else rf"[{key.characters}]*(?<![.])"
    )  # which ends the sentence
    return Shape(
        f"token of {key.service}",
        tuple(_sign(start, run) for start in key.starts),
        f"{_BEGINS if bare else _MOST_BEFORE}(?:{starts}){odd}{run}{more}",
    )


def _sign(start: str, run: str) -> tuple[str, str]:
    if start[-1] in _ENDINGS:
        return start[-1], f"(?<={re.escape(start)})(?={run})"
    place = next((place for place, letter in enumerate(start) if letter.isupper()), None)
    if place is None:
        return start, f"(?={run})"
    return start[place], f"(?<={start[: place + 1]})(?={start[place + 1 :]}{run})"


SHAPES: tuple[Shape, ...] = (*_FRAMES, *map(_of_prefix, KEYS))
"""All shapes."""

# Behind most of the characters by which a shape is known stands a word, behind the shape's a run that words are not.
_RUNS = {
    "-": r"(?=[\w+/=.-]{10}|[aA][pP][iI]-|us[0-9]|u[ =]|-user[ =])",
    "_": r"(?=[\w+/=.-]{14})",
    ".": r"(?=[\w+/=.-]{20})",
    ":": rf"(?=//|[ \t]{{0,2}}{ESCAPES}\"[A-Za-z0-9+/]{{12}}|A[\w-]{{34}}|[a-f0-9]{{32}})",
}


def _by_character() -> Iterator[Sign]:
    for character in dict.fromkeys(character for row in SHAPES for character, _ in row.signs):
        there = [(row, [rule for sign, rule in row.signs if sign == character]) for row in SHAPES]
        rules = "|".join(f"(?:{'|'.join(group)})()" for _, group in there if group)
        pattern = f"{re.escape(character)}{_RUNS.get(character, '')}(?:{rules})"
        yield Sign(character, pattern, tuple(row.pattern for row, group in there if group))


SIGNS: tuple[Sign, ...] = tuple(_by_character())
"""What is looked for first."""
