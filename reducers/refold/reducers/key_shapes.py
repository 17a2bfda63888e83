r"""The shapes in which well-known services write their keys, and how a secret stands in a header or a URL.

A shape earns its row by a prefix or a frame that prose, hashes, UUIDs and base64 pictures do not have. What is
looked for first are its *signs*, one of which stands in every match: a character that is not too common, with what must
stand before or after it. The shapes that share a character are searched for only where one of their signs is found.

Each pattern takes time in proportion to the text, whatever the text. That asks two things of it: a run of
characters without a bound is only begun where such a run begins (the boundary before it, `(?<!...)`, excludes what
the run takes), and every look ahead has a bound. Where that boundary stands behind the first letters, the search can
begin with these, and is several times faster. A pattern has at most one group: the secret, where the match
holds more. None but that of a private key goes over the end of a line, and all but that and those of `HEADERS` hold no
white space: who shows a text piece by piece counts on it.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple


class Shape(NamedTuple):
    """A kind of secret: what it is, signs as (character, condition), the pattern, and an example of its own."""

    name: str
    signs: tuple[tuple[str, str], ...]
    pattern: str
    example: str


# The examples are put together here, so that no scanner takes this file for a leak.
_X = "a1B2c3D4e5F6g7H8i9J0"
_PRIVATE = "PRIVATE KEY"
_BEGIN = r"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----"
_END = r"-----END [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----"
# A header's name and its value, as in HTTP, JSON (escaped too), YAML, or the arguments of a program.
_IS = r"\\?[\"']?[ \t]{0,2}[:=][ \t]{0,2}\\?[\"']?"
_DIGIT = r"(?=[A-Za-z._~+/-]{0,64}[0-9])"
# base64 of a short name and password may be without a digit, but hardly without a change of case.
_ODD = r"(?=[A-Za-z._~+/-]{0,64}(?:[0-9=]|(?<=[a-z])[A-Z]))"

LONGEST_KEY = 16384
"""Characters of a private key between its first line and its last."""

HEADERS = ("authorization", "bearer", "aws_secret_access_key", "secretaccesskey", "x-api-key")
"""Lower-case words by which a secret behind white space is known, on their line and at most 64 characters later."""

SHAPES: tuple[Shape, ...] = (
    Shape(
        "key of OpenAI, Anthropic, OpenRouter and others",
        (("-", r"(?<=sk-)(?<![\w-]sk-)"),),
        r"sk-(?<![\w-]sk-)(?:(?:proj|svcacct|admin|ant|or|lf)-[\w-]{20,}|(?=[A-Za-z]{0,48}[0-9])[A-Za-z0-9]{20,})",
        f"sk-ant-api03-{_X}{_X}",
    ),
    Shape(
        "token of GitHub",
        (("_", "(?<=gh[pousr]_)"), ("_", "(?<=github_pat_)")),
        r"(?<![A-Za-z0-9])gh[pousr]_[A-Za-z0-9]{36,}|(?<!\w)github_pat_\w{22,}",
        f"ghp_{_X}{_X}",
    ),
    Shape(
        "token of GitLab",
        (("-", "(?<=glpat-)"), ("-", "(?<=gl[dr]t-)")),
        r"(?<![\w-])gl(?:pa|d|r)t-[\w-]{20,}",
        f"glpat-{_X}",
    ),
    Shape(
        "access key of AWS",
        (("A", "(?<=A[KS]IA)"),),
        r"A[KS]IA(?<![A-Za-z0-9+/]A.IA)[A-Z0-9]{16}(?![A-Za-z0-9+/=])",
        "AKIA" + "Q3EGRIJK" * 2,
    ),
    Shape(
        "secret key of AWS",
        (("_", "(?<=aws_)(?=s)"), ("_", "(?<=AWS_)(?=S)"), ("A", "(?<=ecretA)")),
        rf"(?i:aws_secret_access_key|secretaccesskey){_IS}([A-Za-z0-9+/]{{40}})",
        f"aws_secret_access_key = {_X}{_X}",
    ),
    Shape(
        "key of Google", (("A", "(?=Iza)"),), r"AIza(?<![\w-]AIza)[\w-]{35}(?![\w-])", f"AIza{_X}{_X[:15]}"
    ),
    Shape(
        "OAuth token of Google",
        ((".", "(?<=ya29[.])"), ("-", "(?<=GOCSPX-)")),
        r"(?<![\w-])(?:ya29\.|GOCSPX-)[\w-]{20,}",
        f"ya29.{_X}{_X}",
    ),
    Shape(
        "token of Slack",
        (("-", "(?<=xox[abeoprs]-)"), ("-", "(?<=xapp-)")),
        r"(?<![A-Za-z0-9-])(?:xox[abeoprs]-|xapp-[0-9]-)[A-Za-z0-9-]{10,}",
        f"xoxb-1234567890-{_X}",
    ),
    Shape(
        "web hook of Slack",
        ((".", "(?<=hooks[.])"),),
        r"hooks\.slack\.com/services/([A-Za-z0-9/]{20,})",
        f"https://hooks.slack.com/services/T00/B00/{_X}",
    ),
    Shape(
        "key of Stripe",
        (("_", "(?<=[rs]k_)(?=live|test)"), ("_", "(?<=whsec_)")),
        r"(?<![A-Za-z0-9])(?:[sr]k_(?:live|test)|whsec)_[A-Za-z0-9]{16,}",
        f"sk_live_{_X}",
    ),
    Shape("token of Hugging Face", (("_", "(?<=hf_)"),), r"hf_(?<!\whf_)[A-Za-z0-9]{30,}", f"hf_{_X}{_X}"),
    Shape("token of npm", (("_", "(?<=npm_)"),), r"npm_(?<!\wnpm_)[A-Za-z0-9]{36,}", f"npm_{_X}{_X}"),
    Shape(
        "token of PyPI",
        (("-", "(?<=pypi-)(?=A)"),),
        r"pypi-AgEI(?<![\w-]pypi-AgEI)[\w-]{40,}",
        f"pypi-AgEI{_X}{_X}",
    ),
    Shape(
        "key of Groq, xAI, Perplexity or NVIDIA",
        (("_", "(?<=gsk_)"), ("-", "(?<=xai-)"), ("-", "(?<=pplx-)"), ("-", "(?<=nvapi-)")),
        r"(?<![\w-])(?:gsk_|xai-|pplx-|nvapi-)(?=[A-Za-z_-]{0,48}[0-9])[\w-]{32,}",
        f"gsk_{_X}{_X}",
    ),
    Shape(
        "key of SendGrid",
        ((".", "(?<=SG[.])"),),
        r"SG\.(?<![\w-]SG\.)[\w-]{22}\.[\w-]{43}",
        f"SG.{_X}Ab.{_X}{_X}Abc",
    ),
    Shape(
        "JSON web token",
        (("J", "(?<=eyJ)"),),
        r"eyJ(?<![\w-]eyJ)[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*",
        f"eyJ{_X}.eyJ{_X}.{_X}",
    ),
    Shape(
        "private key",
        (("V", "(?=ATE KEY)"),),
        # From the first line to the last; or, if that is not there, what looks like the lines of a key.
        rf"{_BEGIN}(?:(?:[^-]|-(?!----)){{0,{LONGEST_KEY}}}{_END}"
        rf"|(?:\s*[A-Za-z-]{{2,32}}: [^\n]{{0,200}}\n){{0,8}}[A-Za-z0-9+/=\s\\]{{16,{LONGEST_KEY}}})",
        f"-----BEGIN RSA {_PRIVATE}-----\n{_X}{_X}\n{_X}\n-----END RSA {_PRIVATE}-----",
    ),
    Shape(
        "authorisation header",
        (("z", "(?<=uthoriz)"), ("Z", "(?<=UTHORIZ)")),
        rf"(?i:authorization){_IS}(?i:basic|bearer|token)[ \t]{{1,2}}({_ODD}[\w.~+/=-]{{7,}}[\w~+/=-])",
        "Authorization: Basic dXNlcjpwYXNz",
    ),
    Shape(
        "bearer token",
        (("b", "(?=earer )"), ("B", "(?=earer |EARER )")),
        rf"(?i:bearer) {{1,2}}({_DIGIT}[\w.~+/=-]{{19,}}[\w~+/=-])",
        f"bearer {_X}",
    ),
    Shape(
        "API key header",
        (("-", "(?<=[xX]-)(?=[aA])"),),
        rf"(?i:x-api-key){_IS}({_DIGIT}[\w.~+/=-]{{15,}}[\w~+/=-])",
        f"x-api-key: {_X}",
    ),
    Shape(
        "password in a URL",
        ((":", "(?=//)"),),
        # Printable ASCII without quotes, brackets and what divides a URL. No template: `{password}`, `$PASSWORD`, `%s`.
        r"://[!#-&(-.0-9;=?A-\[\]-~]{0,128}:(?![{$%*])([!#-&(-.0-;=?@A-\[\]-~]{1,256})@",
        "postgres://app:hunter2@db.example:5432/app",
    ),
)


def _by_character() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for sign in dict.fromkeys(character for row in SHAPES for character, _ in row.signs):
        rows = [
            (row, [condition for character, condition in row.signs if character == sign]) for row in SHAPES
        ]
        conditions = "|".join(condition for _, group in rows for condition in group)
        yield sign, f"{re.escape(sign)}(?:{conditions})", tuple(row.pattern for row, group in rows if group)


SIGNS: tuple[tuple[str, str, tuple[str, ...]], ...] = tuple(_by_character())
"""Each character of a sign, the pattern of all signs of that character, and the shapes that may stand there."""
