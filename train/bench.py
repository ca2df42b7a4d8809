"""`python -m train.bench` runs `train.lab.bench`."""

from train import interruption

if __name__ == "__main__":
    interruption.install()

import sys

from train.lab.bench import main

if __name__ == "__main__":
    sys.exit(main())
