"""`python -m train.words` runs `train.lab.words`."""

import sys

from train.lab.words import main

if __name__ == "__main__":
    sys.exit(main())
