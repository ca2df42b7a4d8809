"""`python -m train.glue` runs `train.lab.glue`."""

from train import interruption

if __name__ == "__main__":
    interruption.install()

import sys

from train.lab.glue.command import main

if __name__ == "__main__":
    sys.exit(main())
