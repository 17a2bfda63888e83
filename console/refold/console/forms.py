"""How results are written: as text for a person, or as JSON for a program."""

from enum import StrEnum, unique


@unique
class Form(StrEnum):
    """How results are written."""

    TEXT = "text"
    JSON = "json"
