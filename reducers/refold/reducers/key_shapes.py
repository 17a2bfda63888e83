"""The shapes of keys of well-known services.

Sources: the services' documentation, and the public rules of secret scanners for undocumented lengths. Keys
without a distinctive prefix are not listed: they need a frame (below) or a name (`assignments`).

A shape needs a prefix or frame that text, hashes, UUIDs and base64 pictures do not have. The search first
looks for a shape's *signs*, one of which is in every match: an uncommon character, with what must precede or
follow it. Only where a sign is found is the shape searched.

Each pattern takes time linear in the text, whatever the text. For that, an unbounded run of characters may
begin only at a boundary (`(?<!...)` before it excludes the characters of the run), and every look-ahead is
bounded. If the boundary comes after the first letters, the search can begin with these, which is several
times faster. A pattern has at most one group: the secret, if the match is longer. Only the pattern of a
private key crosses line ends. Matches have no white space, except private keys, those of `LEADS`, and
assignments (see `assignments.find_open`). Streaming redaction relies on that.
"""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from refold.reducers.assignments import ESCAPES

ALNUM = "A-Za-z0-9"
HEX = "a-f0-9"
CAPS = "A-Z0-9"
URL64 = r"\w-"
BASE64 = "A-Za-z0-9+/"
DOTTED = r"\w=.-"


class Key(NamedTuple):
    """A service's keys: a prefix from `starts`, then at least `length` of these `characters`."""

    service: str
    starts: tuple[str, ...]
    characters: str
    length: int
    exact: bool = False


KEYS: tuple[Key, ...] = (
    Key("1Password, secret key", ("A3-",), r"A-Z0-9-", 31),
    Key("1Password, service account", ("ops_",), BASE64, 100),
    Key("Adobe", ("p8e-",), ALNUM, 32),
    Key("age", ("AGE-SECRET-KEY-1",), CAPS, 58),
    Key("Alibaba", ("LTAI",), ALNUM, 20, exact=True),
    Key("Artifactory", ("AKCp", "cmVmd"), ALNUM, 59),
    Key("Atlassian", ("ATATT3", "ATCTT3"), r"\w=-", 60),
    Key("AWS, access key", ("AKIA", "ASIA", "ABIA", "ACCA"), CAPS, 16, exact=True),
    Key("AWS, Bedrock", ("ABSK",), BASE64, 100),
    Key("AWS, Bedrock for a while", ("bedrock-api-key-",), BASE64, 28),
    Key("Bitbucket", ("ATBB",), ALNUM, 32, exact=True),
    Key("Brevo", ("xkeysib-", "xsmtpsib-"), r"a-z0-9-", 64),
    Key("Buildkite", ("bkua_",), HEX, 40),
    Key("CircleCI", ("CCIPAT_",), r"\w", 40),
    Key("ClickHouse", ("4b1d",), ALNUM, 38, exact=True),
    Key("Clojars", ("CLOJARS_",), ALNUM, 60),
    Key("Cloudflare, origin CA", ("v1.0-",), r"a-f0-9-", 100),
    Key("Contentful", ("CFPAT-",), URL64, 43),
    Key("Databricks", ("dapi",), HEX, 32, exact=True),
    Key("Defined Networking", ("dnkey-",), r"a-z0-9=_-", 70),
    Key("DigitalOcean", ("dop_v1_", "doo_v1_", "dor_v1_"), HEX, 64),
    Key("Docker Hub", ("dckr_pat_", "dckr_oat_"), URL64, 27),
    Key("Doppler", ("dp.pt.", "dp.st.", "dp.ct.", "dp.sa.", "dp.scim.", "dp.audit."), r"\w.-", 40),
    Key("Dropbox", ("sl.",), r"\w=-", 130),
    Key("Duffel", ("duffel_test_", "duffel_live_"), r"\w=-", 43),
    Key("Dynatrace", ("dt0c01.", "dt0s01.", "dt0s16."), r"A-Za-z0-9.", 80),
    Key("E2B", ("e2b_",), HEX, 40),
    Key("EasyPost", ("EZAK", "EZTK"), ALNUM, 54, exact=True),
    Key("ElevenLabs", ("sk_",), HEX, 48),
    Key("Facebook", ("EAAM", "EAAC", "EAAB", "EAAG"), ALNUM, 90),
    Key("Figma", ("figd_",), URL64, 40),
    Key("Flutterwave", ("FLWSECK-", "FLWSECK_TEST-", "FLWPUBK-", "FLWPUBK_TEST-"), r"a-zA-Z0-9-", 12),
    Key("Fly", ("fo1_",), URL64, 43),
    Key("Fly, macaroon", ("fm1a_", "fm1r_", "fm2_"), BASE64, 60),
    Key("Frame.io", ("fio-u-",), r"\w=-", 60),
    Key("GitHub", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), ALNUM, 36),
    Key("GitHub, fine-grained", ("github_pat_",), r"\w", 22),
    Key(
        "GitLab",
        (
            "glpat-", "gldt-", "glrt-", "glptt-", "glcbt-", "glft-", "glffct-", "glimt-", "glagent-", "gloas-",
            "glsoat-", "glrtr-", "GR1348941",
        ),
        r"\w.-",
        20,
    ),
    Key("Google", ("AIza",), URL64, 35, exact=True),
    Key("Google, OAuth", ("ya29.", "GOCSPX-"), URL64, 20),
    Key("Grafana", ("glsa_", "glc_"), r"\w+/=", 32),
    Key("Groq", ("gsk_",), ALNUM, 32),
    Key("Heroku", ("HRKU-",), URL64, 36),
    Key("Hugging Face", ("hf_", "api_org_"), ALNUM, 30),
    Key("Infracost", ("ico-",), ALNUM, 32, exact=True),
    Key("intra42", ("s-s4t2ud-", "s-s4t2af-"), HEX, 64),
    Key("LangSmith", ("lsv2_pt_", "lsv2_sk_"), r"a-f0-9_", 32),
    Key("LaunchDarkly", ("sdk-", "mob-"), r"a-f0-9-", 36, exact=True),
    Key("Linear", ("lin_api_", "lin_oauth_"), ALNUM, 40),
    Key("Mailgun", ("key-", "pubkey-"), HEX, 32, exact=True),
    Key("New Relic", ("NRAK-", "NRII-", "NRJS-", "NRRA-", "NRSP-", "NRIQ-"), r"A-Za-z0-9-", 19),
    Key("Netlify", ("nfp_",), ALNUM, 36),
    Key("Notion", ("ntn_", "secret_"), ALNUM, 43),
    Key("npm", ("npm_",), ALNUM, 36),
    Key("NVIDIA", ("nvapi-",), URL64, 32),
    Key("Octopus Deploy", ("API-",), CAPS, 26, exact=True),
    Key("OpenShift", ("sha256~",), URL64, 43),
    Key("Perplexity", ("pplx-",), ALNUM, 32),
    Key("Pinecone", ("pcsk_",), r"\w", 40),
    Key("Plaid", ("access-sandbox-", "access-development-", "access-production-"), r"a-f0-9-", 36),
    Key("PlanetScale", ("pscale_tkn_", "pscale_oauth_", "pscale_pw_"), DOTTED, 32),
    Key("Postman", ("PMAK-",), r"a-f0-9-", 59),
    Key(
        "private key in base64",
        (
            "LS0tLS1CRUdJTiBQUklWQVRF", "LS0tLS1CRUdJTiBSU0EgUFJJVkFURS", "LS0tLS1CRUdJTiBFQyBQUklWQVRF",
            "LS0tLS1CRUdJTiBPUEVOU1NIIFBSSVZBVEUg", "LS0tLS1CRUdJTiBFTkNSWVBURUQgUFJJVkFURS",
        ),
        r"A-Za-z0-9+/=",
        40,
    ),
    Key("Prefect", ("pnu_",), ALNUM, 36),
    Key("Pulumi", ("pul-",), HEX, 40),
    Key("PyPI", ("pypi-",), URL64, 60),
    Key("ReadMe", ("rdme_",), r"a-z0-9", 70),
    Key("Replicate", ("r8_",), ALNUM, 37),
    Key("RubyGems", ("rubygems_",), HEX, 48),
    Key("Scalingo", ("tk-us-",), URL64, 48),
    Key("Sentry", ("sntryu_",), HEX, 64),
    Key("Sentry, organisation", ("sntrys_",), r"\w+/=", 60),
    Key("SettleMint", ("sm_aat_", "sm_pat_", "sm_sat_"), ALNUM, 16),
    Key("Shippo", ("shippo_live_", "shippo_test_"), "A-Fa-f0-9", 40),
    Key("Shopify", ("shpat_", "shpca_", "shppa_", "shpss_"), "A-Fa-f0-9", 32),
    Key("SonarQube", ("squ_", "sqp_", "sqa_"), r"\w=-", 40),
    Key("Sourcegraph", ("sgp_",), r"\w", 40),
    Key("Square", ("sq0atp-", "sq0csp-"), URL64, 22),
    Key("Square, access token", ("EAAA",), URL64, 56),
    Key("Stripe", ("sk_live_", "sk_test_", "sk_prod_", "rk_live_", "rk_test_", "rk_prod_", "whsec_"), ALNUM, 10),
    Key("Supabase", ("sbp_", "sb_secret_"), URL64, 30),
    Key("Tailscale", ("tskey-",), r"A-Za-z0-9-", 20),
    Key("Tavily", ("tvly-",), URL64, 32),
    Key("Twilio", ("SK",), "A-Fa-f0-9", 32, exact=True),
    Key("Typeform", ("tfp_",), DOTTED, 43),
    Key("Vault", ("hvs.", "hvb.", "hvr."), URL64, 24),
    Key("xAI", ("xai-",), ALNUM, 32),
    Key("Yandex", ("AQVN",), URL64, 35),
)  # fmt: skip


class Shape(NamedTuple):
    """A kind of secret: what it is, signs as (character, condition), and the pattern."""

    name: str
    signs: tuple[tuple[str, str], ...]
    pattern: str


_BEGIN = r"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----"
_END = r"-----END [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----"
# A header's name and its value, in HTTP, JSON (also escaped), YAML, or arguments of a program.
_QUOTED = rf"(?:{ESCAPES}[\"'])?"
_IS = rf"{_QUOTED}[ \t]{{0,2}}[:=][ \t]{{0,8}}{_QUOTED}"
_IN_TABLE = rf"{_QUOTED}[ \t]{{0,24}}[:=|][ \t]{{0,24}}{_QUOTED}"
# A value in a command, but not a variable or template.
_ARGUMENT = r"(?![$%{*<])([^\s\"'\\][^\s\"']{2,199}[^\s\"'\\])"
_NEW_LINE = r"(?:\r?\n|(?:\\{1,15}r)?\\{1,15}n)"
_DIGIT = r"(?=[A-Za-z._~+/%-]{0,64}[0-9])"
_FOUR_DIGITS = "(?=(?:[a-z=_-]{0,24}[0-9]){4})"
_NO_WORD = r"(?=[a-z+/=._-]{0,48}[A-Z0-9])"
# base64 of a short name and password may lack a digit, but hardly ever a change of case.
_ODD = r"(?=[A-Za-z._~+/-]{0,64}(?:[0-9=]|(?<=[a-z])[A-Z]))"


class Sign(NamedTuple):
    """A first search: a character or word, the pattern of its signs, and the patterns of its shapes."""

    character: str
    pattern: str
    shapes: tuple[str, ...]


LONGEST_KEY = 16384
"""Maximum number of characters between the first and last line of a private key."""

_TO_VALUE = r"[\"'\\ \t]{0,24}(?:[:=|]|\Z)"
LEADS: Mapping[str, int] = MappingProxyType(
    {
        "bearer ": 32,
        rf"(?:aws_secret_access_key|secretaccesskey|x-api-key){_TO_VALUE}": 128,
        rf"authorization{_TO_VALUE}": 1024,
        rf"cookie{_TO_VALUE}": 4160,
        r"\b(?:curl|mysql|mariadb|redis-cli|sshpass)": 640,
        "digest ": 1024,
        "assword[^ ]{1,16} value": 256,
    }
)
"""Patterns, in lower case, of text that precedes a secret with white space between, and the reach in
characters: from the start of the lead to the start of the secret, or to its end if it contains white space.
"""

_FRAMES: tuple[Shape, ...] = (
    Shape("key of OpenAI, Anthropic, OpenRouter and others", (("-", r"(?<=sk-)(?<![\w-]sk-)"),),
          rf"sk-(?<![\w-]sk-){_NO_WORD}(?:(?:proj|svcacct|admin|ant|or|lf)-[\w-]{{20,}}"
          r"|(?=[A-Za-z]{0,48}[0-9])[A-Za-z0-9]{20,})"),
    Shape("secret key of AWS",
          (("_", "(?<=(?i:aws_))(?=(?i:s))"), ("A", "(?<=ecretA)"), ("A", "(?<=ECRETA)")),
          rf"(?:(?i:aws_secret_access_key)|[sS]ecretAccess[kK]ey|SECRETACCESSKEY){_IN_TABLE}"
          r"([A-Za-z0-9+/]{40,}={0,2})"),
    Shape("token of Slack", (("-", "(?<=xox[abcdeoprs]-)"), ("-", "(?<=xapp-)")),
          rf"(?<![A-Za-z0-9-])(?:xox[abcdeoprs]-{_NO_WORD}|xapp-[0-9]-)[A-Za-z0-9-]{{8,}}"),
    Shape("web hook of Slack", ((".", "(?<=hooks[.])"),),
          r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9/+]{20,})"),
    Shape("key of SendGrid", ((".", "(?<=SG[.])"),),
          r"SG\.(?<![\w-]SG\.)(?:[\w-]{22}\.[\w-]{43}|(?=[\w=.-]{0,64}[0-9])[\w=.-]{65}[\w=-])"),
    # Or half of one, like Grafana's old keys.
    Shape("JSON web token", (("J", "(?<=eyJ)"),),
          r"eyJ(?<![\w-]eyJ)(?:[\w-]{8,}\.ey[\w/-]{9,}\.[\w/-]*|rIjoi[\w+/-]{60,}={0,2})"),
    # From the first line to the last; without a last line, what looks like lines of a key.
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
          rf"(?<![A-Za-z0-9])[A-Za-z0-9]{{6}}_{_NO_WORD}[A-Za-z0-9]{{29}}_mmk(?![A-Za-z0-9])"),
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
    Shape("token of a Facebook app", (("|", r"(?<=[0-9]{15}[|])(?=[\w-]{27})"), ("%", r"(?<=[0-9]{15}%)(?=[\w-]{27})")),
          r"(?<![0-9])[0-9]{15,16}[|%]([\w-]{27,42})(?![\w-])"),
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
          rf"\bcurl\b[^\n;|]{{0,400}}?[ \t](?:-u|--user)[ =]{_QUOTED}[^\s\"':\\]{{1,64}}:(?![$%{{*<])"
          r"([^\s\"']{2,199}[^\s\"'\\])"),
    Shape("cookie of curl", (("-", "(?=b[ =])"), ("-", "(?=-cookie[ =])")),
          rf"\bcurl\b[^\n;|]{{0,400}}?[ \t](?:-b|--cookie)[ =]{_QUOTED}[\w.%-]{{1,64}}=({_DIGIT}[^\s\"';,\\]{{16,}})"),
    Shape("password of MySQL", (("-", r"(?<=[ \t]-)(?<!sshpass[ \t]-)(?=p[^\s=-])"),),
          rf"m(?:ysql|ariadb)(?<!\wmysql)(?<!\wmariadb)[a-z-]{{0,16}}\b[^\n;|]{{0,400}}?[ \t]-p"
          rf"{_QUOTED}(?!=|-){_ARGUMENT}"),
    Shape("password of sshpass", (("-", r"(?<=sshpass[ \t]-)(?=p)"),),
          rf"\bsshpass[ \t]-p[ \t]{{0,4}}{_QUOTED}(?!=|-){_ARGUMENT}"),
    Shape("password of Redis", (("-", r"(?<=redis-)(?=cli[ \t])"),),
          rf"\bredis-cli[ \t][^\n;|]{{0,400}}?(?<=[ \t])(?:-a|--pass)[ =]{_QUOTED}{_ARGUMENT}"),
    Shape("password of PostgreSQL", ((":", r"(?=(?:543[0-9]|6432|\*):[\w.*-]{1,64}:)"),),
          r"(?<![\w.*:/@-])[\w.*-]{1,128}:(?:543[0-9]|6432|\*):[\w.*-]{1,64}:[\w.@-]{1,64}:"
          r"((?=[!#-&(-~]{0,64}[0-9!#$%&*?@^~])[!#-&(-9;-~]{5,199}[\w!#$%&*?@^~+=-])"),
    Shape("cookie that a server sets", (("ookie", "(?<=[sS]et-[cC]ookie)"),),
          rf"[sS]et-[cC]ookie{_IS}[\w.%-]{{1,64}}=({_DIGIT}[^\s\"';,\\]{{16,}})"),
    Shape("cookies of a client", (("ookie", "(?<=[cC]ookie)(?<!-[cC]ookie)"),),
          rf"[cC]ookie(?<!-[cC]ookie){_IS}(?=[^\n\"'\\]{{0,512}}=[A-Za-z_.%-]{{0,64}}[0-9][^\s\"';,\\]{{8}})"
          r"([\w.%-]{1,64}=[^\n\"'\\]{16,4000}[\w=%+/~-])"),
    Shape("digest of a password", (("=", "(?<=response=)"),),
          rf"(?i:digest) [^\n]{{1,800}}?\bresponse={_QUOTED}([a-f0-9]{{32,64}})(?![a-f0-9])"),
    Shape("signature of a URL", (("=", "(?<=[sS]ignature=)(?=[a-f0-9]{64})"),),
          r"(?<=[sS])ignature=([a-f0-9]{64,})"),
    Shape("hash of a password", (("$", r"(?=(?:1|2[abxy]?|5|6|7|y|gy|apr1|argon2(?:id|i|d)|scrypt)\$[\w./$=,+-]{20})"),),
          r"\$(?:1|2[abxy]?|5|6|7|y|gy|apr1|argon2(?:id|i|d)|scrypt)\$[\w./$=,+-]{20,}(?<![.,])"),
    Shape("hash of a password in LDAP", (("{", "(?=SSHA[}0-9])"),),
          r"\{SSHA(?:256|384|512)?\}[A-Za-z0-9+/]{27,}={0,2}"),
    Shape("private key of PuTTY", (("-", "(?<=Private-)(?=Lines: [0-9])"),),
          rf"Private-Lines: [0-9]{{1,3}}{_NEW_LINE}((?:[A-Za-z0-9+/=]{{4,76}}(?:{_NEW_LINE}|\Z)){{1,200}})"),
    Shape("signing key of Mailgun", (("-", "(?<=[a-h0-9]{32}-)(?=[a-h0-9]{8}-[a-h0-9]{8})"),),
          rf"(?<![\w-])[a-h0-9]{{32}}-{_NO_WORD}[a-h0-9]{{8}}-[a-h0-9]{{8}}(?![\w-])"),
    Shape("long-lived token of Dropbox", (("AAAAAAAAAA", r"(?<=[a-z0-9]A{10})(?=[\w=-]{43})"),),
          r"(?<![\w+/-])[a-z0-9]{11}A{10}[\w=-]{43}(?![\w+/-])"),
    Shape("token of Mapbox", ((".", r"(?<=[pst]k[.])(?=[\w-]{60})"),),
          r"(?<![\w.-])[pst]k\.[\w-]{60,}\.[\w-]{22,}"),
    Shape("bearer token of Twitter", (("AAAAAAAAAA", r"(?=A{11}[\w%]{80})"),),
          r"(?<![\w+/-])A{21,22}(?=[A-Za-z%]{0,64}[0-9])[A-Za-z0-9%]{80,}(?![\w+/=-])"),
    Shape("access token of Twitter", (("-", "(?<=[0-9]{15}-)(?=[A-Za-z0-9]{20})"),),
          r"(?<![\w-])[0-9]{15,25}-(?=[a-z0-9]{0,32}[A-Z])(?=[A-Z0-9]{0,32}[a-z])[A-Za-z0-9]{20,45}(?![\w-])"),
    Shape("token of Yandex", ((".", r"(?<=t1[.])(?<![\w.]t1[.])"),),
          r"(?<![\w.])t1\.[\w-]{1,200}={0,2}\.[\w-]{86}={0,2}"),
    Shape("key of Yandex for storage", (("Y", r"(?=C[\w-]{38})"),),
          r"(?<![\w+/-])YC(?=[\w-]{0,37}[0-9])(?=[\w-]{0,37}[a-z])[\w-]{38}(?![\w+/=-])"),
    Shape("API token of Okta", (("00", r"(?=[\w=-]{40})"),),
          r"00(?<![\w+/.-]00)(?=[a-z0-9_=-]{0,39}[A-Z])(?=[A-Z0-9_=-]{0,39}[a-z])[\w=-]{40}(?![\w+/=-])"),
    Shape("key of Beamer, GoCardless or Lob",
          (("_", rf"(?<=b_)(?<!\wb_)(?={_FOUR_DIGITS}[a-z0-9=_-]{{40}})"),
           ("_", rf"(?<=live_|test_)(?<!\wlive_|\wtest_)(?=(?:pub_)?[a-f0-9]{{31}}|{_FOUR_DIGITS}[a-z0-9=_-]{{40}})")),
          rf"(?<![\w-])(?:(?:b|live)_{_FOUR_DIGITS}[a-z0-9=_-]{{40,}}"
          r"|(?:live|test)_(?:pub_)?(?=[a-f]{0,24}[0-9])[a-f0-9]{31,})"),
    Shape("access key of AWS, old", (("A", "(?=3T[A-Z0-9]{17})"),),
          r"(?<![\w+/-])A3T(?=[A-Z]{0,16}[0-9])[A-Z0-9]{17}(?![\w+/-])"),
    Shape("JSON web token in base64", (("Z", "(?=XlK)"),),
          r"(?<![A-Za-z0-9+/])ZXlK[A-Za-z0-9+/]{40,}={0,2}"),
    # Printable ASCII without quotes, brackets and delimiters of a URL. Not a template: `{password}`,
    # `$PASSWORD`, `%s`.
    Shape("password in a URL", ((":", "(?=//)"),),
          r"://[!#-&(-.0-9;=?A-\[\]-~]{0,128}:(?![{$%*])([!#-&(-.0-;=?@A-\[\]-~]{1,256})@"),
)  # fmt: skip


# The beginning of a key must not be inside another word, a hash, or a picture.
_BEGINS, _BEGINS_LOOSELY = r"(?<![\w+/-])", r"(?<![A-Za-z0-9])"
_ENDINGS = "_-.~"


def _build_shape(key: Key) -> Shape:
    r"""Build the shape of a key with a prefix. Its sign is the prefix's last character, or its rarest."""
    run = rf"[{key.characters}]{{{key.length}}}"
    # With a dash or underscore it could be a long identifier, but those have no digits and capitals.
    odd = (
        "(?=[a-z_.=+/-]{0,48}[A-Z0-9])"
        if {"-", "_", r"\w"} & {key.characters[-1:], key.characters[:2]}
        else ""
    )
    bare = key.starts[0][-1] not in _ENDINGS
    starts = "|".join(map(re.escape, key.starts))
    # An inexact key does not include the full stop of a sentence.
    more = f"(?![{key.characters}])" if key.exact else rf"[{key.characters}]*(?<![.])"
    return Shape(
        f"token of {key.service}",
        tuple(_sign(start, run) for start in key.starts),
        f"{_BEGINS if bare else _BEGINS_LOOSELY}(?:{starts}){odd}{run}{more}",
    )


def _sign(start: str, run: str) -> tuple[str, str]:
    if start[-1] in _ENDINGS:
        return start[-1], f"(?<={re.escape(start)})(?={run})"
    place = next((place for place, letter in enumerate(start) if letter.isupper()), None)
    if place is None:
        return start, f"(?={run})"
    return start[place], f"(?<={start[: place + 1]})(?={start[place + 1 :]}{run})"


SHAPES: tuple[Shape, ...] = (*_FRAMES, *map(_build_shape, KEYS))
"""All shapes."""

# Most signs are followed by words; in a shape, a run of characters follows that is not a word.
_RUNS = {
    "-": rf"(?={_NO_WORD}[\w+/=.-]{{8}}|[a-z]{{20}}|p[^=-]|cli[ \t]|Lines:|[aA][pP][iI]-|us[0-9]|[ub][ =]"
    r"|-user[ =]|-cookie[ =])",
    "_": rf"(?={_NO_WORD}[\w+/=.-]{{10}}|[a-z]{{20}}|(?i:secret_a|gitlab_s))",
    ".": r"(?=[\w+/=.-]{20})",
    ":": rf"(?=//|[ \t]{{0,2}}{ESCAPES}\"[A-Za-z0-9+/]{{12}}|A[\w-]{{34}}|[a-f0-9]{{32}}|543[0-9]:|6432:|\*:)",
}


def _group_signs() -> Iterator[Sign]:
    for character in dict.fromkeys(character for row in SHAPES for character, _ in row.signs):
        groups = ((row, [rule for sign, rule in row.signs if sign == character]) for row in SHAPES)
        there = [(row, group) for row, group in groups if group]
        rules = "|".join(f"(?:{'|'.join(group)})()" for _, group in there)
        pattern = f"{re.escape(character)}{_RUNS.get(character, '')}(?:{rules})"
        yield Sign(character, pattern, tuple(row.pattern for row, _ in there))


SIGNS: tuple[Sign, ...] = tuple(_group_signs())
"""The first searches."""
