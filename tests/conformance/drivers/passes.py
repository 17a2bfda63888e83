"""Passes of a preset's history, as a policy lays them over: the list is replaced whole."""

from collections.abc import Mapping
from typing import Any

from refold.reducers.overlay import merge_layers
from refold.reducers.presets import preset_data

Step = dict[str, Any]


def step_of(preset: str, name: str, **changes: Any) -> Step:
    """One pass of a preset, with other numbers."""
    found = next(step for step in preset_data(preset)["history"] if step["name"] == name)
    return merge_layers(found, changes)


def patched(preset: str, changes: Mapping[str, Step]) -> list[Step]:
    """The history of a preset, with other numbers in the passes named."""
    return [merge_layers(step, changes.get(step["name"], {})) for step in preset_data(preset)["history"]]
