"""What a reader of policy files says of a text that it cannot read."""


class BadSyntax(Exception):
    """The file is not in its own format; the message says where."""
