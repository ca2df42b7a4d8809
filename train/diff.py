"""`python -m train.diff` runs `train.lab.diff`."""

from train import interruption

if __name__ == "__main__":
    interruption.install()

import sys

from train.lab.diff import main

if __name__ == "__main__":
    sys.exit(main())
