"""The base of all plain values that events, states and messages are made of."""

import msgspec


class Value(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """An immutable value. As JSON what has its default is left out, and a field that nobody knows is refused."""
