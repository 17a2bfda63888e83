"""`python -m refold.console` is `refold`."""

from refold.console.main import entry

if __name__ == "__main__":
    entry()
