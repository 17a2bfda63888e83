"""Keys that begin with a word of their own: which service, with what they begin, of which characters, how many.

Sources: the services' own documents, and the public rules of secret scanners for lengths that no document says. Keys
without such a word are no rows here: a frame (`key_shapes`) or a name (`assignments`) must give them away.
"""

from typing import NamedTuple

ALNUM = "A-Za-z0-9"
HEX = "a-f0-9"
CAPS = "A-Z0-9"
URL64 = r"\w-"
BASE64 = "A-Za-z0-9+/"
DOTTED = r"\w=.-"


class Key(NamedTuple):
    """Keys of a service: each begins with one of `starts`, and at least `length` of these `characters` follow.

    `exact`: more of them make it something else.
    """

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
