"""The console: the command `refold`, and the demo. Nothing here is imported before it is asked for."""

__all__: list[str] = []
