"""`python -m train.replay` runs `train.lab.replay`."""

from train import interruption

if __name__ == "__main__":
    interruption.install()

import sys

from train.lab.replay import main

if __name__ == "__main__":
    sys.exit(main())
