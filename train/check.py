"""`python -m train.check` runs `train.lab.check`."""

import sys

from train.lab.check.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
