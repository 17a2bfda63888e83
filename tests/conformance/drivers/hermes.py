"""The `hermes` preset against the pressure of Hermes Agent."""

from collections.abc import Mapping
from types import MappingProxyType

from conformance.drivers.pressure import left, pressure, tier
from conformance.suite import Case, Compared, Driver


def near_the_end(case: Case) -> Compared:
    """The tier after n calls made.

    At n = M the preset asks for a last word only; one more step shows the tier.
    """
    run = pressure("hermes", case.given["n"], case.given["max"], op=">")
    return Compared(case.expect, {"tier": tier(run), "remaining": left(run)})


DRIVERS: Mapping[str, Driver] = MappingProxyType({"hermes_pressure": near_the_end})
