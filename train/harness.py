"""`python -m train.harness` runs `train.lab.harness`."""

import sys

from train.lab.harness import main

if __name__ == "__main__":
    sys.exit(main())
