"""`python -m secondguess` is the command `secondguess`."""

import sys

from secondguess.cli import main

if __name__ == "__main__":
    sys.exit(main())
