"""What the tools of agents print, files and commands as they are: which secrets in it are hidden, and which
are not.
"""

import base64
import json
import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from refold.reducers.secrets import REDACTED, Redactor
from support.known_keys import HEX, UUID, X

KNOWN = Redactor()
WORD = "Gr4nite&moss"  # as a person chooses one
SHORT = "moss!47x"
WORDS = "copper-lantern-orchard"
LONG = X[::-1] + X  # as a machine makes one
MARKED = "p&7Kq2vX9wRt4Lm8Zc^b3NfGh6Jd"
ENCODED = base64.b64encode(f"alice:{WORD}".encode()).decode()
PEM = "-----BEGIN EC PRIVATE" + f" KEY-----\n{X * 3}\n-----END EC PRIVATE" + " KEY-----\n"
PEM_ENCODED = base64.b64encode(PEM.encode()).decode()

HIDDEN = {
    "netrc": (f"machine git.example\n  login alice\n  password {WORD}\n", WORD),
    "netrc in a line": (f"machine git.example login alice password {WORD}", WORD),
    "pgpass": (f"db.example:5432:app:alice:{WORD}\n", WORD),
    "pgpass for all": (f"*:*:*:alice:{WORD}\n", WORD),
    "my.cnf": (f"[client]\nuser=alice\npassword={WORD}\n", WORD),
    "a Secret of Kubernetes": (f"kind: Secret\ndata:\n  db-password: {ENCODED}\n", ENCODED),
    "kubeconfig": (f"users:\n- user:\n    client-key-data: {PEM_ENCODED}\n", PEM_ENCODED[40:90]),
    "kubeconfig, the key elsewhere": (f"  tls.key: {PEM_ENCODED}\n", PEM_ENCODED[40:90]),
    "Docker's credentials": (f'{{"auths":{{"r.example":{{"auth":"{ENCODED}"}}}}}}', ENCODED),
    "npmrc": (f"//npm.example/:_authToken={UUID}\n", UUID),
    "npmrc with a password": (f"_password={ENCODED}\n", ENCODED),
    "pypirc": (f"[pypi]\nusername = alice\npassword = {WORD}\n", WORD),
    "AWS' credentials": (f"[default]\naws_secret_access_key = {LONG}\n", LONG),
    "AWS' JSON": (f'{{"SecretAccessKey":"{LONG}","SessionToken":"{LONG * 4}"}}', LONG),
    "AWS' table": (f"|  SecretAccessKey  |  {LONG}  |", LONG),
    "a longer key of AWS": (f"SecretAccessKey: {LONG}Q", f"{LONG}Q"),
    "declare -x": (f'declare -x DB_PASSWORD="{WORD}"\ndeclare -x HOME="/root"', WORD),
    "a passphrase of words": (f"BACKUP_PASSPHRASE={WORDS}\n", WORDS),
    "Django": (f"SECRET_KEY = '{MARKED}'\n", MARKED),
    "Rails": (f"secret_key_base: {HEX * 8}\n", HEX * 8),
    "mysql -p": (f"mysql -u root -p{WORD} -h db\n", WORD),
    "mysql -p in quotes": (f"mysql -u root -p'{WORD}' -h db\n", WORD),
    "mysqldump --password": (f"mysqldump --password={WORD} db\n", WORD),
    "sshpass": (f"sshpass -p '{WORD}' ssh alice@host\n", WORD),
    "PGPASSWORD": (f"PGPASSWORD={WORD} psql -h db\n", WORD),
    "redis-cli -a": (f"redis-cli -a {WORD} ping\n", WORD),
    "redis.conf": (f"requirepass {WORD}\n", WORD),
    "curl -u": (f"curl -u alice:{WORD} https://h/\n", WORD),
    "curl --user in quotes": (f"curl --user 'alice:{WORD}' https://h/\n", WORD),
    "curl -b": (f"curl -b 'session={LONG}' https://h/\n", LONG),
    "a Cookie header": (f"> Cookie: sessionid={HEX * 2}; csrftoken={X}\n", HEX * 2),
    "Set-Cookie": (f"< Set-Cookie: connect.sid=s%3A{LONG}.{LONG}; Path=/; HttpOnly\n", LONG),
    "X-Auth-Token": (f"X-Auth-Token: {LONG}\n", LONG),
    "Private-Token": (f"PRIVATE-TOKEN: {X}\n", X),
    "Proxy-Authorization": (f"Proxy-Authorization: Basic {ENCODED}\n", ENCODED),
    "digest": (f'Authorization: Digest username="alice", realm="r", response="{HEX * 2}"\n', HEX * 2),
    "Authorization without a scheme": (f"Authorization: {LONG}\n", LONG),
    "OAuth in JSON": (f'{{"access_token":"{LONG}","refresh_token":"{X * 2}","expires_in":3600}}', X),
    "OAuth in a form": (f"grant_type=password&password={X}&client_secret={LONG}\n", X),
    "a token in an address": (f"https://h/a?access_token={LONG}&b=1\n", LONG),
    "a signed address": (f"https://h/k?X-Amz-Credential=x&X-Amz-Signature={HEX * 4}\n", HEX),
    "shadow": (f"root:$6$a1B2c3D4${X * 4}:19000:0:99999:7:::\n", X),
    "htpasswd": (f"alice:$apr1$a1B2c3D4${X}ab\n", X),
    "bcrypt": (f"alice:$2y$10${X}{X}abcdefghijklm\n", X),
    "wpa_supplicant": (f'network={{\n ssid="home"\n psk="{WORDS}"\n}}\n', WORDS),
    "ansible": (f"ansible_become_pass: {WORD}\n", WORD),
    "an inventory of ansible": (f"host1 ansible_ssh_pass={WORD}\n", WORD),
    "tfvars": (f'db_password = "{WORD}"\n', WORD),
    "tfstate": (f'"password": "{WORD}",\n"secret": "{LONG}"', LONG),
    "docker inspect": (f'"Env": ["POSTGRES_PASSWORD={WORD}", "PATH=/bin"]', WORD),
    "docker inspect without blanks": (f'"Env":["POSTGRES_PASSWORD={WORD}","PATH=/bin"]', WORD),
    "the arguments in docker inspect": (f'"Args": ["--db-password", "{WORD}", "-v"]', WORD),
    "compose, a list": (f"environment:\n  - MYSQL_ROOT_PASSWORD={WORD}\n", WORD),
    "compose, a mapping": (f"environment:\n  POSTGRES_PASSWORD: {SHORT}\n", SHORT),
    "compose, with a sign at the end": ("environment:\n  POSTGRES_PASSWORD: moss47x!\n", "moss47x!"),
    "ps, a password": (f"root 1 /usr/bin/app --db-password {WORD} --port 1\n", WORD),
    "ps, a token": (f"root 1 /usr/bin/agent --token {LONG}\n", LONG),
    "XML": (f"<server><username>alice</username><password>{WORD}</password></server>", WORD),
    "an attribute of XML": (f'<add connectionString="Server=db;User Id=sa;Password={WORD};"/>', WORD),
    "properties": (f"spring.datasource.password={WORD}\n", WORD),
    "JDBC": (f"jdbc:postgresql://db/x?user=alice&password={X}\n", X),
    "ODBC": (f"DRIVER=x;UID=sa;PWD={WORD};\n", WORD),
    "LDAP": (f"bindpw {WORD}\n", WORD),
    "a private key": (PEM, X),
    "PuTTY": (f"PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 1\n{X * 3}\nPrivate-MAC: {HEX}\n", X),
    "WireGuard": (f"[Interface]\nPrivateKey = {X * 2}abc=\n", X),
    "a key of Ethereum": (f"PRIVATE_KEY=0x{HEX * 4}\n", HEX),
    "otpauth": ("otpauth://totp/x:alice?secret=JBSWY3DPEHPK3PXPAAQQ4422&issuer=x\n", "JBSWY3DPEHPK3PXP"),
    "Python": ("{'user': 'alice', 'password': '" + WORD + "'}", WORD),
    "a block of YAML": (f"password: |\n  {WORD}\n", WORD),
    "YAML": (f"api_key: {LONG}\n", LONG),
    "a line of a log": (f"login ok user=alice password={WORD} ip=10.2.3.4\n", WORD),
    "prose": (f"The password is {WORD}, use it.\n", WORD),
    "a traceback": (f'  connect(host="db", password="{WORD}")\n', WORD),
    "Go": (f'Config{{User:"alice" Password:"{WORD}"}}\n', WORD),
    "camel case": (f'clientSecret: "{LONG}"\n', LONG),
    "SQL": (f"ALTER USER alice WITH PASSWORD '{WORD}';\n", WORD),
    "a mnemonic by its name": (f'MNEMONIC="{"copper lantern orchard " * 4}pine"\n', "copper lantern"),
}  # fmt: skip
LEFT = {
    "words without a sign": (f'[client]\npassword="{WORDS}"\n', "a place holder looks the same"),
    "a word": ("DB_PASSWORD=letmein\n", "no digit, no sign, shorter than 8: a name looks the same"),
    "a mnemonic alone": (f"{'copper lantern orchard ' * 4}\n", "only a list of the words would know it from prose"),
}  # fmt: skip
"""What is not found, and why."""


@pytest.mark.parametrize(("text", "secret"), [pytest.param(*pair, id=name) for name, pair in HIDDEN.items()])
def test_what_tools_print(text: str, secret: str) -> None:
    """The secret is hidden in the output, in the output as JSON, and without the line around it."""
    framed = f"The output is:\n{text}end"
    assert secret not in KNOWN.text(framed)
    assert REDACTED in KNOWN.text(framed)
    assert json.dumps(secret)[1:-1] not in KNOWN.json(json.dumps({"output": framed}))
    assert secret not in KNOWN.text(text)


@pytest.mark.parametrize(("text", "reason"), [pytest.param(*pair, id=name) for name, pair in LEFT.items()])
def test_known_misses(text: str, reason: str) -> None:
    """A secret that nothing tells from an ordinary text is left; once it is found, its row belongs to the
    others.
    """
    assert text == KNOWN.text(text), reason


PRINTABLE = st.characters(min_codepoint=0x20, exclude_categories=("C", "Z", "M")) | st.just(" ")
TEMPLATE = re.compile(r"[$#%]\{.+\}|\{\{.+\}\}|[%$]\(.+\)")  # as a program writes what it fills in
PARTS = ("Gr4nit", "4moss", "X9zk7")


@st.composite
def passwords(draw: st.DrawFn) -> str:
    """Letters and digits, with any printable characters between them."""
    between = [draw(st.text(PRINTABLE, min_size=1, max_size=2)) for _ in range(2)]
    return PARTS[0] + between[0] + PARTS[1] + between[1] + PARTS[2]


def pieces(text: str) -> set[str]:
    """Each four characters of a text."""
    return {text[place : place + 4] for place in range(len(text) - 3)}


@pytest.mark.parametrize(
    ("form", "quote"),
    [
        pytest.param('password="{}"', '"', id="code"),
        pytest.param("password='{}', user='a'", "'", id="code, another quote"),
        pytest.param('{{"password":"{}"}}', '"', id="JSON"),
        pytest.param('{{"a": {{"db_passwd": "{}", "n": 1}}}}', '"', id="JSON with blanks"),
        pytest.param("export DB_PASSWORD='{}'\n", "'", id="an environment"),
        pytest.param('password: "{}"\n', '"', id="YAML"),
    ],
)
@given(password=passwords())
@example(password="Gr4nit&4moss(X9z")
@example(password="Gr4nit{4moss}X9z")
@example(password="Gr4nit\\4moss\"X9z'")
@example(password="Gr4nité4mossßX9z")
def test_a_value_in_quotes_goes_to_its_quote(form: str, quote: str, password: str) -> None:
    """Whatever printable characters a password in quotes holds, four of them in a row are never left."""
    assume(not TEMPLATE.search(password))
    written = password.replace("\\", "\\\\").replace(quote, f"\\{quote}")
    shown = KNOWN.text(form.format(written))
    left = pieces(shown.replace(REDACTED, "")) & (pieces(password) | pieces(written))
    assert set() == left


SHELL = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in "\"'`\\")


@pytest.mark.parametrize("form", ["DB_PASSWORD={}", "export DB_PASSWORD={}\n", "A=1 DB_PASSWORD={} run\n"])
@given(sign=st.sampled_from(SHELL))
def test_a_value_of_an_environment_goes_to_the_blank(form: str, sign: str) -> None:
    """Whatever sign an environment file allows in a value without quotes, what stands behind it is hidden,
    too.
    """
    shown = KNOWN.text(form.format(f"Gr4nit{sign}4mossX9z"))
    assert set() == pieces(shown.replace(REDACTED, "")) & pieces(f"Gr4nit{sign}4mossX9z")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param(
            "?password=Gr4nite7&user=alice", f"?password={REDACTED}&user=alice", id="the next of an address"
        ),
        pytest.param(
            "f(password=Gr4nite7, user=a)", f"f(password={REDACTED}, user=a)", id="the next argument"
        ),
        pytest.param(
            "f(password='Gr4nite7', user='a')", f"f(password='{REDACTED}', user='a')", id="the end of a quote"
        ),
        pytest.param("(password: Gr4nite7&x).", f"(password: {REDACTED}).", id="the end of a sentence"),
        pytest.param("<b>password: Gr4nite7&x</b>", f"<b>password: {REDACTED}</b>", id="markup"),
        pytest.param("Password=Gr4nite7;User=a", f"Password={REDACTED};User=a", id="a connection string"),
        pytest.param(
            'password="" if x else "y1"; n = "Gr4nite7"', None, id="an empty value does not reach for the next"
        ),
        pytest.param('password: "The password must have 8 characters."', None, id="a sentence"),
        pytest.param('"password": "密码必须至少8个字符"', None, id="a sentence of another script"),
        pytest.param('"password": "Le mot de passe doit avoir 8 lettres"', None, id="one with letters of Europe"),
        pytest.param("password_file=/run/secrets/db_1; password: /etc/app/pass2", None, id="a path"),
        pytest.param("The password is required1", None, id="a word of prose"),
        pytest.param("--token-file /run/token1; --password-stdin x1", None, id="options about a secret"),
        pytest.param('secret = "arn:aws:secretsmanager:us-east-1:123456789012:secret:Db-a1b2c3"', None, id="a name"),
        pytest.param("<label>Password</label><input name='password1'>", None, id="a form"),
        pytest.param("PASSWORD=$(cat /run/secret1)", None, id="a command"),
        pytest.param("password = {{ vault.db_password1 }}", None, id="a template"),
    ],
)  # fmt: skip
def test_where_a_value_ends(text: str, shown: str | None) -> None:
    """Only the value is hidden, and what is no value stays."""
    assert (text if shown is None else shown) == KNOWN.text(text)
