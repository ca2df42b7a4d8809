"""`python -m train.retrieve` runs `train.lab.retrieve`."""

from train import interruption

if __name__ == "__main__":
    interruption.install()

import sys

from train.lab.retrieve import main

if __name__ == "__main__":
    sys.exit(main())
