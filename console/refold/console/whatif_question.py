"""What `refold whatif` asks: policies, settings, prices and contexts.

A file has a model's name a line, with US dollars for a million tokens: `gpt-5-mini: {input: 0.25, output:
2}`. It is read as policy files are. Which table it was is told by its digest: with that file the same can be
asked again.

A file has a model's name a line, with tokens: `gpt-5-mini: 400000`. The line `"*"` is for every other model,
and for a run of which nobody knows the model. It is a word of who asks, and told as that: the file by its
digest.
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
from refold.engine.arguments import BadSyntax
from refold.engine.compatibility import installed_guards
from refold.engine.permission_files import dialect_of
from refold.engine.policy_files import file_errors, is_preset, load_policy, read_data
from refold.reducers.errors import PolicyError, RefoldError, WrongUse, refusal, shown
from refold.reducers.guards import Registry
from refold.reducers.overlay import Setting
from refold.reducers.parser import parse_with
from refold.reducers.policy import Policy
from refold.reducers.presets import PRESETS
from refold.reducers.vocabulary import NANO
from refold.replay.bulk import Shard
from refold.replay.whatif.comparison import ask_all
from refold.replay.whatif.facts import Change
from refold.replay.whatif.rule_subset import RULES, NamedPolicy, add_guards, replace_rules
from refold.replay.whatif.tables import Contexts, PriceQuery, Prices
from refold.replay.whatif.verdict import Verdict, WhatIf

_SETTING = re.compile(r"(?P<path>[a-z_]+(?:\.[\w:-]+)*)=(?P<value>.*)", re.DOTALL)


def settings_of(typed: Iterable[str]) -> list[Setting]:
    """What was typed, as paths and values. Raises `PolicyError` for what is none.

    `limits.NAME=VALUE` gives a limit its value; in `limits`, `guards` and `history` an entry is named by its
    name, as in `guards.NAME.KEY=VALUE`, and `guards.NAME=null` takes one out. A value is JSON, a YAML list or
    mapping in one line, or else the text as it stands.
    """
    return [_parse_setting(each) for each in typed]


def change_by(settings: Sequence[Setting], registry: Registry) -> Callable[[Policy], Policy]:
    """The change that lays these settings over a policy. It raises `PolicyError` where that cannot work."""

    def change(policy: Policy) -> Policy:
        # A guard that is not installed here stays as it was recorded: what it would have said cannot be
        # judged.
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
    from refold.engine.yaml_text import load  # what is written as in a file, without JSON's quotes

    try:
        return load(text)
    except BadSyntax as error:
        raise PolicyError("--set", f"{text[:100]!r} {error}") from error


class OtherPolicies(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked about.

    Without policies the settings change the recorded one; `only` names kinds of rules of theirs.
    """

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


class AskedPolicy(NamedTuple):
    """One of the policies: what it changes, and what its file names where that is not a whole preset."""

    change: Change
    named: NamedPolicy | None = None


def policies_of(asked: OtherPolicies, registry: Registry) -> Mapping[str, AskedPolicy]:
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
        return {told: AskedPolicy(change)}
    suffix = f" + {told}" if told else ""
    if asked.only is None:
        return {f"{path}{suffix}": _whole(path, registry, settings) for path in asked.policy}
    chosen = {path: load_policy(path, registry, {})[0] for path in asked.policy}
    kinds = [kind.strip() for kind in asked.only.split(",")]
    for path, policy in chosen.items():
        _refuse_empty(kinds, path, policy)
    return {
        f"only {', '.join(kinds)} of {path}{suffix}": AskedPolicy(
            _then(replace_rules(kinds, policy, registry), change)
        )
        for path, policy in chosen.items()
    }


def _whole(path: Path, registry: Registry, settings: Sequence[Setting]) -> AskedPolicy:
    """A policy in place of the recorded one.

    A file that starts from no preset has defaults which its author did not set.
    """
    policy = load_policy(path, registry, {}, settings)[0]
    if dialect_of(path):
        return AskedPolicy(add_guards(policy, registry))
    data = {"preset": str(path)} if is_preset(path) else read_data(path, "a preset", PRESETS)[0]
    if data.get("preset"):
        return AskedPolicy(_always(policy))
    keys = dict.fromkeys([*(key for key in data if key != "schema"), *(where[0] for where, _ in settings)])
    return AskedPolicy(_always(policy), NamedPolicy(policy, tuple(keys)))


def _refuse_empty(kinds: Sequence[str], path: Path, policy: Policy) -> None:
    """Raise `WrongUse` where the policy has no rule of these kinds: that nothing differs would be no
    answer.
    """
    keys = [key for kind in kinds for key in RULES.get(kind, ()) if key != "call_timeout"]
    if keys and not any(getattr(policy, key) for key in keys):
        raise WrongUse(f"--only: {path} has no {' and no '.join(kinds)}, so there is nothing to ask")


def _always(policy: Policy) -> Change:
    return lambda _: policy


def _then(first: Change, second: Change) -> Change:
    return lambda policy: second(first(policy))


LISTS = "genai-prices"
_MILLION = 1_000_000
LineT = TypeVar("LineT")

Dollars = Annotated[int, Meta(ge=0, le=_MILLION)] | Annotated[float, Meta(ge=0, le=_MILLION)]


class ListedPrice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """US dollars for a million tokens.

    Of tokens read from or written to a cache without such a price the cost is not known.
    """

    input: Dollars
    output: Dollars
    cache_read: Dollars | None = None
    cache_write: Dollars | None = None


def choose_prices(chosen: Path | None) -> Prices | None:
    """The prices that were asked for: a file, or the installed lists by their name.

    Raises `PolicyFileError` for a file that cannot be read or has no prices, `WrongUse` where no lists are
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
    """A file with a `line` for each model, and its name with its digest.

    Raises `PolicyFileError` for one that cannot be read or has no line.
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
"""The line for every other model."""

Tokens = Annotated[int, Meta(ge=1, le=2**53)]


def choose_contexts(chosen: Path | None) -> Contexts | None:
    """The context lengths that were given: a file, or the installed lists by their name.

    Raises `PolicyFileError` for a file that cannot be read or has none, `WrongUse` where no lists are
    installed.
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
"""A run, and what was found for each policy; or why there is nothing to be said."""


class WhatIfQuestion:
    """The policies that are asked about, by what they are called, and what tables say where a record does
    not.

    Policies are functions and cannot be sent to a process. There the files are read once more, each once.
    Without `states`, which may be megabytes, those are left out of what is found. Raises `WrongUse` and what
    a file does.
    """

    def __init__(self, others: OtherPolicies, *, states: bool = False) -> None:
        self._others, self.states = others, states
        self.registry = installed_guards()
        asked = policies_of(others, self.registry)
        self.policies = {name: each.change for name, each in asked.items()}
        self.named = {name: each.named for name, each in asked.items() if each.named}
        self.prices, self.contexts = choose_prices(others.prices), choose_contexts(others.contexts)

    def __call__(self, shard: Shard) -> Iterator[Answer]:
        """What is found of each run of a shard."""
        policies = tuple(self.policies.values())
        for run, found in ask_all(shard, policies, self.registry, prices=self.prices, contexts=self.contexts):
            if isinstance(found, RefoldError):
                yield run, found
                continue
            known = self._with_defaults(shard, run, found)
            yield run, known if self.states else tuple(replace(each, state="") for each in known)

    def _with_defaults(self, shard: Shard, run: str, found: Sequence[WhatIf]) -> tuple[WhatIf, ...]:
        """What was found, with the defaults that cause a verdict: a run that does not agree is asked about
        once more.
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
            if not isinstance(answers, RefoldError):  # else the named keys alone cannot be asked about
                for (place, named), answer in zip(pairs, answers, strict=True):
                    known[place] = replace(found[place], defaults=named.defaults(found[place], answer))
        return tuple(known)

    def __reduce__(self) -> tuple[Callable[..., "WhatIfQuestion"], tuple[OtherPolicies, bool]]:
        return _question, (self._others, self.states)


@cache
def _question(others: OtherPolicies, states: bool) -> WhatIfQuestion:  # noqa: FBT001 - as `pickle` calls it
    return WhatIfQuestion(others, states=states)
