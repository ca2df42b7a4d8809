"""`python -m train.harness` runs `train.lab.harness`."""

from train import interruption

if __name__ == "__main__":
    interruption.install()

import sys

from train.lab.harness import main

if __name__ == "__main__":
    sys.exit(main())
