"""`python -m train.compare` runs `train.lab.compare`."""

from train import interruption

if __name__ == "__main__":
    interruption.install()

import sys

from train.lab.compare.command import main

if __name__ == "__main__":
    sys.exit(main())
