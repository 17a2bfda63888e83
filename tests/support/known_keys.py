"""One example of each key that must be hidden, written down apart from the patterns: who removes one of these
is told.

The keys are put together here, so that no scanner takes this file for a leak.
"""

X = "a1B2c3D4e5F6g7H8i9J0"
HEX = "0a1b2c3d4e5f6789"
UUID = "123e4567-e89b-12d3-a456-426614174000"
KINDS = {"A": X, "H": HEX, "C": X.upper(), "L": X.lower()}

# What they begin with; A letters and digits, H hexadecimal ones, C capitals, L small letters; how many of
# these.
BEGINNINGS = """
A3- C 31 | ops_ A 100 | p8e- A 32 | AGE-SECRET-KEY-1 C 58 | LTAI A 20 | AKCp A 59 | cmVmd A 59 | ATATT3 A 60 |
ATCTT3 A 60 | AKIA C 16 | ASIA C 16 | ABIA C 16 | ACCA C 16 | ABSK A 100 | bedrock-api-key- A 28 | ATBB A 32 |
xkeysib- L 64 | xsmtpsib- L 64 | bkua_ H 40 | CCIPAT_ A 40 | 4b1d A 38 | CLOJARS_ A 60 | v1.0- H 100 | CFPAT- A
43 | dapi H 32 | dop_v1_ H 64 | doo_v1_ H 64 | dor_v1_ H 64 | dckr_pat_ A 27 | dckr_oat_ A 27 | dp.pt. A 40 |
dp.st. A 40 | dp.ct. A 40 | dp.sa. A 40 | dp.scim. A 40 | dp.audit. A 40 | duffel_test_ A 43 | duffel_live_ A
43 | dt0c01. A 80 | dt0s01. A 80 | dt0s16. A 80 | e2b_ H 40 | EZAK A 54 | EZTK A 54 | sk_ H 48 | EAAM A 90 |
EAAC A 90 | EAAB A 90 | EAAG A 90 | figd_ A 40 | FLWSECK- A 12 | FLWSECK_TEST- A 12 | fo1_ A 43 | fm1a_ A 60 |
fm1r_ A 60 | fm2_ A 60 | fio-u- A 60 | ghp_ A 36 | gho_ A 36 | ghu_ A 36 | ghs_ A 36 | ghr_ A 36 | github_pat_
A 22 | glpat- A 20 | gldt- A 20 | glrt- A 20 | glptt- A 20 | glcbt- A 20 | glft- A 20 | glffct- A 20 | glimt- A
20 | glagent- A 20 | gloas- A 20 | glsoat- A 20 | glrtr- A 20 | GR1348941 A 20 | AIza A 35 | ya29. A 20 |
GOCSPX- A 20 | glsa_ A 32 | glc_ A 32 | gsk_ A 32 | HRKU- A 36 | hf_ A 30 | api_org_ A 30 | ico- A 32 |
s-s4t2ud- H 64 | s-s4t2af- H 64 | lsv2_pt_ H 32 | lsv2_sk_ H 32 | lin_api_ A 40 | lin_oauth_ A 40 | NRAK- A 19
| NRII- A 19 | NRJS- A 19 | NRRA- A 19 | NRSP- A 19 | NRIQ- A 19 | ntn_ A 43 | secret_ A 43 | npm_ A 36 |
nvapi- A 32 | API- C 26 | sha256~ A 43 | pplx- A 32 | pcsk_ A 40 | access-sandbox- H 36 | access-development- H
36 | access-production- H 36 | pscale_tkn_ A 32 | pscale_oauth_ A 32 | pscale_pw_ A 32 | PMAK- H 59 | pnu_ A 36
| pul- H 40 | pypi- A 60 | rdme_ L 70 | r8_ A 37 | rubygems_ H 48 | tk-us- A 48 | sntryu_ H 64 | sntrys_ A 60 |
sm_aat_ A 16 | sm_pat_ A 16 | sm_sat_ A 16 | shippo_live_ H 40 | shippo_test_ H 40 | shpat_ H 32 | shpca_ H 32
| shppa_ H 32 | shpss_ H 32 | squ_ H 40 | sqp_ H 40 | sqa_ H 40 | sgp_ A 40 | sq0atp- A 22 | sq0csp- A 22 |
EAAA A 56 | sk_live_ A 16 | sk_test_ A 16 | sk_prod_ A 16 | rk_live_ A 16 | rk_test_ A 16 | rk_prod_ A 16 |
whsec_ A 16 | sbp_ A 30 | sb_secret_ A 30 | tskey- A 20 | tvly- A 32 | SK H 32 | tfp_ A 43 | hvs. A 24 | hvb. A
24 | hvr. A 24 | xai- A 32 | AQVN A 35 | dnkey- L 70 | sl. A 130 | FLWPUBK- A 12 | FLWPUBK_TEST- A 12 |
key- H 32 | pubkey- H 32 | nfp_ A 36 | LS0tLS1CRUdJTiBQUklWQVRF A 40 |
LS0tLS1CRUdJTiBSU0EgUFJJVkFURS A 40 | LS0tLS1CRUdJTiBFQyBQUklWQVRF A 40 |
LS0tLS1CRUdJTiBPUEVOU1NIIFBSSVZBVEUg A 40 | LS0tLS1CRUdJTiBFTkNSWVBURUQgUFJJVkFURS A 40
"""


def _of_beginnings() -> dict[str, str]:
    made: dict[str, str] = {}
    for entry in BEGINNINGS.split("|"):
        start, kind, length = entry.split()
        made[start] = start + (KINDS[kind] * int(length))[: int(length)]
    return made


# What is looked for by more than a beginning: (text, secret).
FRAMED: dict[str, tuple[str, str]] = {
    "OpenAI": (f"sk-{X}{X}", f"sk-{X}{X}"),
    "OpenAI, project": (f"sk-proj-{X}{X}", f"sk-proj-{X}{X}"),
    "Anthropic": (f"sk-ant-api03-{X}{X}", f"sk-ant-api03-{X}{X}"),
    "AWS, secret": (f"aws_secret_access_key = {X}{X}", X + X),
    "AWS, secret, another way": (f'"SecretAccessKey": "{X}{X}"', X + X),
    "AWS, secret, in capitals": (f"SECRETACCESSKEY={X}{X}", X + X),
    "AWS, session": (f"AWS_SESSION_TOKEN={X}{X}/{X}+{X}{X}==", f"{X}{X}/{X}+{X}{X}=="),
    "Slack": (f"xoxb-1234567890-{X}", f"xoxb-1234567890-{X}"),
    "Slack, app": (f"xapp-1-A0-{X}", f"xapp-1-A0-{X}"),
    "Slack, configuration": (f"xoxe.xoxp-1-{X}{X}", f"xoxp-1-{X}{X}"),
    "Slack, hook": (f"https://hooks.slack.com/services/T00/B00/{X}", f"T00/B00/{X}"),
    "Slack, workflow": (f"https://hooks.slack.com/workflows/T00/A00/1/{X}", f"T00/A00/1/{X}"),
    "SendGrid": (f"SG.{X}Ab.{X}{X}Abc", f"SG.{X}Ab.{X}{X}Abc"),
    "web token": (f"eyJ{X}.eyJ{X}.{X}", f"eyJ{X}.eyJ{X}.{X}"),
    "web token in base64": (f"ZXlK{X}{X}{X}", f"ZXlK{X}{X}{X}"),
    "Grafana, old": (f"eyJrIjoi{X}{X}{X}=", f"eyJrIjoi{X}{X}{X}="),
    "Discord, hook": (f"https://discord.com/api/webhooks/123456789012345678/{X}{X}{X}", X * 3),
    "Discord, hook of a version": (
        f"https://ptb.discord.com/api/v10/webhooks/123456789012345678/{X}{X}{X}",
        X * 3,
    ),
    "Discord, bot": (f"MTA4{X}.Gabc12.{X}{X}", f"MTA4{X}.Gabc12.{X}{X}"),
    "Teams, hook": (
        f"https://a.webhook.office.com/webhookb2/{UUID}@{UUID}/IncomingWebhook/{HEX}{HEX}/{UUID}",
        f"{UUID}@{UUID}/IncomingWebhook/{HEX}{HEX}/{UUID}",
    ),
    "Telegram": (f"123456789:AA{X}{X[:13]}", f"123456789:AA{X}{X[:13]}"),
    "Terraform": (f"{X[:14]}.atlasv1.{X * 4}", f"{X[:14]}.atlasv1.{X * 4}"),
    "Vault, old": (f"s.{X}Ab12", f"s.{X}Ab12"),
    "Airtable": (f"pat{X[:14]}.{HEX * 4}", f"pat{X[:14]}.{HEX * 4}"),
    "Harness": (f"pat.{X}ab.{X}abcd.{X}", f"pat.{X}ab.{X}abcd.{X}"),
    "Authress": (f"sc_{X}.abcd.acc_{X}.{X}{X}", f"sc_{X}.abcd.acc_{X}.{X}{X}"),
    "MaxMind": (f"{X[:6]}_{X}{X[:9]}_mmk", f"{X[:6]}_{X}{X[:9]}_mmk"),
    "Mailchimp": (f"{HEX}{HEX}-us12", f"{HEX}{HEX}-us12"),
    "Azure, client secret": (f"abc8Q~{X}{X[:12]}", f"abc8Q~{X}{X[:12]}"),
    "Azure, signature": (f"https://a.b/c?sv=2022-11-02&sig={X}{X}abc%3D", f"{X}{X}abc%3D"),
    "Azure, account": (f"AccountName=a;AccountKey={X * 4}AbCdEf==;Suffix=b", f"{X * 4}AbCdEf=="),
    "Azure, shared access": (f"SharedAccessKey={X * 2}abc=", f"{X * 2}abc="),
    "Twilio, pair": (f"AC{HEX}{HEX}:{HEX[::-1]}{HEX[::-1]}", HEX[::-1] * 2),
    "Facebook, app": (f"123456789012345|{X}abcdefg", f"{X}abcdefg"),
    "GitLab, session": (f"_gitlab_session={HEX}{HEX}", HEX * 2),
    "Sidekiq": ("BUNDLE_GEMS__CONTRIBSYS__COM=cafe1234:beef5678", "cafe1234:beef5678"),
    "NuGet": ('<add key="ClearTextPassword" value="hunter2-hunter2" />', "hunter2-hunter2"),
    "Docker": ('{"r": {"auth": "YWxpY2U6aHVudGVyMi1odW50ZXIy"}}', "YWxpY2U6aHVudGVyMi1odW50ZXIy"),
    "Docker, letters alone": ('"auth" :  "YWxpYYTpodYZhdHNhc"', "YWxpYYTpodYZhdHNhc"),
    "curl": ("curl -s -u alice:hunter2 https://api.example", "hunter2"),
    "Okta": (f"Authorization: SSWS 00{X}{X}", f"00{X}{X}"),
    "basic": ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
    "bearer": (f"bearer {X}", X),
    "key header": (f"x-api-key: {X}", X),
    "password in a URL": ("postgres://app:hunter2@db.example:5432/app", "hunter2"),
    "AWS, secret, in a table": (f"|  SecretAccessKey  |  {X}{X}  |", X + X),
    "AWS, secret, longer": (f"SecretAccessKey: {X}{X}Z", f"{X}{X}Z"),
    "AWS, old": (f"A3T{X.upper()[:17]}", f"A3T{X.upper()[:17]}"),
    "AWS, signature": (f"https://h/?X-Amz-Signature={HEX * 4}", HEX * 4),
    "LaunchDarkly": (f"sdk-{UUID}", f"sdk-{UUID}"),
    "LaunchDarkly, mobile": (f"mob-{UUID}", f"mob-{UUID}"),
    "Lob": (f"live_{HEX * 2}abc", f"live_{HEX * 2}abc"),
    "Lob, public": (f"test_pub_{HEX * 2}", f"test_pub_{HEX * 2}"),
    "Beamer": (f"b_{X.lower()}{X.lower()}{X[:4].lower()}", f"b_{X.lower()}{X.lower()}{X[:4].lower()}"),
    "Mailgun, signing": (f"{HEX}{HEX}-{HEX[:8]}-{HEX[:8]}", f"{HEX}{HEX}-{HEX[:8]}-{HEX[:8]}"),
    "Mapbox": (f"pk.{X * 3}.{X}ab", f"pk.{X * 3}.{X}ab"),
    "Dropbox, old": (f"{X[:11].lower()}{'A' * 10}{X}{X}abc", f"{X[:11].lower()}{'A' * 10}{X}{X}abc"),
    "Twitter, bearer": (f"as {'A' * 22}{X}%2B{X}{X}{X}%3D", f"{'A' * 22}{X}%2B{X}{X}{X}%3D"),
    "Twitter, access": (f"123456789012345678-{X}{X}", f"123456789012345678-{X}{X}"),
    "Yandex, short": (f"t1.9euelZ{X}.{X * 4}{X[:6]}", f"t1.9euelZ{X}.{X * 4}{X[:6]}"),
    "Yandex, storage": (f"YC{X}{X[:18]}", f"YC{X}{X[:18]}"),
    "Okta, token": (f"00{X}{X}", f"00{X}{X}"),
    "curl, signs": ("curl --user 'alice:hunter&2;x' https://h", "hunter&2;x"),
    "curl, cookie": (f"curl -b 'session={X}' https://h", X),
    "MySQL": ("mysqldump -u root -phunter2x db", "hunter2x"),
    "sshpass": ("sshpass -p 'hunter&2' ssh h", "hunter&2"),
    "Redis": ("redis-cli -h db -a hunter2x ping", "hunter2x"),
    "PostgreSQL": ("db.example:5432:app:alice:hunter&2x", "hunter&2x"),
    "a server's cookie": (f"Set-Cookie: sid=s%3A{X}; Path=/", f"s%3A{X}"),
    "a client's cookies": (f"Cookie: theme=dark; sid={X}", f"theme=dark; sid={X}"),
    "digest": (
        f'Authorization: Digest username="alice", uri="/a", response="{HEX}{HEX}"',
        HEX + HEX,
    ),
    "digest, of a log": (f'Digest username="alice", response="{HEX}{HEX}"', HEX + HEX),
    "crypt": (f"root:$6$a1B2c3D4${X * 4}:19000:", f"$6$a1B2c3D4${X * 4}"),
    "bcrypt": (f"$2y$10${X * 2}abcdefghijklm", f"$2y$10${X * 2}abcdefghijklm"),
    "Argon2": (f"$argon2id$v=19$m=65536,t=3,p=4${X}${X}{X}", f"$argon2id$v=19$m=65536,t=3,p=4${X}${X}{X}"),
    "LDAP": (f"userPassword:: {{SSHA}}{X}{X}==", f"{{SSHA}}{X}{X}=="),
    "PuTTY": (f"Private-Lines: 2\n{X * 3}\n{X}==\nPrivate-MAC: {HEX}", f"{X * 3}\n{X}==\n"),
    "private key": (
        f"-----BEGIN RSA PRIVATE{' '}KEY-----\n{X}{X}\n{X}\n-----END RSA PRIVATE{' '}KEY-----",
        f"-----BEGIN RSA PRIVATE{' '}KEY-----\n{X}{X}\n{X}\n-----END RSA PRIVATE{' '}KEY-----",
    ),
}

EXAMPLES: dict[str, tuple[str, str]] = {
    **{name: (text, text) for name, text in _of_beginnings().items()},
    **FRAMED,
}
"""By name: a text with the key in it, and what of it nobody may see."""
