"""The bases of all plain values: those that events, states and messages are made of, and the parts of a policy."""

import msgspec


class Value(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """An immutable value. As JSON what has its default is left out, and a field that nobody knows is refused."""


class Knob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A part of a policy, written out with its defaults. A method `problems()` may yield what in it cannot work (`Fault`s)."""
