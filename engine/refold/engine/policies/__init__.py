"""Policies as files: TOML, YAML and JSON, with presets by name and what the environment sets of them."""
