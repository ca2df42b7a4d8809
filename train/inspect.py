"""`python -m train.inspect` runs `train.lab.inspect`."""

from train import interruption

if __name__ == "__main__":
    interruption.install()

import sys

from train.lab.inspect import main

if __name__ == "__main__":
    sys.exit(main())
