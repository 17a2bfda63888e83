"""What a store promises about appends that returned."""

import msgspec


class Durability(msgspec.Struct, frozen=True, kw_only=True):
    """What an append survives after it returned, as far as the store knows; None: unknown.

    `power_cut` is one of the store's machine, `loss` that of its disk. `refuses_edits`: the store's own rules
    against changes of the log are in force. `stalled`: no append returns now, because the server waits for a
    standby that is not connected. `gaps` are sentences about what is not promised, and `settings`
    decide it. `clock` is the server's time in seconds since 1970, None for a file.
    """

    power_cut: bool | None = None
    loss: bool | None = None
    refuses_edits: bool | None = None
    stalled: bool = False
    gaps: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    clock: float | None = None
