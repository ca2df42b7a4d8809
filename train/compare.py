"""`python -m train.compare` runs `train.lab.compare`."""

import sys

from train.lab.compare.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
