"""`python -m train.prune` runs `train.lab.prune`."""

from train import interruption

if __name__ == "__main__":
    interruption.install()

import sys

from train.lab.prune.command import main

if __name__ == "__main__":
    sys.exit(main())
