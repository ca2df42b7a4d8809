"""`python -m train.prune` runs `train.lab.prune`."""

import sys

from train.lab.prune.command import main

if __name__ == "__main__":
    sys.exit(main())
