"""The demo, `python -m refold.console.demo`: what refold does in a minute, or the runs of a preset."""
