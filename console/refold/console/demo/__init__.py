"""The demo, `python -m refold.console.demo`: what refold does, on one page, or the runs of a preset."""
