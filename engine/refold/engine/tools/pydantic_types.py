"""pydantic's models as what tools take and return, beside the types that msgspec knows by itself.

They are known by what they can do, not by an import: a program without pydantic does not load it.
"""

from typing import Any, Literal, TypeGuard, cast

import msgspec

KNOWN = "text, numbers, lists and mappings of them, or a dataclass, a TypedDict, a Struct or a pydantic model"
"""What JSON can carry."""
_ABLE = ("model_validate_json", "model_json_schema", "model_dump")


def is_model(kind: object) -> TypeGuard[type[Any]]:
    """Whether this is a class of pydantic's models."""
    return isinstance(kind, type) and all(hasattr(kind, name) for name in _ABLE)


def decode(kind: type, value: Any) -> Any:
    """A model of what JSON said, as its own rules take it; for msgspec's `dec_hook`. Raises `ValueError` in one line."""
    if not is_model(kind):
        raise NotImplementedError(f"JSON cannot carry {kind.__name__}")
    try:
        # As JSON, and not as Python's values: a strict model takes a date from a text of JSON only.
        return kind.model_validate_json(msgspec.json.encode(value))
    except ValueError as error:
        raise ValueError(_in_one_line(error)) from error


def encode(value: object) -> Any:
    """The plain data of a model; for msgspec's `enc_hook`. Raises `TypeError` for any other object."""
    if not is_model(type(value)):
        raise TypeError(f"JSON cannot carry {type(value).__name__}")
    model: Any = value
    return model.model_dump(mode="json")


def schema(
    kind: type, template: str, mode: Literal["validation", "serialization"] = "validation"
) -> dict[str, Any]:
    """Its JSON Schema, with `$defs` for what it names; `template` makes references, with `{model}` in it.

    `mode`: of what it is made of, or of what it is written as. Raises `TypeError` for one with parts that JSON cannot carry.
    """
    if not is_model(kind):
        raise TypeError(f"{kind.__name__} is none that JSON knows; take {KNOWN}")
    try:
        return cast("dict[str, Any]", kind.model_json_schema(ref_template=template, mode=mode))
    except RuntimeError as error:  # a mistake in how the model was written, as pydantic has it
        said = str(error).strip().partition("\n")[0]
        raise TypeError(f"the model {kind.__name__} has no JSON Schema: {said}") from error


def _in_one_line(error: ValueError) -> str:
    problems = getattr(error, "errors", None)
    if problems is None:
        return str(error)
    # Without what was given: it may be long, and the model that gave it knows it.
    told = problems(include_url=False, include_input=False, include_context=False)
    return "; ".join([f"{'.'.join(map(str, each['loc'])) or 'it'}: {each['msg']}" for each in told])
