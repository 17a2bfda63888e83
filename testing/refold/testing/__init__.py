"""Deterministic tests of agents: a pytest plugin, recordings, simulation and strategies. Imports are lazy."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
