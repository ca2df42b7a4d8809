"""`python -m train.record` runs `train.lab.record`."""

from train import interruption

if __name__ == "__main__":
    interruption.install()

import sys

from train.lab.record.command import main

if __name__ == "__main__":
    sys.exit(main())
