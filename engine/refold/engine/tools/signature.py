"""Validator and JSON Schema of a function's arguments, both from its signature.

Pydantic models are recognised by their methods, so that a program without pydantic does not load it.

Schema and validation come from the same Struct, so they cannot disagree. The schema has no references where
possible: adapters embed it in schemas of their own, where `#/$defs/...` would point nowhere. Only recursive
types keep `$defs`.
"""

import copy
import dataclasses
import inspect
import types
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeGuard,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from refold.engine.tools.protocol import BadArguments, CallContext
from refold.reducers.errors import WrongUse
from refold.reducers.text import clean

JSON_TYPES = (
    "text, numbers, lists and mappings of them, or a dataclass, a TypedDict, a Struct or a pydantic model"
)
"""The types that JSON can carry, for messages."""
_ABLE = ("model_validate_json", "model_json_schema", "model_dump")


def is_model(kind: object) -> TypeGuard[type[Any]]:
    """Return whether `kind` is a pydantic model class."""
    return isinstance(kind, type) and all(hasattr(kind, name) for name in _ABLE)


def decode_model(kind: type, value: Any) -> Any:
    """Build a pydantic model from a JSON value with the model's own rules; for msgspec's `dec_hook`.

    Raises `ValueError` with a one-line message.
    """
    if not is_model(kind):
        raise NotImplementedError(f"JSON cannot carry {kind.__name__}")
    try:
        # As JSON instead of Python values: a strict model accepts a date as text only in JSON.
        return kind.model_validate_json(msgspec.json.encode(value))
    except ValueError as error:
        raise ValueError(_in_one_line(error)) from error


def encode_model(value: object) -> Any:
    """Return a model's plain data; for msgspec's `enc_hook`. Raises `TypeError` for any other object."""
    if not is_model(type(value)):
        raise TypeError(f"JSON cannot carry {type(value).__name__}")
    model: Any = value
    return model.model_dump(mode="json")


def schema_of_model(
    kind: type, template: str, mode: Literal["validation", "serialization"] = "validation"
) -> dict[str, Any]:
    """Return a model's JSON Schema, with `$defs` for the types it uses.

    `template` is the format of references, with `{model}` in it. `mode`: the schema of its input, or of its
    output. Raises `TypeError` if the model has parts that JSON cannot carry.
    """
    if not is_model(kind):
        raise TypeError(f"{kind.__name__} is not a JSON type; use {JSON_TYPES}")
    try:
        return cast("dict[str, Any]", kind.model_json_schema(ref_template=template, mode=mode))
    except RuntimeError as error:  # pydantic's base class for errors in a model's definition
        said = str(error).strip().partition("\n")[0]
        raise TypeError(f"the model {kind.__name__} has no JSON Schema: {said}") from error


def _in_one_line(error: ValueError) -> str:
    problems = getattr(error, "errors", None)
    if problems is None:
        return str(error)
    # Without the input: it may be long, and the model that wrote it has it in its prompt.
    told = problems(include_url=False, include_input=False, include_context=False)
    return "; ".join([f"{'.'.join(map(str, each['loc'])) or 'it'}: {each['msg']}" for each in told])


_CONTAINERS = (tuple, list, dict, set, frozenset, msgspec.Struct, type(None))


def parts_of(annotation: Any) -> list[Any]:
    """Return the types in an annotation, mappings and sets before their members.

    For `Awaitable` and `Coroutine`, these are the types of the awaited result.
    """
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Awaitable, Coroutine):
        return parts_of(parts[-1])
    if origin is Annotated:
        return parts_of(parts[0])
    within = [each for part in parts if part is not Ellipsis for each in parts_of(part)]
    if origin in (Union, types.UnionType, list, tuple):  # separately: encoding does not distinguish them
        return within
    return [annotation, *within] if origin in (set, frozenset, dict) else [annotation]


def alternatives(annotation: Any) -> list[Any]:
    """Return the alternatives of a union; else the type itself."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return alternatives(parts[0])
    if origin in (Union, types.UnionType):
        return [each for part in parts for each in alternatives(part)]
    return [annotation]


def unwritable_keys(kind: Any) -> list[Any]:
    """Return a mapping's key types that JSON, whose keys are text, cannot write; [] for other types."""
    return (
        []
        if get_origin(kind) is not dict
        else [key for key in alternatives(get_args(kind)[0]) if not _is_key(key)]
    )


def _is_key(kind: Any) -> bool:
    plain = get_origin(kind) or kind
    container = kind is None or (isinstance(plain, type) and issubclass(plain, _CONTAINERS))
    return not container and not dataclasses.is_dataclass(kind) and not is_model(kind)


_REFERENCE = "#/$defs/"
_KINDS_REFUSED = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only, and a model passes arguments by name",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of values, and a model passes arguments by name",
    inspect.Parameter.VAR_KEYWORD: "takes any name, and a schema must list them",
}

Schema = dict[str, Any]


class Accepts(NamedTuple):
    """The arguments that a tool's function takes from a model."""

    tool: str
    names: tuple[str, ...]
    required: tuple[str, ...]
    context: str | None  # the parameter that is given the call's context
    decoder: msgspec.json.Decoder[msgspec.Struct]
    schema: str  # JSON Schema of the arguments object, as JSON text

    def bind(self, arguments: str, context: CallContext) -> dict[str, Any]:
        """Return the keyword arguments for the function.

        `arguments` is JSON text as a model wrote it. Raises `BadArguments` if it does not fit the schema.
        """
        try:
            values = self.decoder.decode(arguments)
        except msgspec.DecodeError as error:
            raise BadArguments(clean(f"{error}. {self.usage}")) from error
        except UnicodeEncodeError as error:
            raise BadArguments(
                f"Character {error.start} of the arguments is an unpaired surrogate. {self.usage}"
            ) from error
        except RecursionError as error:
            raise BadArguments(f"The arguments are nested too deeply. {self.usage}") from error
        keywords = {name: getattr(values, name) for name in self.names}
        return keywords if self.context is None else {**keywords, self.context: context}

    @property
    def usage(self) -> str:
        """One sentence that lists the arguments, for a model that sent wrong ones."""
        if not self.names:
            return f"{self.tool} takes no arguments"
        words = [name if name in self.required else f"{name} (optional)" for name in self.names]
        return f"{self.tool} takes: {', '.join(words)}"


def accepts(function: Callable[..., object], tool: str, documented: Mapping[str, str]) -> Accepts:
    """Read a function's signature. `documented` has the descriptions of its arguments.

    Raises `WrongUse`, naming the tool and the parameter, for a parameter that JSON Schema cannot describe.
    """
    hints = hints_of(function, tool)
    fields: list[tuple[str, Any, Any]] = []
    context = None
    for parameter in inspect.signature(function).parameters.values():
        place = f"tool {tool}, parameter {parameter}"
        if parameter.kind in _KINDS_REFUSED:
            raise WrongUse(f"{place}: {_KINDS_REFUSED[parameter.kind]}: name each argument")
        if parameter.name not in hints:
            raise WrongUse(
                f"{place}: has no type annotation; for a method, decorate the bound one: tool(thing.method)"
            )
        if hints[parameter.name] is CallContext:
            context = parameter.name
        else:
            fields.append(
                (parameter.name, hints[parameter.name], _default(parameter, hints[parameter.name], place))
            )
    struct = _struct(fields, tool)
    return Accepts(
        tool=tool,
        names=tuple(name for name, _, _ in fields),
        required=tuple(name for name, _, default in fields if default is msgspec.NODEFAULT),
        context=context,
        decoder=_decoder(struct),
        schema=_schema(tool, struct, {name: default for name, _, default in fields}, documented),
    )


def hints_of(function: Callable[..., object], tool: str) -> dict[str, Any]:
    """Return a function's annotations by name. Raises `WrongUse`, naming the tool, if that fails."""
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise WrongUse(
            f"tool {tool}: its annotations cannot be read ({error}): import the types they name where the "
            "function is defined, not under TYPE_CHECKING"
        ) from error


def _default(parameter: inspect.Parameter, annotation: Any, place: str) -> Any:
    """Return the default of a parameter, NODEFAULT if it has none.

    Raises `WrongUse` if the default does not fit the annotation: the schema would then be wrong.
    """
    if parameter.default is inspect.Parameter.empty:
        return msgspec.NODEFAULT
    try:
        _decoder(annotation).decode(msgspec.json.encode(parameter.default, enc_hook=encode_model))
    except (TypeError, NotImplementedError, msgspec.MsgspecError, UnicodeEncodeError) as error:
        raise WrongUse(f"{place}: the default does not fit the annotation: {error}") from error
    return parameter.default


def _struct(fields: list[tuple[str, Any, Any]], tool: str) -> type[msgspec.Struct]:
    """Build the Struct that validates the arguments. Each field is checked alone first, so that an error can
    name it.
    """
    for name, annotation, _ in fields:
        if name.startswith("__"):
            raise WrongUse(f"tool {tool}, parameter {name}: a name may not begin with two underscores")
        if any(map(unwritable_keys, parts_of(annotation))):
            raise WrongUse(
                f"tool {tool}, parameter {name}: its type cannot be serialized as JSON: a key must be text or a number; use a list of pairs"
            )
        try:
            _components(annotation)
            _decoder(annotation)
        except (TypeError, NotImplementedError) as error:
            problem = " ".join(str(error).split())
            raise WrongUse(
                f"tool {tool}, parameter {name}: its type cannot be serialized as JSON: {problem}"
            ) from error
    return msgspec.defstruct(
        "arguments",
        [(name, annotation, _field(default)) for name, annotation, default in fields],
        forbid_unknown_fields=True,
        kw_only=True,
    )


def _field(default: Any) -> Any:
    # A copy for each call: a default that one call mutates must not reach the next.
    return (
        msgspec.field()
        if default is msgspec.NODEFAULT
        else msgspec.field(default_factory=lambda: copy.deepcopy(default))
    )


def _schema(
    tool: str, struct: type[msgspec.Struct], defaults: Mapping[str, Any], documented: Mapping[str, str]
) -> str:
    """Return the schema as JSON text; equal signatures give equal bytes."""
    try:
        top, definitions = _components(struct)
    except TypeError as error:  # each parameter alone was valid, so two of them conflict
        raise WrongUse(f"tool {tool}: its types together cannot be serialized as JSON: {error}") from error
    kept: set[str] = set()
    schema = _inline(top, definitions, (), kept)
    for name, described in schema["properties"].items():
        if name in documented:
            described.setdefault("description", documented[name])
        if defaults[name] is not msgspec.NODEFAULT:
            described["default"] = _plain(defaults[name])
    if kept:
        schema["$defs"] = _named_definitions(definitions, kept)
    return msgspec.json.encode(schema).decode()


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, dec_hook=decode_model)


def _components(kind: Any) -> tuple[Schema, Schema]:
    """Return the schema of a type, and all definitions that it refers to."""
    theirs: Schema = {}

    def hook(model: type) -> Schema:
        schema, kept = schema_of_model(model, _REFERENCE + "{model}"), set[str]()
        definitions = schema.pop("$defs", {})
        laid: Schema = _inline(schema, definitions, (), kept)
        for name, definition in _named_definitions(definitions, kept).items():
            if theirs.setdefault(name, definition) != definition:
                raise TypeError(f"two recursive models are named {name}")
        return laid

    (top,), ours = msgspec.json.schema_components(
        [kind], ref_template=_REFERENCE + "{name}", schema_hook=hook
    )
    if both := sorted(theirs.keys() & ours.keys()):
        raise TypeError(f"two types are named {both[0]}")
    return top, {**theirs, **ours}


def _plain(value: Any) -> Any:
    """Convert a value to plain JSON data, with sets sorted."""
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=encode_model, order="deterministic"))


def _named_definitions(definitions: Mapping[str, Schema], kept: set[str]) -> Schema:
    """Return the definitions that must stay named. Inlining one may add to `kept`."""
    laid: Schema = {}
    while missing := sorted(kept - laid.keys()):
        for name in missing:
            laid[name] = _inline({"$ref": _REFERENCE + name}, definitions, (), kept)
    return {name: laid[name] for name in sorted(laid)}


def _inline(node: object, definitions: Mapping[str, Schema], within: tuple[str, ...], kept: set[str]) -> Any:
    """Replace references by their definitions. A recursive reference stays, and its name is added to
    `kept`.
    """
    if isinstance(node, list):
        return [_inline(each, definitions, within, kept) for each in cast("list[object]", node)]
    if not isinstance(node, dict):
        return node
    schema = cast("dict[str, object]", node)
    if "$ref" not in schema:
        # A discriminator maps to references. It is redundant: its property has one allowed value in each
        # branch.
        parts = _without(schema, "discriminator").items()
        return {key: _part(key, value, definitions, within, kept) for key, value in parts}
    name = str(schema["$ref"]).removeprefix(_REFERENCE)
    if name in within:
        kept.add(name)
        return schema
    named = _without(definitions[name], "title")  # a class name is of no use to the model
    return _inline(named, definitions, (*within, name), kept) | _without(schema, "$ref")


def _without(schema: Mapping[str, object], key: str) -> Schema:
    return {each: value for each, value in schema.items() if each != key}


def _part(
    key: str, value: object, definitions: Mapping[str, Schema], within: tuple[str, ...], kept: set[str]
) -> object:
    """Inline references in the value of a schema's key: schemas by name, one or several schemas, or data."""
    if key == "properties":
        named = cast("dict[str, object]", value)
        return {name: _inline(each, definitions, within, kept) for name, each in named.items()}
    if key in {"items", "prefixItems", "anyOf", "oneOf", "allOf", "additionalProperties", "propertyNames"}:
        return _inline(value, definitions, within, kept)
    return value
