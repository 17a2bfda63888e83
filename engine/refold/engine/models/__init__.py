"""Models: what the engine wants of one, and those that come with refold. Each is imported where it is
used.
"""
