"""The tool interface and the built-in tools."""
