"""`python -m train.bench` runs `train.lab.bench`."""

import sys

from train.lab.bench import main

if __name__ == "__main__":
    sys.exit(main())
