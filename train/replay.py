"""`python -m train.replay` runs `train.lab.replay`."""

import sys

from train.lab.replay import main

if __name__ == "__main__":
    sys.exit(main())
