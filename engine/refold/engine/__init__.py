"""The engine: agents and their runs, models, tools, and the loop that does what the log says is pending."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
