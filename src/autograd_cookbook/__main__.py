"""``python -m autograd_cookbook``."""

import sys

from autograd_cookbook.cli import main

if __name__ == "__main__":
    sys.exit(main())
