"""Bytes on disk: append-only logs, a hash chain over each, and what every store promises."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
