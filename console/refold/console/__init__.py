"""The console: the command `refold`, and the demo. Imports are lazy."""

__all__: list[str] = []
