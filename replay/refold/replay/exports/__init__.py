"""Exports: logs in the shapes that other programs read.

Each takes events in order, and holds no more than a turn of them.
"""
