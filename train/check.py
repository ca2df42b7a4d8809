"""`python -m train.check` runs `train.lab.check`."""

from train import interruption

if __name__ == "__main__":
    interruption.install()

import sys

from train.lab.check.command import main

if __name__ == "__main__":
    sys.exit(main())
