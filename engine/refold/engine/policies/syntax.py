"""What a reader of policy files says of a text that it cannot read."""


class BadSyntax(Exception):
    """The file is not in its own format; the message says where."""


DEEPEST = 60
"""How deep a policy file may nest: the time that readers of YAML and TOML take grows with the square of it, or worse."""
