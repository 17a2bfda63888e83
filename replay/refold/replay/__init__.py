"""Replay: the verbs over logs. They read, derive and compare; no model, tool or network is ever reached."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
