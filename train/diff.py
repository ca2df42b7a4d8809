"""`python -m train.diff` runs `train.lab.diff`."""

import sys

from train.lab.diff import main

if __name__ == "__main__":
    sys.exit(main())
