"""`python -m train.inspect` runs `train.lab.inspect`."""

import sys

from train.lab.inspect import main

if __name__ == "__main__":
    sys.exit(main())
