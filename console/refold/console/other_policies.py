"""Which policies `refold whatif` asks about: files and presets, some of their rules, and what is set besides."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from refold.console.options import Settings, option
from refold.console.policy_settings import change_by, settings_of
from refold.engine.policies.files import chosen_policy, data_of, is_preset
from refold.reducers.errors import WrongUse
from refold.reducers.guards import Registry
from refold.reducers.overlay import Setting
from refold.reducers.policy import Policy
from refold.replay.whatif.defaults import Named
from refold.replay.whatif.facts import Change
from refold.replay.whatif.only import RULES, only


class OtherPolicies(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked about. Without policies the settings change the recorded one; `only` names kinds of rules of theirs."""

    policy: Annotated[
        list[Path],
        option("--policy", "Policy file (.toml, .yaml, .json), or a preset; several side by side."),
    ] = []
    settings: Settings = []
    only: Annotated[
        str | None,
        option("--only", "limits,guards,approvals: these rules of --policy, over the run's own policy."),
    ] = None
    prices: Annotated[
        Path | None,
        option("--prices", "genai-prices, or a file: prices for answers of which the record has none."),
    ] = None
    contexts: Annotated[
        Path | None,
        option("--contexts", "genai-prices, or a file: context lengths of models where the record has none."),
    ] = None

    def __hash__(self) -> int:
        return hash(str(self))  # its lists have none


class Asked(NamedTuple):
    """One of the policies: what it changes, and what its file names where that is not a whole preset."""

    change: Change
    named: Named | None = None


def policies_of(asked: OtherPolicies, registry: Registry) -> Mapping[str, Asked]:
    """The policies that were asked for, by what they are called. Raises `WrongUse` and what a file does."""
    settings = settings_of(asked.settings)
    change = change_by(settings, registry)
    told = ", ".join(asked.settings)
    if not asked.policy:
        if asked.only is not None:
            raise WrongUse(
                "--only takes rules out of another policy: name it with --policy (--set changes the recorded one)"
            )
        if not asked.settings:
            raise WrongUse("expected --policy POLICY, or --set KEY=VALUE to change the recorded one")
        return {told: Asked(change)}
    suffix = f" + {told}" if told else ""
    if asked.only is None:
        return {f"{path}{suffix}": _whole(path, registry, settings) for path in asked.policy}
    chosen = {path: chosen_policy(path, registry, {})[0] for path in asked.policy}
    kinds = [kind.strip() for kind in asked.only.split(",")]
    for path, policy in chosen.items():
        _refuse_empty(kinds, path, policy)
    return {
        f"only {', '.join(kinds)} of {path}{suffix}": Asked(_then(only(kinds, policy, registry), change))
        for path, policy in chosen.items()
    }


def _whole(path: Path, registry: Registry, settings: Sequence[Setting]) -> Asked:
    """A policy in place of the recorded one. A file that starts from no preset has defaults which its author did not set."""
    policy = chosen_policy(path, registry, {}, settings)[0]
    data = {"preset": str(path)} if is_preset(path) else data_of(path, "a preset")[0]
    if data.get("preset"):
        return Asked(_always(policy))
    keys = dict.fromkeys([*(key for key in data if key != "schema"), *(where[0] for where, _ in settings)])
    return Asked(_always(policy), Named(policy, tuple(keys)))


def _refuse_empty(kinds: Sequence[str], path: Path, policy: Policy) -> None:
    """Raise `WrongUse` where the policy has no rule of these kinds: that nothing differs would be no answer."""
    keys = [key for kind in kinds for key in RULES.get(kind, ()) if key != "call_timeout"]
    if keys and not any(getattr(policy, key) for key in keys):
        raise WrongUse(f"--only: {path} has no {' and no '.join(kinds)}, so there is nothing to ask")


def _always(policy: Policy) -> Change:
    return lambda _: policy


def _then(first: Change, second: Change) -> Change:
    return lambda policy: second(first(policy))
