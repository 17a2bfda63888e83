"""Arguments of `refold whatif`: policies, settings, prices and contexts.

A file of prices has a model's name per line, with US dollars per million tokens: `gpt-5-mini: {input: 0.25,
output: 2}`. It is read like a policy file. Results name it with its digest, so that the same question can be
repeated.

A file of context lengths has a model's name per line, with tokens: `gpt-5-mini: 400000`. The line `"*"` is
for every other model, and for runs without a known model. It is the user's assumption, and results name the
file with its digest.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar, cast

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from refold.console.options import Settings, option
from refold.console.rule_lists import AUTO
from refold.console.screen import note
from refold.engine.arguments import BadSyntax
from refold.engine.compatibility import installed_guards
from refold.engine.permission_files import dialect_of, read_permissions
from refold.engine.policy_files import file_errors, is_preset, load_policy, read_data
from refold.reducers.errors import PolicyError, RefoldError, WrongUse, refusal, shown
from refold.reducers.guards import Registry
from refold.reducers.overlay import Setting
from refold.reducers.parser import parse_with
from refold.reducers.policy import Policy
from refold.reducers.presets import PRESETS
from refold.reducers.vocabulary import NANO
from refold.replay.shards import Shard
from refold.replay.whatif.comparison import ask_all
from refold.replay.whatif.facts import Change
from refold.replay.whatif.rule_subset import RULES, NamedPolicy, add_guards, replace_rules
from refold.replay.whatif.tables import Contexts, PriceQuery, Prices
from refold.replay.whatif.verdict import Verdict, WhatIf

_SETTING = re.compile(r"(?P<path>[a-z_]+(?:\.[\w:-]+)*)=(?P<value>.*)", re.DOTALL)


def settings_of(typed: Iterable[str]) -> list[Setting]:
    """Parse settings into paths and values. Raises `PolicyError`.

    `limits.NAME=VALUE` sets a limit's value. In `limits`, `guards` and `history` an entry is addressed by its
    name, as in `guards.NAME.KEY=VALUE`; `guards.NAME=null` removes one. A value is JSON, a YAML list or
    mapping in one line, or else text.
    """
    return [_parse_setting(each) for each in typed]


def note_rules(policies: Iterable[Path]) -> None:
    """Print what another agent ignores in its permission rules, and what refold cannot judge."""
    for path in policies:
        reads = dialect_of(path) and str(path) != AUTO
        for each in read_permissions(path)[1] if reads else ():
            note(f"{each.place}: {each.problem}")


def change_by(settings: Sequence[Setting], registry: Registry) -> Callable[[Policy], Policy]:
    """Return the change that applies these settings to a policy.

    It raises `PolicyError` if the result is invalid.
    """

    def change(policy: Policy) -> Policy:
        # A guard that is not installed here stays as recorded: its verdicts cannot be derived.
        data = msgspec.to_builtins(policy)
        return parse_with(data, {}, registry, settings=settings, strict_guards=False)[0]

    return change if settings else lambda policy: policy


def _parse_setting(typed: str) -> Setting:
    found = _SETTING.fullmatch(typed)
    if found is None:
        raise PolicyError("--set", f"expected KEY=VALUE, as in limits.step=20, got {typed[:100]!r}")
    path = found["path"].split(".")
    return [*path, "value"] if path[0] == "limits" and len(path) == 2 else path, _value(found["value"])


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        pass
    if not text.startswith(("[", "{")):
        return text
    from refold.engine.yaml_text import load  # lists and mappings as in a policy file, without JSON's quotes

    try:
        return load(text)
    except BadSyntax as error:
        raise PolicyError("--set", f"{text[:100]!r} {error}") from error


class OtherPolicies(msgspec.Struct, frozen=True, kw_only=True):
    """The policies to test.

    Without any, the settings change the recorded one; `only` names the kinds of rules to use.
    """

    policy: Annotated[
        list[Path],
        option("--policy", "Policy file, preset, or rules of an agent, as claude:PATH; may be repeated."),
    ] = []
    settings: Settings = []
    only: Annotated[
        str | None,
        option("--only", "Only these rules of --policy, over the run's own policy: limits,guards,approvals."),
    ] = None
    prices: Annotated[
        Path | None,
        option("--prices", "genai-prices, or a file: prices for responses without a recorded price."),
    ] = None
    contexts: Annotated[
        Path | None,
        option("--contexts", "genai-prices, or a file: context lengths that are not recorded."),
    ] = None

    def __hash__(self) -> int:
        return hash(str(self))  # lists are not hashable


class AskedPolicy(NamedTuple):
    """A policy: its change, and the keys that its file sets unless it is a complete preset."""

    change: Change
    named: NamedPolicy | None = None


def policies_of(asked: OtherPolicies, registry: Registry) -> Mapping[str, AskedPolicy]:
    """Return the policies by name. Raises `WrongUse`, and what reading a file raises."""
    settings = settings_of(asked.settings)
    change = change_by(settings, registry)
    told = ", ".join(asked.settings)
    if not asked.policy:
        if asked.only is not None:
            raise WrongUse(
                "--only selects rules of another policy: name it with --policy (--set changes the recorded one)"
            )
        if not asked.settings:
            raise WrongUse("expected --policy POLICY, or --set KEY=VALUE to change the recorded one")
        return {told: AskedPolicy(change)}
    suffix = f" + {told}" if told else ""
    if asked.only is None:
        return {f"{path}{suffix}": _replacement(path, registry, settings) for path in asked.policy}
    chosen = {path: load_policy(path, registry, {})[0] for path in asked.policy}
    kinds = [kind.strip() for kind in asked.only.split(",")]
    for path, policy in chosen.items():
        _refuse_empty(kinds, path, policy)
    return {
        f"only {', '.join(kinds)} of {path}{suffix}": AskedPolicy(
            _compose(replace_rules(kinds, policy, registry), change)
        )
        for path, policy in chosen.items()
    }


def _needs_session(_: Policy) -> Policy:
    raise WrongUse(f"{AUTO} finds the settings of each session: it is for whole runs, and stands alone")


def _replacement(path: Path, registry: Registry, settings: Sequence[Setting]) -> AskedPolicy:
    """Return a policy that replaces the recorded one.

    If its file is based on no preset, it has defaults that its author did not set.
    """
    if str(path) == AUTO:
        return AskedPolicy(_needs_session)
    policy = load_policy(path, registry, {}, settings)[0]
    if dialect_of(path):
        return AskedPolicy(add_guards(policy, registry))
    data = {"preset": str(path)} if is_preset(path) else read_data(path, "a preset", PRESETS)[0]
    if data.get("preset"):
        return AskedPolicy(_replace_by(policy))
    keys = dict.fromkeys([*(key for key in data if key != "schema"), *(where[0] for where, _ in settings)])
    return AskedPolicy(_replace_by(policy), NamedPolicy(policy, tuple(keys)))


def _refuse_empty(kinds: Sequence[str], path: Path, policy: Policy) -> None:
    """Raise `WrongUse` if the policy has no rule of these kinds, because every run would agree."""
    keys = [key for kind in kinds for key in RULES.get(kind, ()) if key != "call_timeout"]
    if keys and not any(getattr(policy, key) for key in keys):
        raise WrongUse(f"--only: {path} has no {' and no '.join(kinds)}, so there is nothing to test")


def _replace_by(policy: Policy) -> Change:
    return lambda _: policy


def _compose(first: Change, second: Change) -> Change:
    return lambda policy: second(first(policy))


LISTS = "genai-prices"
_MILLION = 1_000_000
LineT = TypeVar("LineT")

Dollars = Annotated[int, Meta(ge=0, le=_MILLION)] | Annotated[float, Meta(ge=0, le=_MILLION)]


class ListedPrice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """US dollars per million tokens.

    Without a cache price, the cost of tokens read from or written to a cache is unknown.
    """

    input: Dollars
    output: Dollars
    cache_read: Dollars | None = None
    cache_write: Dollars | None = None


def choose_prices(chosen: Path | None) -> Prices | None:
    """Return the chosen prices: a file, or the installed lists by their name.

    Raises `PolicyFileError` for a file that cannot be read or has no prices, `WrongUse` if no lists are
    installed.
    """
    if chosen is None:
        return None
    if str(chosen) == LISTS and not chosen.is_file():
        return _installed_prices()
    return _of_file(chosen)


def _installed_prices() -> Prices:
    from refold.engine.models.prices import list_name, listed_nanousd

    def cost(query: PriceQuery) -> int | None:
        return listed_nanousd(query.usage, query.model, query.address, query.at)

    return Prices(list_name(), cost)


def _of_file(path: Path) -> Prices:
    name, table = read_table(path, "a table of prices", "gpt-5-mini: {input: 0.25, output: 2}", _price)

    def cost(query: PriceQuery) -> int | None:
        price = table.get(query.model)
        return None if price is None else _cost(price, query)

    return Prices(name, cost)


def read_table(
    path: Path, what: str, line: str, read: Callable[[str, Any], LineT]
) -> tuple[str, Mapping[str, LineT]]:
    """Read a file with a `line` per model, and return its name with its digest, and the table.

    Raises `PolicyFileError` if it cannot be read or is empty.
    """
    with file_errors(path, what):
        told, data = read_data(path, LISTS)
        if not isinstance(told, Mapping) or not told:
            raise PolicyError("", f"expected a line for each model, as in `{line}`, got {shown(told)}")
        lines = cast("Mapping[object, object]", told).items()
        table = {str(model): read(str(model), said) for model, said in lines}
    return f"{path} sha256:{hashlib.sha256(data).hexdigest()}", table


def _price(model: str, data: Any) -> ListedPrice:
    if not isinstance(data, Mapping):
        raise PolicyError(
            model, f"expected dollars for a million tokens as {{input: …, output: …}}, got {shown(data)}"
        )
    try:
        return msgspec.convert(data, ListedPrice)
    except msgspec.ValidationError as error:
        raise refusal(error, data, ListedPrice, model) from error


def _cost(price: ListedPrice, query: PriceQuery) -> int | None:
    usage = query.usage
    charged = (
        (price.input, usage.input - usage.cache_read - usage.cache_write),
        (price.cache_read, usage.cache_read),
        (price.cache_write, usage.cache_write),
        (price.output, usage.output),
    )
    cost = Decimal(0)
    for dollars, tokens in charged:
        if dollars is None and tokens:
            return None
        cost += Decimal(str(dollars or 0)) * tokens
    return int((cost * NANO / _MILLION).to_integral_value(ROUND_HALF_UP))


OTHERS = "*"
"""The line for all other models."""

Tokens = Annotated[int, Meta(ge=1, le=2**53)]


def choose_contexts(chosen: Path | None) -> Contexts | None:
    """Return the chosen context lengths: a file, or the installed lists by their name.

    Raises `PolicyFileError` for a file that cannot be read or is empty, `WrongUse` if no lists are installed.
    """
    if chosen is None:
        return None
    if str(chosen) == LISTS and not chosen.is_file():
        from refold.engine.models.prices import list_name, listed_context

        return Contexts(list_name(), listed_context)
    name, table = read_table(chosen, "a table of context lengths", "gpt-5-mini: 400000", _length)

    def length(model: str, _: str) -> int | None:
        return table.get(model, table.get(OTHERS))

    return Contexts(name, length)


def _length(model: str, data: Any) -> int:
    try:
        return msgspec.convert(data, Tokens)
    except msgspec.ValidationError:
        raise PolicyError(model, f"expected tokens, a whole number above 0, got {shown(data)}") from None


Answer = tuple[str, Sequence[WhatIf] | RefoldError]
"""A run, with the result for each policy, or the error that prevented one."""


class WhatIfQuestion:
    """The policies to test, by name, with prices and contexts for what a record lacks.

    Policies are functions and cannot be pickled: each process reads the files again, once. Without `states`,
    which may be megabytes, results omit them. Raises `WrongUse`, and what reading a file raises.
    """

    def __init__(self, others: OtherPolicies, *, states: bool = False) -> None:
        self._others, self.states = others, states
        self.registry = installed_guards()
        asked = policies_of(others, self.registry)
        self.policies = {name: each.change for name, each in asked.items()}
        self.named = {name: each.named for name, each in asked.items() if each.named}
        self.prices, self.contexts = choose_prices(others.prices), choose_contexts(others.contexts)

    def __call__(self, shard: Shard) -> Iterator[Answer]:
        """Yield the results for each run of a shard."""
        policies = tuple(self.policies.values())
        for run, found in ask_all(shard, policies, self.registry, prices=self.prices, contexts=self.contexts):
            if isinstance(found, RefoldError):
                yield run, found
                continue
            known = self._with_defaults(shard, run, found)
            yield run, known if self.states else tuple(replace(each, state="") for each in known)

    def _with_defaults(self, shard: Shard, run: str, found: Sequence[WhatIf]) -> tuple[WhatIf, ...]:
        """Add the defaults that cause a verdict: a run that does not agree is tested again with the file's
        own keys.
        """
        pairs = [
            (place, self.named[name])
            for place, (name, each) in enumerate(zip(self.policies, found, strict=True))
            if name in self.named and each.verdict is not Verdict.AGREE
        ]
        known = list(found)
        if not pairs:
            return tuple(known)
        alone = [named.alone(self.registry) for _, named in pairs]
        part = replace(shard, runs=(run,))
        for _, answers in ask_all(part, alone, self.registry, prices=self.prices, contexts=self.contexts):
            if not isinstance(answers, RefoldError):  # else the keys alone are not a valid policy
                for (place, named), answer in zip(pairs, answers, strict=True):
                    known[place] = replace(found[place], defaults=named.defaults(found[place], answer))
        return tuple(known)

    def __reduce__(self) -> tuple[Callable[..., "WhatIfQuestion"], tuple[OtherPolicies, bool]]:
        return _question, (self._others, self.states)


@cache
def _question(others: OtherPolicies, states: bool) -> WhatIfQuestion:  # noqa: FBT001 - as `pickle` calls it
    return WhatIfQuestion(others, states=states)
