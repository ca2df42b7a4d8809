"""`python -m train.glue` runs `train.lab.glue`."""

import sys

from train.lab.glue.command import main

if __name__ == "__main__":
    sys.exit(main())
