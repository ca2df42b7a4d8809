"""`python -m train.embed` runs `train.lab.embed`."""

import sys

from train.lab.embed import main

if __name__ == "__main__":
    sys.exit(main())
