"""`python -m refold.console` is `refold`."""

import sys

from refold.console.main import main

if __name__ == "__main__":
    sys.exit(main())
