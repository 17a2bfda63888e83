"""Importers: transcripts of other agents, read into facts. Pure: bytes in, facts out."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
